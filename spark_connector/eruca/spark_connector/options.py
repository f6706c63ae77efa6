"""The options of the source: names, types, defaults, checks.

Owns how the texts that Spark hands over become one typed value, and which combinations make sense. Makes no request:
everything that can be refused without a cluster is refused here, in one sentence.
Names and meanings follow Spark's Kafka source where it has the same thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.offsets.positions import Positions, read_assignment, read_positions
from eruca.spark_connector.option_parsers import duration, flag, group, milliseconds, number, one_of, read_values, text
from eruca.spark_connector.runtime import access

Named = Literal["earliest", "latest", "group"]
NAMED_OFFSETS: Final = ("earliest", "latest", "group")
MOST_PULLS: Final = 1024
"""Requests are sent at once: a task that sends megabytes of them may wait for a broker that waits for it to read."""


@dataclass(frozen=True, kw_only=True)
class Options(access.Access):
    """What one source was asked for; ``None`` means not given. Times are ms since 1970, durations ms."""

    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str | None = None
    assign: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    starting_offsets: Named | Positions = "earliest"
    starting_timestamp: int | None = None
    starting_offsets_by_timestamp: Positions | None = None
    starting_offsets_by_timestamp_strategy: str = "error"
    ending_offsets: Named | Positions = "latest"
    ending_timestamp: int | None = None
    ending_offsets_by_timestamp: Positions | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: int = 15 * 60 * 1000
    min_partitions: int | None = None
    max_partitions: int | None = None
    fail_on_data_loss: bool = True
    tags: str = "*"
    sql_filter: str | None = None
    create_pull_group: bool = False
    commit_group: str | None = None
    commit_interval_ms: int = 1000
    on_group_reset: str = "ignore"
    pull_batch_size: int = 1024
    pull_pipeline: int = 64
    pull_timeout_ms: int = 20_000
    arrow_batch_rows: int = 4096
    latest_offset_cache_ms: int = 200
    pushdown: bool = False

    @property
    def expression(self) -> str:
        """What the broker filters by."""
        return self.sql_filter or self.tags

    @property
    def expression_type(self) -> str:
        """TAG or SQL92."""
        return "SQL92" if self.sql_filter else "TAG"

    @property
    def filtered(self) -> bool:
        """Whether a range may hold fewer messages than offsets."""
        return self.sql_filter is not None or self.tags != "*"


def read_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """The options of a query; ``given`` may spell the names in any case.

    Raises BadOption for an unknown name, a value that cannot be read, and combinations that contradict themselves.
    """
    values = read_values(given, READERS, "source")
    access.check_access(values)
    values.setdefault("starting_offsets", "latest" if streaming else "earliest")
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
    if "group" in (values["starting_offsets"], values.get("ending_offsets")) and "commit_group" not in values:
        raise BadOption('startingOffsets="group" needs the option commitGroup: the group whose offsets are meant.')
    for name, (reader, reason) in _OF_ONE_READER.items():
        if name in values and (reader == "read") is streaming:
            raise BadOption(f"The option {_NAMES[name]} is for spark.{reader}: {reason}.")
    if values.get("create_pull_group") and "pull_group" not in values:
        raise BadOption("createPullGroup needs the option pullGroup: the group that is made.")
    if values.get("on_group_reset") == "fail" and "commit_group" not in values:
        raise BadOption('onGroupReset="fail" needs the option commitGroup: the group that is watched.')
    _check_order(values)


_OF_ONE_READER: Final = {
    "ending_offsets": ("read", "a stream has no end"),
    "ending_timestamp": ("read", "a stream has no end"),
    "ending_offsets_by_timestamp": ("read", "a stream has no end"),
    "pushdown": ("read", "Spark pushes no filters into a stream"),
    "max_offsets_per_trigger": ("readStream", "a batch has no triggers"),
    "min_offsets_per_trigger": ("readStream", "a batch has no triggers"),
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


# ---------------------------------------------------------------------- values


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
    return read_positions(_json(text), least=-2)


def _timestamps(text: str) -> Positions:
    return read_positions(_json(text), least=0)


def _pipeline(text: str) -> int:
    return number(text, most=MOST_PULLS)


def _assignment(text: str) -> dict[str, dict[str, tuple[int, ...]]]:
    return read_assignment(_json(text))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error})") from None


READERS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    **access.READERS,
    "subscribe": ("subscribe", _topics),
    "subscribePattern": ("subscribe_pattern", _pattern),
    "assign": ("assign", _assignment),
    "startingOffsets": ("starting_offsets", _offsets),
    "startingTimestamp": ("starting_timestamp", milliseconds),
    "startingOffsetsByTimestamp": ("starting_offsets_by_timestamp", _timestamps),
    "startingOffsetsByTimestampStrategy": ("starting_offsets_by_timestamp_strategy", one_of("error", "latest")),
    "endingOffsets": ("ending_offsets", _offsets),
    "endingTimestamp": ("ending_timestamp", milliseconds),
    "endingOffsetsByTimestamp": ("ending_offsets_by_timestamp", _timestamps),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", number),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", number),
    "maxTriggerDelay": ("max_trigger_delay", duration),
    "minPartitions": ("min_partitions", number),
    "maxPartitions": ("max_partitions", number),
    "failOnDataLoss": ("fail_on_data_loss", flag),
    "tags": ("tags", text),
    "sqlFilter": ("sql_filter", text),
    "pullGroup": ("pull_group", group),
    "createPullGroup": ("create_pull_group", flag),
    "commitGroup": ("commit_group", group),
    "commitIntervalMs": ("commit_interval_ms", milliseconds),
    "onGroupReset": ("on_group_reset", one_of("ignore", "fail")),
    "pullBatchSize": ("pull_batch_size", number),
    "pullPipeline": ("pull_pipeline", _pipeline),
    "pullTimeoutMs": ("pull_timeout_ms", number),
    "arrowBatchRows": ("arrow_batch_rows", number),
    "latestOffsetCacheMs": ("latest_offset_cache_ms", milliseconds),
    "pushdown": ("pushdown", flag),
}
"""Every option by its public name: the field it fills, and what reads its text."""
_NAMES: Final = {name: option for option, (name, _) in READERS.items()}
