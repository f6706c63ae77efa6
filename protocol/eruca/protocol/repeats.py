"""Quick reading of sends and pulls in the ROCKETMQ serialization, by what repeats from one to the next.

A consumer's pulls of a queue differ in their offsets; the rest is remembered as it was read whole once. A producer's
sends differ in their born timestamp, flag and properties; what stands before (group, topic, queue …) and after is one
of few byte strings. Each of those is parsed once, by the ordinary parser, and remembered. Answers None for any header
that is not laid out the way Java writes it; the ordinary parser then has the word.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Final

from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import from_fields, read_binary_fields
from eruca.protocol.headers.pull import PullMessage
from eruca.protocol.headers.send import SendMessageV2

_BORN: Final = b"\0\1g\0\0\0\x0d"  # the field g, with 13 digits of ms
_FLAG: Final = b"\0\1h\0\0\0"
_PROPERTIES: Final = b"\0\1i"
_QUEUE_OFFSET: Final = b"\0\x0bqueueOffset\0\0\0"
_COMMIT_OFFSET: Final = b"\0\x0ccommitOffset\0\0\0"
_BEFORE: Final = frozenset("abcdef")
_AFTER: Final = frozenset("jklmn")
_REMEMBERED: Final = 4096

_before: dict[bytes, dict[str, Any]] = {}
_after: dict[bytes, dict[str, Any]] = {}
_pulls: dict[tuple[bytes, bytes, bytes], PullMessage] = {}


def read_send(fields: bytes) -> SendMessageV2 | None:
    """The fields of a 310, 320 or 325, or None when they have to be read the ordinary way."""
    born_at = fields.find(_BORN)
    flag_at = born_at + 20
    if born_at < 0 or fields[flag_at : flag_at + 6] != _FLAG:
        return None
    properties_at = flag_at + 7 + fields[flag_at + 6]
    if fields[properties_at : properties_at + 3] != _PROPERTIES:
        return None
    text_at = properties_at + 7
    tail_at = text_at + int.from_bytes(fields[properties_at + 3 : text_at], "big")
    born, flag = fields[born_at + 7 : flag_at], fields[flag_at + 7 : properties_at]
    if not born.isdigit() or not flag.isdigit() or len(flag) > 9 or tail_at > len(fields):
        return None
    head, tail = fields[:born_at], fields[tail_at:]
    before = _before.get(head) or _remember(_before, head, _BEFORE)
    after = _after.get(tail) or _remember(_after, tail, _AFTER)
    if before is None or after is None:
        return None
    try:
        properties = fields[text_at:tail_at].decode()
    except UnicodeDecodeError:
        return None
    return SendMessageV2(born_timestamp=int(born), flag=int(flag), properties=properties or None, **before, **after)


def _remember(memory: dict[bytes, dict[str, Any]], part: bytes, names: frozenset[str]) -> dict[str, Any] | None:
    """Parse one part of a header, if it has no fields but these."""
    try:
        texts = read_binary_fields(part)
        if not names.issuperset(texts):
            return None
        # What the other part brings is filled in, so that the whole type checks this part's values.
        whole = from_fields(SendMessageV2, {**dict.fromkeys("abefgh", "0"), **texts})
    except (ProtocolError, Refused):
        return None
    if names is _BEFORE and not {"a", "b", "e", "f"}.issubset(texts):
        return None
    values = {name: getattr(whole, name) for name in _NAMES[names]}
    if len(memory) >= _REMEMBERED:
        memory.clear()
    memory[bytes(part)] = values
    return values


_NAMES: Final = {
    _BEFORE: ("producer_group", "topic", "default_topic", "default_topic_queue_nums", "queue_id", "sys_flag"),
    _AFTER: ("reconsume_times", "unit_mode", "max_reconsume_times", "batch"),
}


def read_pull(fields: bytes) -> PullMessage | None:
    """The fields of an 11 or 361, or None when they have to be read the ordinary way."""
    queue_at = fields.find(_QUEUE_OFFSET) + 17
    commit_at = fields.find(_COMMIT_OFFSET, queue_at) + 18
    if queue_at < 17 or commit_at < 18 or commit_at > len(fields):
        return None
    queue_end, commit_end = queue_at + fields[queue_at - 1], commit_at + fields[commit_at - 1]
    queue_offset, commit_offset = fields[queue_at:queue_end], fields[commit_at:commit_end]
    if not (queue_offset.isdigit() and commit_offset.isdigit()) or len(queue_offset) > 18 or len(commit_offset) > 18:
        return None
    if len(commit_offset) < commit_end - commit_at:
        return None
    parts = fields[: queue_at - 1], fields[queue_end : commit_at - 1], fields[commit_end:]
    known = _pulls.get(parts) or _remember_pull(fields, parts)
    if known is None:
        return None
    pull = copy(known)
    pull.queue_offset = int(queue_offset)
    pull.commit_offset = int(commit_offset)
    return pull


def _remember_pull(fields: bytes, parts: tuple[bytes, bytes, bytes]) -> PullMessage | None:
    """Read a pull the ordinary way, and remember it where each offset can stand in one place only."""
    if fields.count(_QUEUE_OFFSET) != 1 or fields.count(_COMMIT_OFFSET) != 1:
        return None
    try:
        pull = from_fields(PullMessage, read_binary_fields(fields))
    except (ProtocolError, Refused):
        return None
    if len(_pulls) >= _REMEMBERED:
        _pulls.clear()
    _pulls[parts] = pull
    return pull
