"""The options of the source: names, types, defaults, checks.

Owns how the texts that Spark hands over become one typed value, and which combinations make sense. Makes no request:
everything that can be refused without a cluster is refused here, in one sentence.
Names and meanings follow Spark's Kafka source where it has the same thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from eruca.client.moments import moment
from eruca.protocol import names
from eruca.protocol.compression import MAX_BODY
from eruca.protocol.subscription import build_subscription, check_tags
from eruca.remoting.clock import now_ms
from eruca.spark_connector.errors import BadOption, SourceError
from eruca.spark_connector.offsets.positions import Positions, StreamOffset, named, read_assignment, read_positions
from eruca.spark_connector.option_parsers import (
    INT,
    LONG,
    count,
    duration,
    flag,
    group,
    milliseconds,
    one_of,
    option,
    read_values,
    readers_of,
    size,
    text,
    timeout,
    timestamp,
    whole,
)
from eruca.spark_connector.runtime import access

Named = Literal["earliest", "latest", "group"]
NAMED_OFFSETS: Final = ("earliest", "latest", "group")
MOST_PULLS: Final = 1024
"""Requests are sent at once: a task that sends megabytes of them may wait for a broker that waits for it to read."""
MOST_MESSAGES: Final = 65_536
"""Of one pull. Apache's broker (4.9.7) makes room for all of them before it looks how many there are: 50 million are an
OutOfMemoryError there."""
MOST_ROWS: Final = 1_000_000
"""Handed to Spark at once, or sent in one request: what is decoded or encoded together stays in memory."""
MOST_PARTITIONS: Final = 100_000
"""Of a plan: Spark's driver holds a task for each, which costs it more than the rows then."""
BROKER_LOSS_TIMEOUT_MS: Final = 600_000
"""For which a broker may be away while a stream runs."""


# ---------------------------------------------------------------------- values

_partitions: Final = whole(1, MOST_PARTITIONS)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not topics:
        raise ValueError("names of topics joined by commas are expected")
    return topics


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression ({error})") from None
    return text


def _offsets(text: str) -> str | Positions:
    if text.lower() in NAMED_OFFSETS:
        return text.lower()
    if not text.startswith("{"):
        raise ValueError('earliest, latest, group or {"topic": {"broker": {"queue": offset}}} is expected')
    value = _json(text)
    try:
        return read_positions(value, least=-2, rest=True)
    except ValueError:
        if _is_of_a_checkpoint(value):
            raise ValueError('it is an offset of a stream: give what stands under "queues" in it') from None
        raise


def _is_of_a_checkpoint(value: Any) -> bool:
    try:
        return StreamOffset.from_json(value) is not None
    except SourceError:
        return False


def _tags(given: str) -> str:
    check_tags(given)
    build_subscription("", given, version=0)
    return given


def _timestamp(given: str) -> int:
    return moment(timestamp(given, now_ms()))


def _timestamps(text: str) -> Positions:
    positions = read_positions(_in_ms(_json(text), now_ms()), least=0, rest=True)
    for time in positions.values():
        moment(time)
    return positions


def _in_ms(value: Any, now: int) -> Any:
    """The same with ms in place of times as people write them."""
    if isinstance(value, dict):
        return {name: _in_ms(each, now) for name, each in value.items()}
    return timestamp(value, now) if isinstance(value, str) else value


def _assignment(text: str) -> dict[str, dict[str, tuple[int, ...]]]:
    if not text.startswith("{"):
        raise ValueError('{"topic": {"broker": [0, 1]}} is expected; subscribe reads whole topics')
    return read_assignment(_json(text))


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are each there once; of two, JSON takes the last without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" is named twice')
    return found


# ---------------------------------------------------------------------- options


@dataclass(frozen=True, kw_only=True)
class Options(access.Access):
    """What one source was asked for; ``None`` means not given. Times are ms since 1970, durations ms."""

    pull_group: str = option(group, names.TOOLS_GROUP)
    subscribe: tuple[str, ...] = option(_topics, ())
    subscribe_pattern: str | None = option(_pattern, None)
    assign: Mapping[str, Mapping[str, tuple[int, ...]]] | None = option(_assignment, None)
    starting_offsets: Named | Positions = option(_offsets, "earliest")
    starting_timestamp: int | None = option(_timestamp, None)
    starting_offsets_by_timestamp: Positions | None = option(_timestamps, None)
    starting_offsets_by_timestamp_strategy: str = option(one_of("error", "latest"), "error")
    ending_offsets: Named | Positions = option(_offsets, "latest")
    ending_timestamp: int | None = option(_timestamp, None)
    ending_offsets_by_timestamp: Positions | None = option(_timestamps, None)
    max_offsets_per_trigger: int | None = option(count, None)
    min_offsets_per_trigger: int | None = option(count, None)
    max_bytes_per_trigger: int | None = option(size(LONG, str(LONG)), None)
    max_trigger_delay: int = option(duration, 15 * 60 * 1000)
    min_partitions: int | None = option(_partitions, None)
    max_partitions: int | None = option(_partitions, None)
    max_records_per_partition: int | None = option(count, None)
    fail_on_data_loss: bool = option(flag, True)
    broker_loss_timeout_ms: int | None = option(milliseconds, None)
    tags: str = option(_tags, "*")
    sql_filter: str | None = option(text, None)
    create_pull_group: bool = option(flag, False)
    commit_group: str | None = option(group, None)
    commit_interval_ms: int = option(milliseconds, 1000)
    on_group_reset: str = option(one_of("ignore", "fail"), "ignore")
    pull_batch_size: int = option(whole(1, MOST_MESSAGES), 1024)
    pull_pipeline: int = option(whole(1, MOST_PULLS), 64)
    pull_timeout_ms: int = option(timeout, 20_000)
    arrow_batch_rows: int = option(whole(1, MOST_ROWS), 4096)
    max_body: int = option(size(INT, str(INT)), MAX_BODY)
    latest_offset_cache_ms: int = option(milliseconds, 200)

    @property
    def broker_loss_timeout(self) -> float | None:
        """Seconds for which a broker may be away; None: as long as some retries take."""
        return None if self.broker_loss_timeout_ms is None else self.broker_loss_timeout_ms / 1000

    @property
    def expression(self) -> str:
        """What the broker filters by."""
        return self.sql_filter or self.tags

    @property
    def expression_type(self) -> str:
        """TAG or SQL92."""
        return "SQL92" if self.sql_filter else "TAG"

    @property
    def broker_filter(self) -> str:
        """The filter for a reader of a plan; empty where all messages pass."""
        return f"{'sqlFilter' if self.sql_filter else 'tags'}={self.expression}" if self.filtered else ""

    @property
    def filtered(self) -> bool:
        """Whether a range may hold fewer messages than offsets."""
        return self.sql_filter is not None or self.tags != "*"


READERS: Final = readers_of(Options)
"""Every option."""
_NAMES: Final = {name: option for option, (name, _) in READERS.items()}


def read_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """The options of a query; ``given`` may spell the names in any case.

    Raises BadOption for an unknown name, a value that cannot be read, and combinations that contradict themselves.
    """
    values = read_values(given, READERS, "source")
    access.check_access(values)
    values.setdefault("starting_offsets", "latest" if streaming else "earliest")
    if streaming:
        values.setdefault("broker_loss_timeout_ms", BROKER_LOSS_TIMEOUT_MS)
    _check(values, streaming)
    return Options(**values)


def _check(values: dict[str, Any], streaming: bool) -> None:
    chosen = [each for each in ("subscribe", "subscribe_pattern", "assign") if each in values]
    if len(chosen) != 1:
        raise BadOption(
            f"Give one of the options subscribe, subscribePattern and assign, not {len(chosen)} of them: "
            'subscribe="topicA,topicB" reads whole topics.'
        )
    if "tags" in values and "sql_filter" in values:
        raise BadOption("Give tags or sqlFilter, not both: a broker filters by one of them.")
    for name in ("starting_offsets", "ending_offsets"):
        if values.get(name) == "group" and "commit_group" not in values:
            raise BadOption(f'{_NAMES[name]}="group" needs the option commitGroup: the group whose offsets are meant.')
    for name, (reader, reason) in _OF_ONE_READER.items():
        if name in values and (reader == "read") is streaming:
            raise BadOption(f"The option {_NAMES[name]} is for spark.{reader}: {reason}.")
    if "max_partitions" in values and "max_records_per_partition" in values:
        raise BadOption(
            "Give maxPartitions or maxRecordsPerPartition, not both: one limits the tasks, the other adds some."
        )
    if values.get("create_pull_group") and "pull_group" not in values:
        raise BadOption("createPullGroup needs the option pullGroup: the group that is made.")
    if values.get("on_group_reset") == "fail" and "commit_group" not in values:
        raise BadOption('onGroupReset="fail" needs the option commitGroup: the group that is watched.')
    _check_order(values)


_OF_ONE_READER: Final = {
    "ending_offsets": ("read", "a stream has no end"),
    "ending_timestamp": ("read", "a stream has no end"),
    "ending_offsets_by_timestamp": ("read", "a stream has no end"),
    "max_offsets_per_trigger": ("readStream", "a batch has no triggers"),
    "min_offsets_per_trigger": ("readStream", "a batch has no triggers"),
    "max_bytes_per_trigger": ("readStream", "a batch has no triggers"),
    "max_trigger_delay": ("readStream", "a batch has no triggers"),
    "on_group_reset": ("readStream", "a batch has no triggers"),
}
"""Options of one kind of query: the reader that takes them, and why the other does not."""


def _check_order(values: dict[str, Any]) -> None:
    for low, high in (
        ("starting_timestamp", "ending_timestamp"),
        ("min_partitions", "max_partitions"),
        ("min_offsets_per_trigger", "max_offsets_per_trigger"),
    ):
        if low in values and high in values and values[low] > values[high]:
            raise BadOption(
                f"{_NAMES[low]}={values[low]} is above {_NAMES[high]}={values[high]}: exchange or correct them."
            )
    for start, end in _ENDS:
        if start in values or end in values:
            _check_queues(start, values.get(start), end, values.get(end))
            return


_ENDS: Final = (
    ("starting_timestamp", "ending_timestamp"),
    ("starting_offsets_by_timestamp", "ending_offsets_by_timestamp"),
    ("starting_offsets", "ending_offsets"),
)
"""The options about the two ends of a query, in the order in which they count; an offset and a time do not compare."""


def _check_queues(start: str, starts: object, end: str, ends: object) -> None:
    """Raise BadOption where both ends of a queue are named, and are in the wrong order."""
    if not isinstance(starts, Mapping) or not isinstance(ends, Mapping):
        return
    for queue in sorted(starts.keys() & ends.keys()):
        if 0 <= ends[queue] < starts[queue]:
            raise BadOption(
                f"{_NAMES[start]} names {starts[queue]} for {named(queue)}, which is above {ends[queue]} in "
                f"{_NAMES[end]}: exchange or correct them."
            )
