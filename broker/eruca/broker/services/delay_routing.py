"""What is stored of a message that shall come later, and where it waits until then.

Owns the two ways to wait: the queue of a delay level, or the queue of those with a delay of their own. Pure: time is an
argument. Invariant: a waiting message names, in REAL_TOPIC and REAL_QID, where it goes. Facts: CommitLog in 4.9.7,
HookUtils in 5.3.3.
"""

from __future__ import annotations

from eruca.broker.services.admission import Destination
from eruca.protocol import names
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.message import PROPERTIES_MAX_LENGTH

ROOM = 128
"""Bytes of properties that a waiting message leaves free."""


def at_level(values: dict[str, str], to: Destination, level: int, levels: int) -> Destination:
    """Let a message wait for ``level`` (above 0; above ``levels``, the last one); ``values`` gets what is stored.

    A delay of its own does not count beside a level.
    """
    level = min(level, levels)
    values[names.DELAY] = str(level)
    values[names.REAL_TOPIC] = to.topic
    values[names.REAL_QUEUE_ID] = str(to.queue_id)
    for name in names.TIMER_WISHES:
        values.pop(name, None)
    return Destination(names.SCHEDULE_TOPIC, level - 1, to.sys_flag)


def wished_time(values: dict[str, str], now: int, longest: int) -> int | None:
    """When a message with these properties shall come by a delay of its own (ms); None where it asks for none.

    ``longest`` is the longest delay in ms. Raises Refused(13) for one that is longer or no number.
    """
    if names.TIMER_OUT_MS in values:  # it has waited already
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
    """Let a message wait for the time ``due`` (ms); ``values`` gets what is stored.

    Raises Refused(13) for properties that leave no room for what is noted when it moves.
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
