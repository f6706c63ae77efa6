"""What an operator who watches has to know: lag, subscriptions, queues that stand still, brokers in trouble.

A round gives lines. Those about groups are Apache's (MonitorService, DefaultMonitorListener and
ConsumerRunningInfo.analyzeProcessQueue in 4.9.7, which writes them to its client's log); those about brokers and about
peers that do not answer are not.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, NotFound, PeerRefused
from eruca.admin.lookups import END, Progress, ask_each, offset_at, online, progress, running_infos
from eruca.admin.messages import body_of, pull
from eruca.admin.results.answer import NONE, Moment, Result
from eruca.admin.results.brokers import BrokerLoad, brokers
from eruca.protocol.bodies import ConsumerRunningInfo, ConsumeStats, OffsetMovedEvent, ProcessQueueInfo
from eruca.protocol.errors import ProtocolError
from eruca.protocol.names import OFFSET_MOVED_EVENT, RETRY_PREFIX, is_retry_topic
from eruca.protocol.queues import MessageQueue

PATIENCE_MS: Final = 60_000
"""How long a queue with messages may go without consuming."""
DISK_USED: Final = 0.85
"""The part of a disk from which on it is reported; brokers refuse sends from 0.9 on (diskSpaceWarningLevelRatio)."""
BEHIND: Final = 256 * 1024 * 1024
"""Bytes from which on a slave is reported (haSlaveFallbehindMax)."""
_PREFIX = "[MONITOR] "
_NOTIFY = "[MONITOR]  [NOTIFY] "


Kind = Literal[
    "beginRound",
    "undoneMessages",
    "subscriptionDifferent",
    "queueStuck",
    "offsetMoved",
    "disk",
    "slaveBehind",
    "silent",
    "endRound",
]


class Line(Result, frozen=True, kw_only=True, rename="camel"):
    """One line of a round."""

    at: Moment
    kind: Kind
    text: str
    """As Apache's mqadmin writes it."""
    group: Annotated[str | None, NONE] = None
    topic: Annotated[str | None, NONE] = None
    member: Annotated[str | None, NONE] = None
    """Its client id."""
    broker: Annotated[str | None, NONE] = None
    undone: int | None = None
    """Messages that the group has not consumed."""
    undone_in_one_queue: int | None = None
    delay_ms: int | None = None
    """By how much the last message that was consumed is older than the last one stored."""
    complete: bool | None = None
    """Whether the figures are of all brokers; the others have a line of their own."""


class Monitor:
    """Rounds over a cluster; between them it remembers how far it has read the events of offsets."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._read: dict[MessageQueue, int] = {}

    async def round(self) -> AsyncIterator[Line]:
        """One look at all groups and brokers."""
        yield _line("beginRound", f"{_PREFIX}{'=' * 41}beginRound")
        groups = [each.removeprefix(RETRY_PREFIX) for each in await self._admin.all_topics() if is_retry_topic(each)]
        asked = await ask_each({group: self._lines_of(group) for group in groups})
        for group in groups:
            for line in asked.answers.get(group, ()):
                yield line
            if group in asked.errors:
                yield _line("silent", f"{_NOTIFY}ConsumerGroup: {group}, {asked.errors[group]}", group=group)
        for line in [*await self._moved(), *await self._brokers()]:
            yield line
        yield _line("endRound", f"{_PREFIX}{'=' * 41}endRound")

    # ------------------------------------------------------------------ groups

    async def _lines_of(self, group: str) -> list[Line]:
        """The lines about one group; none where no member is online, or where it has consumed nothing."""
        try:
            members = await online(self._admin, group)
            found = await progress(self._admin, group)
        except (NotFound, PeerRefused):
            return []
        lines = [await self._undone(group, topic, found) for topic in _topics(found.stats)]
        lines += [
            _line("silent", f"{_NOTIFY}ConsumerGroup: {group}, {broker}: {error}", group=group, broker=broker)
            for broker, error in found.errors.items()
        ]
        asked = await running_infos(self._admin, group, members)
        lines += _members(group, asked.answers)
        lines += [
            _line("silent", f"{_NOTIFY}ConsumerGroup: {group}, ClientId: {member}, {error}", group=group, member=member)
            for member, error in asked.errors.items()
        ]
        return lines

    async def _undone(self, group: str, topic: str, found: Progress) -> Line:
        queues = {queue: offset for queue, offset in found.stats.offset_table.items() if queue.topic == topic}
        lags = [offset.broker_offset - offset.consumer_offset for offset in queues.values()]
        addresses = dict(await self._admin.brokers_of(topic))
        consumed = {
            str(queue): self._last_stored(queue, addresses[queue.broker_name])
            for queue, offset in queues.items()
            if offset.last_timestamp > 0 and queue.broker_name in addresses
        }
        stored = (await ask_each(consumed)).answers
        delays = [
            stored[str(queue)] - offset.last_timestamp for queue, offset in queues.items() if stored.get(str(queue))
        ]
        total, largest, delay = sum(max(0, lag) for lag in lags), max(0, *lags, 0), max(0, *delays, 0)
        complete = not found.errors
        shown = [str(each) if complete else f">= {each} ?" for each in (total, largest, delay)]
        text = (
            f"{_PREFIX}reportUndoneMsgs: UndoneMsgs [consumerGroup={group}, topic={topic}, undoneMsgsTotal={shown[0]}, "
            f"undoneMsgsSingleMQ={shown[1]}, undoneMsgsDelayTimeMills={shown[2]}]"
        )
        return _line(
            "undoneMessages",
            text,
            group=group,
            topic=topic,
            undone=total,
            undone_in_one_queue=largest,
            delay_ms=delay,
            complete=complete,
        )

    async def _last_stored(self, queue: MessageQueue, address: str) -> int:
        """When the last message of a queue was stored; 0 where there is none."""
        end = await offset_at(self._admin, address, queue, END)
        records = (await pull(self._admin, address, queue, end - 1, 1)).records if end > 0 else []
        return records[0].store_timestamp if records else 0

    # ------------------------------------------------------------------ events and brokers

    async def _moved(self) -> list[Line]:
        """The events since the round before, by which brokers say that they corrected an offset."""
        try:
            addresses = dict(await self._admin.brokers_of(OFFSET_MOVED_EVENT))
        except AdminError:
            return []  # no broker has the topic
        queues = {MessageQueue(OFFSET_MOVED_EVENT, broker, 0): address for broker, address in addresses.items()}
        asked = await ask_each({queue.broker_name: self._events(queue, at) for queue, at in queues.items()})
        return [line for broker in sorted(asked.answers) for line in asked.answers[broker]]

    async def _events(self, queue: MessageQueue, address: str) -> list[Line]:
        end = await offset_at(self._admin, address, queue, END)
        at = self._read.setdefault(queue, end)
        lines = []
        while at < end:
            pulled = await pull(self._admin, address, queue, at, 32)
            for record in pulled.records:
                try:
                    event = OffsetMovedEvent.decode(body_of(record))
                except (AdminError, ProtocolError):
                    continue  # anybody may send to the topic
                text = f"DeleteMsgsEvent [offsetMovedEvent={event}, eventTimestamp={record.store_timestamp}]"
                lines.append(
                    _line(
                        "offsetMoved",
                        f"{_PREFIX}reportDeleteMsgsEvent: {text}",
                        group=event.consumer_group,
                        topic=event.message_queue.topic,
                        broker=queue.broker_name,
                    )
                )
            if pulled.next_offset <= at:
                break
            at = pulled.next_offset
        self._read[queue] = max(at, end)
        return lines

    async def _brokers(self) -> list[Line]:
        found = await brokers(self._admin)
        lines = [
            _line("silent", f"{_NOTIFY}Broker: {each.peer}, {each.text}", broker=each.peer) for each in found.errors
        ]
        for each in found.items:
            if each.disk_used is not None and each.disk_used >= DISK_USED:
                text = f"{_NOTIFY}Broker: {each.broker} {each.address}, disk {each.disk_used:.0%} used"
                lines.append(_line("disk", text, broker=each.broker))
        lines += _slaves(found.items)
        return lines


def _slaves(items: list[BrokerLoad]) -> Iterator[Line]:
    ends = {(each.broker, each.broker_id): each.log_end for each in items}
    for each in items:
        master, own = ends.get((each.broker, 0)), each.log_end
        if each.broker_id and master is not None and own is not None and master - own >= BEHIND:
            text = f"{_NOTIFY}Broker: {each.broker} {each.address}, the slave is {master - own} bytes behind its master"
            yield _line("slaveBehind", text, broker=each.broker)


def _line(kind: Kind, text: str, **fields: Any) -> Line:
    return Line(at=Moment.at(_now()), kind=kind, text=text, **fields)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _topics(stats: ConsumeStats) -> list[str]:
    return sorted({queue.topic for queue in stats.offset_table})


# ------------------------------------------------------------------ members


def _members(group: str, infos: Mapping[str, ConsumerRunningInfo]) -> Iterator[Line]:
    now = _now()
    if infos and not same_subscription(infos, now):
        text = f"{_NOTIFY}reportConsumerRunningInfo: ConsumerGroup: {group}, Subscription different"
        yield _line("subscriptionDifferent", text, group=group)
    for member, info in sorted(infos.items()):
        for queue, text in _stuck(info, now):
            head = f"{_NOTIFY}reportConsumerRunningInfo: ConsumerGroup: {group}, ClientId: {member}, "
            line = f"{head}{member} {queue} {text}"
            yield _line("queueStuck", line, group=group, member=member, topic=queue.topic, broker=queue.broker_name)


def same_subscription(infos: Mapping[str, ConsumerRunningInfo], now: int) -> bool:
    """Whether all members have one subscription; a group whose first member started just now passes."""
    first = infos[min(infos)]
    started = int(first.properties.get("PROP_CONSUMER_START_TIMESTAMP") or now)
    if first.properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY" or now - started <= 120_000:
        return True
    wanted = [{(each.topic, each.sub_string) for each in info.subscription_set} for info in infos.values()]
    return bool(wanted[0]) and all(each == wanted[0] for each in wanted)


def _stuck(info: ConsumerRunningInfo, now: int) -> Iterator[tuple[MessageQueue, str]]:
    """The queues of a push consumer that stand still, each with what is wrong there."""
    if info.properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY":
        return
    orderly = info.properties.get("PROP_CONSUMEORDERLY") == "true"
    for queue, held in sorted(info.mq_table.items()):
        text = _stuck_orderly(held, now) if orderly else _stuck_concurrently(held, now)
        if text:
            yield queue, text


def _stuck_orderly(held: ProcessQueueInfo, now: int) -> str:
    if not held.locked:
        return f"can't lock for a while, {now - held.last_lock_timestamp}ms"
    if held.droped and held.try_unlock_times > 0:
        return f"unlock {held.try_unlock_times} times, still failed"
    return ""


def _stuck_concurrently(held: ProcessQueueInfo, now: int) -> str:
    idle = now - held.last_consume_timestamp
    if idle > PATIENCE_MS and held.cached_msg_count > 0:
        return f"can't consume for a while, maybe blocked, {idle}ms"
    return ""
