"""Throughput statistics: counted on the hot path, sampled by a timer, summed on request (BrokerStatsManager in 4.9.7).

Owns the counters of every queue that gets puts and of every group's gets from a queue, and their samples over a minute,
an hour and a day. Must not know the store, sockets or timers: the time is an argument (ms of the monotonic clock, of
the wall clock for the start and the day), the store's figures are passed in.

Invariant: ``put`` and ``got`` touch one counter and nothing else. Sums (of a topic, of a group) are computed on
request. A sample shares the values of counters that have not changed.

Names and windows are those of BrokerStatsManager, StatsItem, StoreStatsService and BrokerStats in 4.9.7: every 10 s for
the minute (7 samples kept), 10 minutes for the hour (7), hour for the day (25), second for the rates (601).
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

SECOND = 1000
MINUTE_SAMPLE = 10 * SECOND
HOUR_SAMPLE = 600 * SECOND
DAY_SAMPLE = 3600 * SECOND

_SLOW_BOUNDS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_SLOW_NAMES = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)


MESSAGE_SIZES = (1024.0, 4096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0)
"""Bounds of the sizes of messages, in bytes; those up to the first are not counted apart."""
_SMALL = 1024
_NONE_LARGE = (0,) * len(MESSAGE_SIZES)


class Tally(NamedTuple):
    """Messages, their bytes, the requests that brought or took them, and the ms that these waited for the disk."""

    messages: int = 0
    size: int = 0
    times: int = 0
    waited: int = 0


class Counter:
    """A running tally; its holder adds to its fields directly. ``reached`` is the offset of the next pull.

    ``large`` are the messages by size, in the buckets of MESSAGE_SIZES after the first.
    """

    __slots__ = ("large", "messages", "reached", "size", "times", "waited")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.times = 0
        self.waited = 0
        self.reached = 0
        self.large: Sequence[int] = _NONE_LARGE

    def count_large(self, count: int, size: int) -> None:
        """Count messages of more than 1 KiB; those that come together have their average size."""
        large = list(self.large)
        large[bisect_left(MESSAGE_SIZES, size / count) - 1] += count
        self.large = large

    @property
    def tally(self) -> Tally:
        """The present values."""
        return Tally(self.messages, self.size, self.times, self.waited)


class Span(NamedTuple):
    """What a counter did within a window: the sum, the sum per second, the sum per request."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0


class Moment(NamedTuple):
    """Totals of the store at one time (ms of the monotonic clock)."""

    time: int
    puts: int
    found: int
    missed: int
    transferred: int


_NOTHING = Tally()
_Key = tuple[str | int, ...]
_Table = dict[_Key, Tally]


class Snapshot(NamedTuple):
    """All counters at one time, by their table (``PUT``, ``GET``, ``BACK``, ``ALL``) and key."""

    time: int
    tables: dict[str, _Table]


class Asked(NamedTuple):
    """The counters of a requested sum."""

    table: str
    keys: list[_Key]


class Statistics:
    """The broker's counters. ``cluster`` is the key of the broker's own totals.

    ``booted`` is the start in ms since 1970, ``began`` in ms of the monotonic clock.
    """

    def __init__(self, cluster: str, booted: int, began: int) -> None:
        self.booted = booted
        self.began = began
        self._cluster = cluster
        self._puts: dict[tuple[str, int], Counter] = {}
        self._gets: dict[tuple[str, str, int], Counter] = {}
        self._sent_back: dict[tuple[str, str], Counter] = {}
        self.dead_letters: dict[tuple[str, str], int] = {}
        """The messages that became dead letters, by group and topic."""
        self.commits: dict[str, int] = {}
        """The transactions that were committed, by topic."""
        self.rollbacks: dict[str, int] = {}
        """The transactions that were rolled back, by topic."""
        self._known: tuple[int, dict[tuple[str, ...], list[_Key]]] = (-1, {})
        self._slow: dict[int, int] = {}
        self._slow_before: dict[int, int] | None = None
        self._slow_since = Moment(began, 0, 0, 0, 0)
        self._puts_before = 0
        self.slowest_put = 0
        self.slowest_get = 0
        self._moments: deque[Moment] = deque(maxlen=601)
        first = Snapshot(began, {})
        self._minute = deque([first], maxlen=7)
        self._hour = deque([first], maxlen=7)
        self._day = deque([first], maxlen=25)
        self._due = {MINUTE_SAMPLE: began, HOUR_SAMPLE: began, DAY_SAMPLE: began}
        self._today = time.localtime(booted / 1000)[:3]
        self.put_yesterday = self.put_today = self.got_yesterday = self.got_today = 0

    # ------------------------------------------------------------------ counting

    def put(self, topic: str, queue_id: int, count: int, size: int, times: int = 1) -> None:
        """Count one send, or several, that stored ``count`` messages of ``size`` bytes together."""
        try:
            counter = self._puts[topic, queue_id]
        except KeyError:
            counter = self.puts(topic, queue_id)
        counter.messages += count
        counter.size += size
        counter.times += times
        if size > count * _SMALL:
            counter.count_large(count, size)

    @property
    def put_counters(self) -> Mapping[tuple[str, int], Counter]:
        """The counters of puts by topic and queue, the oldest first."""
        return self._puts

    @property
    def got_counters(self) -> Mapping[tuple[str, str, int], Counter]:
        """The counters of gets by group, topic and queue, the oldest first."""
        return self._gets

    def became_dead(self, group: str, topic: str) -> None:
        """Count a message of a topic that a group could not consume."""
        self.dead_letters[group, topic] = self.dead_letters.get((group, topic), 0) + 1

    def puts(self, topic: str, queue_id: int) -> Counter:
        """The counter of a queue, for callers that hold on to it until the topic is changed or deleted."""
        return self._puts.setdefault((topic, queue_id), Counter())

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int, reached: int = 0) -> None:
        """Count one pull that was answered with ``count`` messages of ``size`` bytes together, up to an offset."""
        try:
            counter = self._gets[group, topic, queue_id]
        except KeyError:
            counter = self._gets[group, topic, queue_id] = Counter()
        counter.messages += count
        counter.size += size
        counter.times += 1
        counter.reached = reached

    def reached(self, group: str, topic: str, queue_id: int) -> int:
        """The offset of a group's next pull from a queue, by the last pull that found messages; 0 if there was none."""
        counter = self._gets.get((group, topic, queue_id))
        return 0 if counter is None else counter.reached

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back."""
        counter = self._sent_back.setdefault((topic, group), Counter())
        counter.messages += 1
        counter.times += 1

    def put_took(self, millis: int, times: int = 1) -> None:
        """Record the duration of puts that had to wait; all others count as less than a millisecond."""
        if millis > 0:
            self._slow[millis] = self._slow.get(millis, 0) + times
            self.slowest_put = max(self.slowest_put, millis)

    def get_took(self, group: str, topic: str, queue_id: int, millis: int) -> None:
        """Record the duration of a read that had to wait; all others count as less than a millisecond."""
        self.slowest_get = max(self.slowest_get, millis)
        self._gets.setdefault((group, topic, queue_id), Counter()).waited += millis

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic."""
        self._puts = {key: counter for key, counter in self._puts.items() if key[0] != topic}
        self._gets = {key: counter for key, counter in self._gets.items() if key[1] != topic}
        self._sent_back = {key: counter for key, counter in self._sent_back.items() if key[0] != topic}
        self._forget({"PUT": 0, "GET": 1, "BACK": 0}, topic)

    def forget_group(self, group: str) -> None:
        """Remove the counters of a deleted group."""
        self._gets = {key: counter for key, counter in self._gets.items() if key[0] != group}
        self._sent_back = {key: counter for key, counter in self._sent_back.items() if key[1] != group}
        self._forget({"GET": 0, "BACK": 1}, group)

    def _forget(self, places: dict[str, int], name: str) -> None:
        """Remove a topic or group from the samples; ``places`` holds the index of its name in each table's keys."""
        self._known = (-1, {})
        tables = {id(table): (kind, table) for each in self._all() for kind, table in each.tables.items()}
        for kind, table in tables.values():
            if kind in places:
                for key in [key for key in table if key[places[kind]] == name]:
                    del table[key]

    def _all(self) -> Iterator[Snapshot]:
        for window in (self._minute, self._hour, self._day):
            yield from window

    # ------------------------------------------------------------------ sampling

    def sample(self, moment: Moment, now: int) -> None:
        """Take a sample. Call it every second with the store's totals; ``now``, in ms since 1970, gives the day."""
        self._moments.append(moment)
        today = time.localtime(now / 1000)[:3]
        if today != self._today:
            self._today = today
            self.put_yesterday, self.put_today = self.put_today, moment.puts
            self.got_yesterday, self.got_today = self.got_today, moment.transferred
        if moment.time - self._slow_since.time >= 60 * SECOND:
            self._slow_before, self._slow = self._slow, {}
            self._puts_before = moment.puts - self._slow_since.puts
            self._slow_since = moment
        snapshot: Snapshot | None = None
        for every, window in ((MINUTE_SAMPLE, self._minute), (HOUR_SAMPLE, self._hour), (DAY_SAMPLE, self._day)):
            if moment.time - self._due[every] >= every:
                self._due[every] = moment.time
                snapshot = snapshot or Snapshot(moment.time, self._tables())
                window.append(snapshot)

    def _tables(self) -> dict[str, _Table]:
        last = self._minute[-1].tables
        tables = {
            "PUT": _frozen(last.get("PUT", {}), self._puts),
            "GET": _frozen(last.get("GET", {}), self._gets),
            "BACK": _frozen(last.get("BACK", {}), self._sent_back),
            "ALL": {},
        }
        for name, source in (("PUT", self._puts), ("GET", self._gets)):
            if source:
                tables["ALL"][(name,)] = Tally(sum(counter.messages for counter in source.values()))
        return tables

    # ------------------------------------------------------------------ answering

    def spans(self, name: str, key: str) -> tuple[Span, Span, Span] | None:
        """A counter over the last minute, hour and day; None if there is no such counter.

        ``name`` and ``key`` as in BrokerStatsManager: ``TOPIC_PUT_NUMS`` by topic, ``GROUP_GET_NUMS`` and
        ``SNDBCK_PUT_NUMS`` by ``topic@group``, ``QUEUE_PUT_NUMS`` by ``topic@queue``, ``QUEUE_GET_NUMS`` by
        ``topic@queue@group``, ``BROKER_PUT_NUMS`` and ``BROKER_GET_NUMS`` by the cluster; ``…_SIZE`` likewise, but not
        of the broker or of what was sent back. ``GROUP_GET_LATENCY`` by ``queue@topic@group``: ms, and ms per pull.
        """
        if name == "GROUP_GET_LATENCY":
            queue, _, rest = key.partition("@")
            topic, _, group = rest.partition("@")
            return self._spans("QUEUE_GET", f"{topic}@{queue}@{group}", 3)
        table, _, unit = name.rpartition("_")
        sized = not table.startswith(("BROKER", "SNDBCK"))
        if unit not in ("NUMS", "SIZE") or (unit == "SIZE" and not sized):
            return None
        return self._spans(table, key, 0 if unit == "NUMS" else 1)

    def _spans(self, table: str, key: str, field: int) -> tuple[Span, Span, Span] | None:
        asked = self._asked(table, key)
        if asked is None:
            return None
        return _span(self._minute, asked, field), _span(self._hour, asked, field), _span(self._day, asked, field)

    def _asked(self, table: str, key: str) -> Asked | None:
        """The counters of a key, None if there are none."""
        found: Asked | None = None
        match table, key.split("@"):
            case "TOPIC_PUT", [topic]:
                found = Asked("PUT", self._keys_of(topic))
            case "QUEUE_PUT", [topic, queue] if queue.isdecimal() and (topic, int(queue)) in self._puts:
                found = Asked("PUT", [(topic, int(queue))])
            case "QUEUE_GET", [topic, queue, group] if queue.isdecimal() and (group, topic, int(queue)) in self._gets:
                found = Asked("GET", [(group, topic, int(queue))])
            case "GROUP_GET", [topic, group]:
                found = Asked("GET", self._keys_of(group, topic))
            case "SNDBCK_PUT", [topic, group] if (topic, group) in self._sent_back:
                found = Asked("BACK", [(topic, group)])
            case "BROKER_PUT" | "BROKER_GET", [cluster] if cluster == self._cluster:
                kind = table.removeprefix("BROKER_")
                found = Asked("ALL", [(kind,)] if (self._puts if kind == "PUT" else self._gets) else [])
        return found if found is not None and found.keys else None

    def _keys_of(self, *name: str) -> list[_Key]:
        """The counters of a topic, or of a group and a topic."""
        count = len(self._puts) + len(self._gets)
        if self._known[0] != count:
            known: dict[tuple[str, ...], list[_Key]] = {}
            for topic, queue_id in self._puts:
                known.setdefault((topic,), []).append((topic, queue_id))
            for group, topic, queue_id in self._gets:
                known.setdefault((group, topic), []).append((group, topic, queue_id))
            self._known = (count, known)
        return self._known[1].get(name, [])

    def consume_tps(self, group: str, topic: str) -> float:
        """Messages per second that ``group`` got from ``topic`` over the last minute."""
        return _span(self._minute, Asked("GET", self._keys_of(group, topic)), 0).tps

    def rates(self, pick: Callable[[Moment], int]) -> list[float | None]:
        """The total that ``pick`` selects, per second over the last 10, 60 and 600 seconds; None for a window longer
        than the broker has run."""
        return [self._rate(pick, seconds) for seconds in (10, 60, 600)]

    def _rate(self, pick: Callable[[Moment], int], seconds: int) -> float | None:
        if len(self._moments) <= seconds:
            return None
        last, before = self._moments[-1], self._moments[-1 - seconds]
        elapsed = last.time - before.time
        return (pick(last) - pick(before)) * 1000.0 / elapsed if elapsed > 0 else 0.0

    def put_times(self) -> list[tuple[str, int]]:
        """The distribution of put durations in the last full minute, by the names of StoreStatsService."""
        puts, slow = self._last_minute()
        counts = [0] * len(_SLOW_NAMES)
        for millis, times in slow.items():
            counts[bisect_right(_SLOW_BOUNDS, millis)] += times
        counts[0] = max(puts - sum(counts), 0)
        return list(zip(_SLOW_NAMES, counts, strict=True))

    def put_latency(self, share: float) -> float:
        """The duration in ms of the quantile ``share`` of the puts in the last full minute; 0.0 if below 1 ms."""
        puts, slow = self._last_minute()
        rank = min(int(puts * share), puts - 1) - max(puts - sum(slow.values()), 0)
        if rank < 0:
            return 0.0
        for millis in sorted(slow):
            rank -= slow[millis]
            if rank < 0:
                return float(millis)
        return 0.0

    def _last_minute(self) -> tuple[int, dict[int, int]]:
        if self._slow_before is not None:
            return self._puts_before, self._slow_before
        return (self._moments[-1].puts if self._moments else 0), self._slow


def _frozen(last: _Table, counters: Mapping[Any, Counter]) -> _Table:
    """A copy of the counters; those that have not changed since ``last`` share its values."""
    table: _Table = {}
    same = len(last) == len(counters)
    for key, counter in counters.items():
        before = last.get(key)
        if before is None or before.times != counter.times or before.waited != counter.waited:
            before = counter.tally
            same = False
        table[key] = before
    return last if same else table


def _sum(snapshot: Snapshot, asked: Asked) -> Tally | None:
    """The sum of the counters in a sample; None if it contains none of them."""
    table = snapshot.tables.get(asked.table)
    found = [table[key] for key in asked.keys if key in table] if table else []
    if len(found) <= 1:
        return found[0] if found else None
    return Tally(*map(sum, zip(*found, strict=True)))


def _span(window: deque[Snapshot], asked: Asked, field: int) -> Span:
    """The span from the oldest sample that contains the counters (or the one before they began) to the newest."""
    first, before = None, Tally()
    for snapshot in window:
        tally = _sum(snapshot, asked)
        if tally is not None:
            if first is None:
                first, before = snapshot, tally
            break
        first, before = snapshot, _NOTHING
    last = window[-1]
    after = _sum(last, asked)
    if first is None or after is None or last.time <= first.time:
        return Span()
    total = after[field] - before[field]
    times = after.times - before.times
    return Span(total, total * 1000.0 / (last.time - first.time), total / times if times > 0 else 0.0)
