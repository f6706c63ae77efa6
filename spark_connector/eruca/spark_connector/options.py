"""The options of the source: names, types, defaults, checks.

Owns how the texts that Spark hands over become one typed value, and which combinations make sense. Asks nobody:
everything that can be refused without a cluster is refused here, in one sentence.
Names and meanings follow Spark's Kafka source where it has the same thing.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from eruca.protocol.names import group_fault
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.positions import Positions, read_assignment, read_positions

Named = Literal["earliest", "latest", "group"]
NAMED_OFFSETS: Final = ("earliest", "latest", "group")
STRATEGIES: Final = ("error", "latest")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What one source was asked for; ``None`` means not given. Times are ms since 1970, durations ms."""

    name_server: str
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
    commit_group: str | None = None
    commit_interval_ms: int = 1000
    pull_batch_size: int = 1024
    pull_pipeline: int = 16
    pull_timeout_ms: int = 20_000
    arrow_batch_rows: int = 4096
    latest_offset_cache_ms: int = 200

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
    values: dict[str, Any] = {}
    for name, text in given.items():
        known = _BY_LOWER.get(name.lower())
        if known is None:
            raise BadOption(_unknown(name))
        option, field_name, read = known
        if text is None or not text.strip():
            raise BadOption(f"The option {option} is empty: give it a value or leave it out.")
        try:
            values[field_name] = read(text.strip())
        except ValueError as error:
            raise BadOption(f'The option {option}="{text}" cannot be read: {error}.') from None
    values.setdefault("starting_offsets", "latest" if streaming else "earliest")
    _check(values, streaming)
    return Options(**values)


def _check(values: dict[str, Any], streaming: bool) -> None:
    if "name_server" not in values:
        raise BadOption('The option nameServer is missing: give "host:9876", several joined by ";".')
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
    if streaming:
        for name in ("ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp"):
            if name in values:
                raise BadOption(f"The option {_NAMES[name]} is for spark.read: a stream has no end.")
    else:
        for name in ("max_offsets_per_trigger", "min_offsets_per_trigger", "max_trigger_delay"):
            if name in values:
                raise BadOption(f"The option {_NAMES[name]} is for spark.readStream: a batch has no triggers.")
    _check_order(values)


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


def _unknown(name: str) -> str:
    nearest = difflib.get_close_matches(name.lower(), _BY_LOWER, n=1, cutoff=0.5)
    hint = (
        f"did you mean {_BY_LOWER[nearest[0]][0]}?" if nearest else f"there are {', '.join(sorted(_NAMES.values()))}."
    )
    return f"The rocketmq source has no option {name}: {hint}"


# ---------------------------------------------------------------------- values


def _text(text: str) -> str:
    return text


def _number(text: str, least: int = 1) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("a whole number is expected") from None
    if value < least:
        raise ValueError(f"{least} or more is expected")
    return value


def _milliseconds(text: str) -> int:
    return _number(text, 0)


_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    unit = _UNITS.get(match[2] or "ms") if match else None
    if match is None or unit is None:
        raise ValueError("a number with ms, s, m, h or d is expected, such as 15m")
    return int(match[1]) * unit


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is expected")
    return text.lower() == "true"


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


def _group(text: str) -> str:
    if fault := group_fault(text):
        raise ValueError(fault.rstrip("."))
    return text


def _offsets(text: str) -> str | Positions:
    if text.lower() in NAMED_OFFSETS:
        return text.lower()
    if not text.startswith("{"):
        raise ValueError('earliest, latest, group or {"topic": {"broker": {"queue": offset}}} is expected')
    return read_positions(_json(text), least=-2)


def _timestamps(text: str) -> Positions:
    return read_positions(_json(text), least=0)


def _strategy(text: str) -> str:
    if text.lower() not in STRATEGIES:
        raise ValueError("error or latest is expected")
    return text.lower()


def _assignment(text: str) -> dict[str, dict[str, tuple[int, ...]]]:
    return read_assignment(_json(text))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error})") from None


READERS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "nameServer": ("name_server", _text),
    "subscribe": ("subscribe", _topics),
    "subscribePattern": ("subscribe_pattern", _pattern),
    "assign": ("assign", _assignment),
    "startingOffsets": ("starting_offsets", _offsets),
    "startingTimestamp": ("starting_timestamp", _milliseconds),
    "startingOffsetsByTimestamp": ("starting_offsets_by_timestamp", _timestamps),
    "startingOffsetsByTimestampStrategy": ("starting_offsets_by_timestamp_strategy", _strategy),
    "endingOffsets": ("ending_offsets", _offsets),
    "endingTimestamp": ("ending_timestamp", _milliseconds),
    "endingOffsetsByTimestamp": ("ending_offsets_by_timestamp", _timestamps),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _number),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", _number),
    "maxTriggerDelay": ("max_trigger_delay", _duration),
    "minPartitions": ("min_partitions", _number),
    "maxPartitions": ("max_partitions", _number),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "tags": ("tags", _text),
    "sqlFilter": ("sql_filter", _text),
    "commitGroup": ("commit_group", _group),
    "commitIntervalMs": ("commit_interval_ms", _milliseconds),
    "pullBatchSize": ("pull_batch_size", _number),
    "pullPipeline": ("pull_pipeline", _number),
    "pullTimeoutMs": ("pull_timeout_ms", _number),
    "arrowBatchRows": ("arrow_batch_rows", _number),
    "latestOffsetCacheMs": ("latest_offset_cache_ms", _milliseconds),
}
"""Every option by its public name: the field it fills, and what reads its text."""
_BY_LOWER: Final = {option.lower(): (option, name, read) for option, (name, read) in READERS.items()}
_NAMES: Final = {name: option for option, (name, _) in READERS.items()}
