"""Checks of arguments and options: each wrong value raises an error of one sentence, before anything is sent.

Owns the checks that several clients share, except those of names and settings, which are in ``config``. Checks of
arguments raise UsageError, those of options BadConfig, which is one. Offsets count messages, times of messages are ms
since 1970, waits are seconds. Whole numbers may be of any type that is an index, such as numpy's; 1.5 and True are not.
Pure.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from numbers import Real
from os import PathLike
from types import UnionType
from typing import Any, cast

from eruca.client.errors import BadConfig, UsageError
from eruca.client.moments import moment
from eruca.protocol.queues import MessageQueue

MAX_INT = 2**31 - 1
"""The largest value of RocketMQ's options, which are Java's ints; brokers refuse requests with more."""


def check_kind(name: str, value: object, kind: type | UnionType, expected: str) -> None:
    """Raise UsageError unless ``value``, named ``name`` in the sentence, is of this kind: ``expected`` in words."""
    if not isinstance(value, kind):
        raise UsageError(f"{name} is of type {type(value).__name__}: {expected} is expected.")


def check_queue(queue: object) -> None:
    """Raise UsageError unless ``queue`` is a MessageQueue of two texts and a whole number."""
    if not isinstance(queue, MessageQueue):
        raise UsageError(f"queue is of type {type(queue).__name__}: a MessageQueue is expected.")
    texts = isinstance(queue.topic, str) and isinstance(queue.broker_name, str)
    if not texts or not _is_whole(queue.queue_id, None):
        raise UsageError(f'queue={queue!r}: a queue such as MessageQueue("Orders", "broker-a", 0) is expected.')


def check_queues(queues: object) -> list[MessageQueue]:
    """The queues. Raises UsageError for what is no list, or another collection, of queues."""
    kind = Iterable if not isinstance(queues, str) else MessageQueue
    check_kind("queues", queues, kind, "a list of MessageQueues")
    return _queues_of("queues", cast(Iterable[object], queues))


def check_offsets(offsets: object) -> dict[MessageQueue, int]:
    """The offsets by queue. Raises UsageError."""
    check_kind("offsets", offsets, Mapping, "a mapping of MessageQueues to offsets")
    given = cast(Mapping[MessageQueue, object], offsets)
    return {queue: check_offset(given[queue]) for queue in _queues_of("offsets", given)}


def check_offset(offset: object) -> int:
    """The offset, 0 or more. Raises UsageError."""
    return check_number("offset", offset, 0)


def check_number(name: str, value: object, least: int) -> int:
    """The whole number, ``least`` or more. Raises UsageError."""
    if not _is_whole(value, least):
        raise UsageError(f"{name}={value!r}: a whole number of {least} or more is expected.")
    return operator.index(value)  # type: ignore[arg-type]


def check_time(name: str, value: object) -> int:
    """Ms since 1970 of them or a datetime; one without a time zone is local time. Raises UsageError."""
    try:
        return moment(value)
    except ValueError as error:
        raise UsageError(f"{name}={value!r}: {error}.") from None


def check_wait(name: str, seconds: float) -> float:
    """The time to wait. Raises UsageError for what is no number, or negative."""
    if not isinstance(seconds, Real) or seconds != seconds:
        raise UsageError(f"{name}={seconds!r}: a number of seconds is expected.")
    if seconds < 0:
        raise UsageError("Timeout must not be negative")
    return seconds


def check_least(least: int, **options: float) -> None:
    """Raise BadConfig for an option, given by its name, that is no whole number of ``least`` to ``MAX_INT``."""
    for name, value in options.items():
        if not _is_whole(value, least):
            raise BadConfig(f"{name}={value!r} is not allowed: a whole number of {least} or more is expected")
        if operator.index(value) > MAX_INT:  # type: ignore[arg-type]
            raise BadConfig(f"{name}={value!r} is not allowed: {MAX_INT} at most is expected")


def check_flags(**options: object) -> None:
    """Raise BadConfig for an option, given by its name, that is neither True nor False: ``"false"`` is true."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise BadConfig(f"{name}={value!r} is not allowed: True or False is expected")


def check_seconds(least: float, **options: float) -> None:
    """Raise BadConfig for an option, given by its name, that is no time of ``least`` or more seconds."""
    for name, value in options.items():
        if not isinstance(value, Real) or not value >= least:
            raise BadConfig(f"{name}={value!r} is not allowed: {least:g} or more seconds are expected")


def check_sharing(strategy: object, offset_folder: object, *, broadcast: bool) -> None:
    """Raise UsageError for a strategy that cannot be called, and BadConfig for the others if they are wrong."""
    check_flags(broadcast=broadcast)
    if not callable(strategy):
        raise UsageError(f"strategy is of type {type(strategy).__name__}: a function is expected.")
    if not isinstance(offset_folder, str | PathLike | None):
        raise BadConfig(f"offset_folder is of type {type(offset_folder).__name__}: a path is expected")
    if offset_folder is not None and not broadcast:
        raise BadConfig("offset_folder is for broadcasting consumers: add broadcast=True")


def _queues_of(name: str, queues: Iterable[object]) -> list[MessageQueue]:
    chosen = list(queues)
    for queue in chosen:
        if not isinstance(queue, MessageQueue):
            raise UsageError(
                f"{name} contains a value of type {type(queue).__name__}: only MessageQueues are expected."
            )
        check_queue(queue)
    return cast(list[MessageQueue], chosen)


def _is_whole(value: Any, least: int | None) -> bool:
    try:
        number = operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool) and (least is None or number >= least)
