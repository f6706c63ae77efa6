"""Where a delayed message waits, and which properties are stored with it.

A message waits either in the queue of its delay level or, with a delay of its own, in the timer queue. Pure: time is an
argument. Invariant: REAL_TOPIC and REAL_QID of a waiting message name its destination. Facts: CommitLog.asyncPutMessage
in 4.9.7, HookUtils in 5.3.3.
"""

from __future__ import annotations

from eruca.broker.services.admission import Destination
from eruca.protocol import names
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.message import PROPERTIES_MAX_LENGTH

ROOM = 128
"""Bytes of properties that stay free in a waiting message."""


def at_level(values: dict[str, str], to: Destination, level: int, levels: int) -> Destination:
    """Route a message to the queue of ``level`` (1 or more; a level above ``levels`` counts as the last).

    Writes the stored properties into ``values``. A level wins over a delay of the message's own.
    """
    level = min(level, levels)
    values[names.DELAY] = str(level)
    values[names.REAL_TOPIC] = to.topic
    values[names.REAL_QUEUE_ID] = str(to.queue_id)
    for name in names.TIMER_WISHES:
        values.pop(name, None)
    return Destination(names.SCHEDULE_TOPIC, level - 1, to.sys_flag)


def wished_time(values: dict[str, str], now: int, longest: int) -> int | None:
    """The due time in ms of a message with a delay of its own; None if it has none.

    ``longest`` is the longest allowed delay in ms. Raises Refused(13) if the delay is longer or not a number.
    """
    if names.TIMER_OUT_MS in values:  # it has already waited
        return None
    name = next((name for name in names.TIMER_WISHES if name in values), None)
    if name is None:
        return None
    text = values[name]
    if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20):
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"{name} is {text[:40]!r}; write a whole number")
    number = int(text)
    due = number if name == names.TIMER_DELIVER_MS else now + number * (1000 if name == names.TIMER_DELAY_SEC else 1)
    if due - now > longest:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"{name} {number} delays the message by {due - now} ms, the longest delay is {longest} ms "
            "(timerMaxDelaySec): send it with a shorter delay",
        )
    return due


def until(values: dict[str, str], to: Destination, due: int) -> Destination:
    """Route a message to the timer queue until ``due`` (ms). Writes the stored properties into ``values``.

    Raises Refused(13) if its properties leave no room for those that are added when it moves.
    """
    values[names.TIMER_OUT_MS] = str(due)
    values[names.REAL_TOPIC] = to.topic
    values[names.REAL_QUEUE_ID] = str(to.queue_id)
    for name in (names.TIMER_ORIGIN, names.TIMER_ROLL_TIMES):
        values.pop(name, None)
    if sum(len(name) + len(value.encode()) + 2 for name, value in values.items()) > PROPERTIES_MAX_LENGTH - ROOM:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a message that is delayed may have {PROPERTIES_MAX_LENGTH - ROOM} bytes of properties: send fewer",
        )
    return Destination(names.TIMER_TOPIC, 0, to.sys_flag)
