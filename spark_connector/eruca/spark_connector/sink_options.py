"""The options and columns of the sink: names, types, defaults, checks.

Owns what ``df.write`` and ``writeStream`` may be given and which combinations make sense. Makes no request:
whatever can be refused without a cluster is refused here, in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from eruca.protocol.names import NAME_PATTERN, is_legal, topic_fault
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.option_parsers import (
    flag,
    group,
    milliseconds,
    one_of,
    option,
    read_values,
    readers_of,
    size,
    timeout,
    unknown_column,
    whole,
)
from eruca.spark_connector.options import BROKER_LOSS_TIMEOUT_MS, MOST_ROWS
from eruca.spark_connector.runtime import access

AT_LEAST_ONCE: Final = "at-least-once"
TRANSACTIONAL: Final = "transactional"
DELAYS: Final = ("delayLevel", "delayTimeMs", "deliverTimeMs")
"""Columns that put a message off; RocketMQ takes no such message in a batch or a transaction."""
SLOWEST: Final = 0.001
FASTEST: Final = 1_000_000_000
"""Rows a second of a limit that means something."""
MOST_SENDS: Final = 1024
"""Requests of a task in flight; single messages are 64 times as many."""
_SPARKS_OWN: Final = ("checkpointlocation", "queryname")
"""Options of the stream itself, which Spark hands over with the others."""

SINK_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "properties": ("map<string,string>",),
    "shardingKey": ("string", "int", "bigint"),
    "flag": ("int",),
    "delayLevel": ("int",),
    "delayTimeMs": ("bigint", "int"),
    "deliverTimeMs": ("bigint",),
    "queueId": ("int",),
    "brokerName": ("string",),
}
"""Every column that the sink takes, and its types."""
_BY_LOWER: Final = {name.lower(): name for name in SINK_COLUMNS}


# ---------------------------------------------------------------------- values


def _topic(given: str) -> str:
    if fault := topic_fault(given):
        raise ValueError(fault.rstrip("."))
    return given


def _write_id(given: str) -> str:
    if not is_legal(given) or len(given) > 100:
        raise ValueError(f"at most 100 characters of {NAME_PATTERN} are expected")
    return given


def _rate(text: str) -> float:
    value = float(text) if re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", text.lower()) else 0.0
    if not SLOWEST <= value <= FASTEST:
        raise ValueError(f"a number from {SLOWEST} to {FASTEST} is expected")
    return value


# ---------------------------------------------------------------------- options


@dataclass(frozen=True, kw_only=True)
class SinkOptions(access.Access):
    """What one sink was asked for; ``None`` means not given. Durations in ms."""

    topic: str | None = option(_topic, None)
    delivery: str = option(one_of(AT_LEAST_ONCE, TRANSACTIONAL), AT_LEAST_ONCE)
    idempotent: bool = option(flag, True)
    write_id: str | None = option(_write_id, None)
    producer_group: str = option(group, "SPARK_PRODUCER")
    marker_topic: str | None = option(_topic, None)
    send_batch_rows: int = option(whole(1, MOST_ROWS), 1024)
    send_batch_bytes: int = option(size(4 * 1024**2, "4m"), 64 * 1024)
    send_pipeline: int = option(whole(1, MOST_SENDS), 8)
    send_timeout_ms: int = option(timeout, 5000)
    retry_timeout_ms: int = option(milliseconds, 30_000)
    require_send_ok: bool = option(flag, True)
    max_rows_per_second: float | None = option(_rate, None)

    def patience(self, epoch: int) -> float | None:
        """Seconds for which what nameservers do not know is asked for again; None: not at all.

        The first epoch of a write, which finds no topic, has the wrong name; a later one meets a broker that is away.
        """
        return self.retry_timeout_ms / 1000 if epoch else None

    @property
    def transactional(self) -> bool:
        """Whether messages are half messages until the whole write is decided."""
        return self.delivery == TRANSACTIONAL


SINK_READERS: Final = readers_of(SinkOptions)
"""Every option."""


def read_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a sink; ``given`` may spell the names in any case. Raises BadOption."""
    ours = {name: value for name, value in given.items() if name.lower() not in _SPARKS_OWN}
    values = read_values(ours, SINK_READERS, "sink")
    access.check_access(values)
    if streaming:
        values.setdefault("retry_timeout_ms", BROKER_LOSS_TIMEOUT_MS)
    options = SinkOptions(**values)
    if streaming and options.write_id is not None:
        raise BadOption("The option writeId is for df.write: a stream is known by the id in its checkpoint.")
    if options.transactional and options.marker_topic is None:
        raise BadOption(
            'delivery="transactional" needs the option markerTopic: a topic with one queue, '
            "made with mqadmin updateTopic -r 1 -w 1."
        )
    if not options.transactional and options.marker_topic is not None:
        raise BadOption('The option markerTopic is for delivery="transactional": leave it out, or set delivery.')
    if options.transactional and options.write_id is None and not streaming:
        raise BadOption(
            'delivery="transactional" of a df.write needs the option writeId: a name for this write, '
            "the same when it is run again."
        )
    return options


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise BadOption unless the sink can send rows of this schema."""
    for each in schema.fields:
        kinds = SINK_COLUMNS.get(own_name(each.name))
        if kinds is None:
            otherwise = f"it takes {', '.join(SINK_COLUMNS)}; select those."
            raise unknown_column("sink", each.name, SINK_COLUMNS, otherwise)
        if each.dataType.simpleString() not in kinds:
            raise BadOption(
                f"The column {each.name} is of type {each.dataType.simpleString()}, the sink takes "
                f"{' or '.join(kinds)}: cast it."
            )
    names = [own_name(each) for each in schema.names]
    if twice := [name for name in SINK_COLUMNS if names.count(name) > 1]:
        raise BadOption(f"The rows have the column {twice[0]} several times: select it once.")
    _check_combination(names, options)


def own_name(column: str) -> str:
    """How the sink calls a column: as in Spark, names do not mind case. One that it does not know stays as it is."""
    return _BY_LOWER.get(column.lower(), column)


def _check_combination(names: Collection[str], options: SinkOptions) -> None:
    if "body" not in names:
        raise BadOption("The rows have no column body: select what is to be sent AS body, binary or string.")
    if options.topic is None and "topic" not in names:
        raise BadOption('Where to send is missing: give the option topic="orders", or a column topic.')
    delays = [name for name in DELAYS if name in names]
    if len(delays) > 1:
        raise BadOption(f"Give one of the columns {', '.join(delays)}, not {len(delays)} of them.")
    if delays and options.transactional:
        raise BadOption(
            f'A message in a transaction cannot be delayed: drop the column {delays[0]}, or delivery="transactional".'
        )
    if "brokerName" in names and "queueId" not in names:
        raise BadOption("The column brokerName needs the column queueId: together they name a queue.")
    if "queueId" in names and "shardingKey" in names:
        raise BadOption("Give the column shardingKey or queueId, not both: each of them chooses the queue.")
