"""Many messages in one request: what may go together, how it is written, and how much fits.

Pure. Facts: MessageBatch.generateFromList and MessageDecoder.encodeMessages in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eruca.client.errors import BadMessage
from eruca.client.message import BEFORE_ID, Message, check_message
from eruca.protocol import names
from eruca.protocol.record import encode_batch, entry_frame

ENTRY_SIZE = 22
"""Bytes of an entry beside its body and properties."""
_OWN_PROPERTIES = 60
"""Bytes that UNIQ_KEY and WAIT take in an entry at most, with an IPv4 address."""


def check_batch(messages: Sequence[Message], max_size: int) -> None:
    """Raise BadMessage unless these messages may be sent as one batch."""
    if not messages:
        raise BadMessage("messages are empty: a batch takes one message or more")
    first = messages[0]
    topic, wait_store = first.topic, first.wait_store
    for message in messages:
        check_message(message, max_size)
        if message.delay_level or message.timer:
            raise BadMessage("TimeDelayLevel in not supported for batching")
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


def encode_ordinary(messages: Sequence[Message], keys: Sequence[str], max_size: int) -> bytes | None:
    """The body of a batch, as ``encode_messages`` writes it; None where ``check_batch`` may find something wrong.

    ``keys`` are of equal length. Where messages ask for nothing special, no two differ in more than body and unique id,
    and lists are put together in place of messages. Raises BadMessage for properties that no message may have.
    """
    topic, wait_store = messages[0].topic, messages[0].wait_store
    if topic.startswith("%") or any(
        [
            message.topic != topic
            or message.wait_store != wait_store
            or message.delay_level
            or message.delay is not None
            or message.deliver_at is not None
            or type(message.body) is not bytes
            for message in messages
        ]
    ):
        return None
    bodies = [message.body for message in messages]
    sizes = [*map(len, bodies)]
    if not 0 < min(sizes) <= max(sizes) <= max_size:
        return None
    if any([message.tags or message.keys or message.properties or message.flag for message in messages]):
        whole = _encode(messages, keys)
    else:
        after = messages[0].text_after_id().encode()
        length = len(BEFORE_ID) + len(keys[0]) + len(after)
        heads = {size: entry_frame(0, size, length) for size in {*sizes}}
        parts = [b"", b"", heads[sizes[0]][1] + BEFORE_ID.encode(), b"", after] * len(messages)
        parts[0::5] = [heads[size][0] for size in sizes]
        parts[1::5] = bodies
        parts[3::5] = [key.encode() for key in keys]
        whole = b"".join(parts)
    return whole if len(whole) <= max_size else None


def _encode(messages: Sequence[Message], keys: Sequence[str]) -> bytes:
    return encode_batch(
        (message.flag, message.body, message.properties_text(key).encode())
        for message, key in zip(messages, keys, strict=True)
    )


def split_batch(messages: Iterable[Message], max_size: int = 4 * 1024 * 1024) -> Iterator[list[Message]]:
    """Divide messages, in their order, into lists that fit one batch each; of one topic and one ``wait_store``.

    A message that does not fit alone comes in a list of its own, and its send says why it is refused.
    """
    part: list[Message] = []
    size = 0
    for message in messages:
        entry = ENTRY_SIZE + _OWN_PROPERTIES + len(message.body) + len(message.properties_text("").encode())
        together = not part or (message.topic == part[0].topic and message.wait_store == part[0].wait_store)
        if part and (size + entry > max_size or not together):
            yield part
            part, size = [], 0
        part.append(message)
        size += entry
    if part:
        yield part
