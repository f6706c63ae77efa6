"""Many messages in one request: what may go together, how it is written, and how much fits.

Pure. Facts: MessageBatch.generateFromList and MessageDecoder.encodeMessages in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eruca.client.errors import BadMessage
from eruca.client.message import AFTER_ID, BEFORE_ID, Message, check_message
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
    body = encode_batch(
        (message.flag, message.body, message.properties_text(key).encode())
        for message, key in zip(messages, keys, strict=True)
    )
    if len(body) > max_size:
        raise BadMessage(
            f"the message body size over max value, MAX: {max_size}. "
            f"The {len(messages)} messages take {len(body)} bytes: divide them with split_batch."
        )
    return body


def encode_ordinary(messages: Sequence[Message], keys: Sequence[str], max_size: int) -> bytes | None:
    """The body of a batch, as ``encode_messages`` writes it; None where ``check_batch`` may find something wrong.

    ``keys`` are of equal length. Nearly all messages of a batch are alike: what stands around body and unique id is
    then written once. Raises BadMessage for properties that no message may have.
    """
    topic, wait_store = messages[0].topic, messages[0].wait_store
    if topic.startswith("%"):
        return None
    before, after = BEFORE_ID.encode(), (AFTER_ID if wait_store else "\x02WAIT\x01false").encode()
    ids, width = "".join(keys).encode(), len(keys[0])
    plain_length, last_size = len(before) + width + len(after), -1
    parts: list[bytes] = []
    for message, key in zip(messages, [ids[at : at + width] for at in range(0, len(ids), width)], strict=True):
        body = message.body
        size = len(body)
        if (
            type(body) is not bytes
            or not 0 < size <= max_size
            or message.topic != topic
            or message.wait_store != wait_store
            or message.delay_level
            or message.delay is not None
            or message.deliver_at is not None
        ):
            return None
        if message.tags or message.keys or message.properties or message.flag:
            text = message.properties_text(key.decode()).encode()
            head, length = entry_frame(message.flag, size, len(text))
            parts += (head, body, length, text)
        else:
            if size != last_size:
                last_size = size
                plain_head, length = entry_frame(0, size, plain_length)
                between = length + before
            parts += (plain_head, body, between, key, after)
    whole = b"".join(parts)
    return whole if len(whole) <= max_size else None


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
