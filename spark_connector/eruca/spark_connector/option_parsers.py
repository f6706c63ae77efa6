"""Texts of options, read: numbers, durations, flags, names, and the sentence for what cannot be read.

Owns what the options of source and sink have in common. An option is one field of a dataclass, made by ``option``: its
name, its default, and what reads its text. Spark hands every option over as a text, its name in any case. A reader
raises ValueError with half a sentence; ``read_values`` makes a whole one of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, field, fields
from datetime import UTC
from typing import Any, Final

from eruca.protocol.names import group_fault
from eruca.protocol.times import FORMS, parse_time
from eruca.spark_connector.errors import BadOption

Readers = Mapping[str, tuple[str, Callable[[str], Any]]]
"""Options by their public name: the field that each fills, and what reads its text."""
_READ: Final = "read"


def option(read: Callable[[str], Any], default: Any = MISSING, *, secret: bool = False) -> Any:
    """The field of an option, which ``read`` fills; required without a default. No ``repr`` shows a secret."""
    return field(default=default, repr=not secret, metadata={_READ: read})


def readers_of(options: type) -> Readers:
    """The options of a dataclass; their public names are those of the fields in camel case."""
    return {
        re.sub(r"_(.)", lambda match: match[1].upper(), each.name): (each.name, each.metadata[_READ])
        for each in fields(options)
        if _READ in each.metadata
    }


def read_values(given: Mapping[str, str], readers: Readers, side: str) -> dict[str, Any]:
    """The values that were given, by field; ``side`` is "source" or "sink".

    Raises BadOption for an unknown name, an empty value, and one that cannot be read.
    """
    by_lower = {public.lower(): (public, to, read) for public, (to, read) in readers.items()}
    values: dict[str, Any] = {}
    for name, given_text in given.items():
        known = by_lower.get(name.lower())
        if known is None:
            hint = _hint(name, list(readers), f"there are {', '.join(sorted(readers))}.", cutoff=0.5)
            raise BadOption(f"The rocketmq {side} has no option {name}: {hint}")
        name, to, read = known
        if given_text is None or not given_text.strip():
            raise BadOption(f"The option {name} is empty: give it a value or leave it out.")
        try:
            values[to] = read(given_text.strip())
        except ValueError as error:
            reason = str(error).rstrip(".")
            raise BadOption(f'The option {name}="{given_text}" cannot be read: {reason}.') from None
    if "name_server" not in values:
        raise BadOption(
            'The option nameServer is missing: give "host:9876", several joined by ";". Spark does not hand over the '
            f"OPTIONS of a CREATE TABLE: name them in the query, {_IN_SQL[side]}."
        )
    return values


_IN_SQL: Final = {
    "source": "FROM orders WITH (nameServer='…', subscribe='…'), or CREATE TEMPORARY VIEW … USING rocketmq OPTIONS (…)",
    "sink": "INSERT INTO orders WITH (nameServer='…', topic='…')",
}
"""Where a statement of SQL has the options."""


def unknown_column(side: str, name: str, columns: Collection[str], otherwise: str) -> BadOption:
    """The error of a column that ``side``, "source" or "sink", does not have; ``otherwise`` where none is similar."""
    return BadOption(f"The rocketmq {side} has no column {name}: {_hint(name, columns, otherwise)}")


_IN_KAFKA: Final = {
    "kafka.bootstrap.servers": ("nameServer",),
    "kafka.group.id": ("pullGroup",),
    "groupidprefix": ("pullGroup",),
    "kafka.max.poll.records": ("pullBatchSize",),
    "kafka.request.timeout.ms": ("pullTimeoutMs", "sendTimeoutMs"),
    "kafkaconsumer.polltimeoutms": ("pullTimeoutMs",),
    "kafka.client.id": ("pullGroup", "producerGroup"),
    "kafka.batch.size": ("sendBatchBytes",),
    "kafka.delivery.timeout.ms": ("retryTimeoutMs",),
    "kafka.sasl.jaas.config": ("accessKey",),
    "path": ("subscribe", "topic"),
    "paths": ("subscribe", "topic"),
    "topic": ("subscribe",),
    "topics": ("subscribe", "topic"),
    "topicpattern": ("subscribePattern",),
    "subscribe": ("topic",),
    "value": ("body",),
    "key": ("keys",),
    "partition": ("queueId",),
    "offset": ("queueOffset",),
    "timestamp": ("storeTimestamp",),
    "headers": ("properties",),
}
"""Options and columns of Spark's Kafka source and sink, and what is the same thing here: the first that there is.

Facts: the page "Structured Streaming + Kafka Integration Guide" of Spark.
"""
_NEEDS_NO_OPTION: Final = {
    "includeheaders": "the column properties is there without one",
    "fetchoffset.numretries": "brokers that are away are asked again for half a minute",
    "fetchoffset.retryintervalms": "brokers that are away are asked again for half a minute",
    "kafka.isolation.level": "messages of a transaction are read when it is committed",
    "kafka.enable.idempotence": "idempotent=true is the default of the sink",
    "kafka.acks": "a message is sent when its broker has stored it",
    "kafka.compression.type": "the client compresses bodies that are long enough",
    "kafka.auto.offset.reset": "startingOffsets says where a query begins",
    "kafka.enable.auto.commit": "the checkpoint holds the offsets; commitGroup shows them to tools",
    "kafka.key.deserializer": "bodies are binary: cast them",
    "kafka.value.deserializer": "bodies are binary: cast them",
    "kafka.key.serializer": "bodies are binary or string: cast them",
    "kafka.value.serializer": "bodies are binary or string: cast them",
    "kafka.security.protocol": "tls=true is TLS, accessKey and secretKey are an account",
    "pushdown": "Spark 4.3 applies what one query of a frame pushes to all its queries; use tags, sqlFilter, assign, "
    "startingTimestamp and endingTimestamp",
}
"""Options that there are not, and why: those of Kafka, and pushdown of Spark's filters."""


def _hint(name: str, known: Collection[str], otherwise: str, *, cutoff: float = 0.6) -> str:
    """Which of the known names was meant; ``otherwise`` where none is similar."""
    lower = name.lower()
    if lower in _NEEDS_NO_OPTION:
        return f"leave it out, {_NEEDS_NO_OPTION[lower]}."
    by_lower = {each.lower(): each for each in known}
    in_kafka = [each for each in _IN_KAFKA.get(lower, ()) if each in known]
    if in_kafka:
        return f"did you mean {in_kafka[0]}?"
    if lower.startswith("kafka."):
        return f"settings of Kafka's clients have no meaning here; {otherwise}"
    nearest = difflib.get_close_matches(lower, by_lower, n=1, cutoff=cutoff)
    return f"did you mean {by_lower[nearest[0]]}?" if nearest else otherwise


def text(given: str) -> str:
    """Any text."""
    return given


INT: Final = 2**31 - 1
LONG: Final = 2**63 - 1
"""The largest numbers of Spark and of brokers."""


def whole(least: int, most: int) -> Callable[[str], int]:
    """What reads a whole number from ``least`` to ``most``."""

    def read(given: str) -> int:
        value = int(given) if re.fullmatch(r"[+-]?[0-9]{1,40}", given) else None
        if value is None or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most} is expected")
        return value

    return read


count: Final = whole(1, LONG)
"""A number of messages."""
milliseconds: Final = whole(0, INT)
"""A duration in milliseconds, at most some weeks, which clocks can add up."""
timeout: Final = whole(1, INT)
"""The same for one request."""

_SIZES: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def size(most: int, written: str) -> Callable[[str], int]:
    """What reads a number of bytes such as 64k, from 1 to ``most``, which is ``written`` so."""

    def read(given: str) -> int:
        match = re.fullmatch(r"([0-9]{1,40})\s*([kmg]?)b?", given.lower())
        value = int(match[1]) * _SIZES[match[2]] if match else 0
        if not 1 <= value <= most:
            raise ValueError(f"a number of bytes from 1 to {written} is expected, such as 64k")
        return value

    return read


_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST: Final = 36_500
"""Days of a duration: who gives more has mistaken the unit."""


def duration(given: str) -> int:
    """A duration such as 15m, in milliseconds."""
    match = re.fullmatch(r"([0-9]{1,40})\s*([a-z]*)", given.lower())
    unit = _UNITS.get(match[2] or "ms") if match else None
    if match is None or unit is None or int(match[1]) * unit > _LONGEST * _UNITS["d"]:
        raise ValueError(f"a number with ms, s, m, h or d is expected, such as 15m, from 0 to {_LONGEST}d")
    return int(match[1]) * unit


def timestamp(given: str, now: int) -> int:
    """A point of time in ms since 1970, as mqadmin reads it, or a duration back from ``now``; UTC without a zone."""
    if re.fullmatch("[0-9]{1,40}", given):
        return int(given)
    try:
        return parse_time(given, now, UTC)
    except ValueError as error:
        try:
            return now - duration(given)
        except ValueError:
            raise ValueError(str(error).replace(FORMS, f"{FORMS}, or 2h")) from None


def flag(given: str) -> bool:
    """true or false."""
    if given.lower() not in ("true", "false"):
        raise ValueError("true or false is expected")
    return given.lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """What reads one of these words, in any case."""

    def read(given: str) -> str:
        if given.lower() not in words:
            raise ValueError(f"{' or '.join(words)} is expected")
        return given.lower()

    return read


def group(given: str) -> str:
    """The name of a group."""
    if fault := group_fault(given):
        raise ValueError(fault.rstrip("."))
    return given
