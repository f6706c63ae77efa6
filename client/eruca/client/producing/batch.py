"""Many messages in one request: what may go together, how it is written, and how much fits.

Pure. Facts: MessageBatch.generateFromList and MessageDecoder.encodeMessages in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eruca.client.errors import BadMessage
from eruca.client.message import (
    BEFORE_ID,
    Message,
    check_message,
    check_numbers,
    check_type,
    text_after_id,
    text_of,
    timer_of,
)
from eruca.client.network.identity import Stretches
from eruca.protocol import names
from eruca.protocol.record import ENTRY_SIZE, encode_batch, entry_frame

_BYTES = {bytes}
_MESSAGES = {Message}
_LISTS = {list, tuple}
_OWN_PROPERTIES = 60
"""Bytes that UNIQ_KEY and WAIT take in an entry at most, with an IPv4 address."""


def are_messages(messages: object) -> bool:
    """Whether this is a list or tuple of messages, none of a subclass, and not empty."""
    return type(messages) in _LISTS and bool(messages) and {*map(type, messages)} == _MESSAGES  # type: ignore[call-overload]


def check_batch(messages: Sequence[Message], max_size: int) -> None:
    """Raise BadMessage unless these messages may be sent as one batch."""
    if not isinstance(messages, Sequence):
        raise BadMessage(f"messages are of type {type(messages).__name__}: a list of messages is expected")
    if not messages:
        raise BadMessage("messages are empty: a batch takes one message or more")
    first = messages[0]
    check_message(first, max_size)
    topic, wait_store = first.topic, first.wait_store
    for message in messages:
        check_message(message, max_size)
        if message.delay_level or timer_of(message):
            raise BadMessage("TimeDelayLevel is not supported for batching")
        if message.topic != topic:
            raise BadMessage("The topic of the messages in one batch should be the same")
        if message.wait_store != wait_store:
            raise BadMessage("The waitStoreMsgOK of the messages in one batch should the same")
    if names.is_retry_topic(first.topic):
        raise BadMessage("Retry Group is not supported for batching")


def wait_of(first: Message) -> str:
    """The properties of the request around messages of which this is the first."""
    return f"WAIT\x01{'true' if first.wait_store else 'false'}"


def encode_messages(messages: Sequence[Message], keys: Sequence[str], max_size: int) -> bytes:
    """The body of a batch; ``keys`` are the unique ids of its messages. Raises BadMessage when it is too large."""
    body = _encode(messages, keys)
    if len(body) > max_size:
        raise BadMessage(
            f"the message body size over max value, MAX: {max_size}. "
            f"The {len(messages)} messages take {len(body)} bytes: divide them with split_batch."
        )
    return body


def encode_ordinary(messages: Sequence[Message], ids: Stretches, max_size: int) -> bytes | None:
    """The body of a batch, as ``encode_messages`` writes it; None where ``check_batch`` may find something wrong.

    Where messages have no keys and properties, and all the same tag, no two differ in more than body and unique id, and
    lists are put together in place of messages. Raises BadMessage for properties and flags that no message may have.
    """
    topic, wait_store, tags = messages[0].topic, messages[0].wait_store, messages[0].tags
    if topic.startswith("%"):
        return None
    bodies = [
        message.body
        for message in messages
        if not (
            message.tags != tags
            or message.keys
            or message.properties
            or message.flag
            or message.topic != topic
            or message.wait_store != wait_store
            or message.delay_level
            or message.delay is not None
            or message.deliver_at is not None
        )
    ]
    alike = len(bodies) == len(messages)
    if not alike:
        bodies = [message.body for message in messages]
        for message in messages:
            if message.flag:
                check_numbers(message)
        if any(
            message.topic != topic
            or message.wait_store != wait_store
            or message.delay_level
            or message.delay is not None
            or message.deliver_at is not None
            for message in messages
        ):
            return None
    if {*map(type, bodies)} != _BYTES:
        return None
    sizes = {*map(len, bodies)}
    if not 0 < min(sizes) <= max(sizes) <= max_size:
        return None
    if alike:
        whole = _put_together(bodies, sizes, ids, text_after_id(messages[0]).encode())
    else:
        whole = _encode(messages, ids.ids())
    return whole if len(whole) <= max_size else None


def _put_together(bodies: list[bytes], sizes: set[int], ids: Stretches, after: bytes) -> bytes:
    """The entries of messages that differ in body and id only.

    ``sizes`` are the lengths that bodies have, ``after`` is what follows the ids in the properties.
    """
    stretches = ids.ends()
    length = len(BEFORE_ID) + len(stretches[0][0]) + 2 + len(after)
    heads = {size: entry_frame(0, size, length) for size in sizes}
    start, lengths = heads[len(bodies[0])]
    before_id = lengths + BEFORE_ID.encode()
    starts = {size: after + head for size, (head, _) in heads.items()}  # behind the entry before
    parts: list[bytes] = []
    at = 0
    for head, ends in stretches:
        those = bodies[at : at + len(ends)]
        here = [after + start, b"", before_id + head.encode(), b""] * len(ends)
        if len(starts) > 1:
            here[0::4] = [starts[len(body)] for body in those]
        here[1::4] = those
        here[3::4] = ends
        parts += here
        at += len(ends)
    parts[0] = start
    parts.append(after)
    return b"".join(parts)


def _encode(messages: Sequence[Message], keys: Sequence[str]) -> bytes:
    return encode_batch(
        (message.flag, message.body, text_of(message, key).encode())
        for message, key in zip(messages, keys, strict=True)
    )


def split_batch(messages: Iterable[Message], max_size: int = 4 * 1024 * 1024) -> Iterator[list[Message]]:
    """Divide messages, in their order, into lists that fit one batch each; of one topic and one ``wait_store``.

    A message that does not fit alone comes in a list of its own, and its send raises the reason.
    """
    if not isinstance(messages, Iterable):
        raise BadMessage(f"messages are of type {type(messages).__name__}: a list of messages is expected")
    part: list[Message] = []
    size = 0
    for message in messages:
        check_type(message)
        entry = ENTRY_SIZE + _OWN_PROPERTIES + len(message.body) + len(text_of(message, "").encode())
        together = not part or (message.topic == part[0].topic and message.wait_store == part[0].wait_store)
        if part and (size + entry > max_size or not together):
            yield part
            part, size = [], 0
        part.append(message)
        size += entry
    if part:
        yield part
