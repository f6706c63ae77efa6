"""Messages as users see them: one to send, one received.

Owns what a user may put into a message and the sentences that say why not. A received message reads its stored record
only when asked: it is taken apart, properties are parsed and a compressed body is decompressed at first use, once.
Facts: Validators.checkMessage and Message.putUserProperty in 4.9.7.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import compress
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack

import msgspec

from eruca.client import serializers
from eruca.client.compression import decompress
from eruca.client.config import check_topic
from eruca.client.errors import BadAnswer, BadMessage
from eruca.client.moments import moment
from eruca.client.namespaces import first_topic
from eruca.client.outcomes import MAX_DELAY_LEVEL
from eruca.client.serializers import CONTENT_TYPE, Reader, Serializer
from eruca.protocol import names, properties_text
from eruca.protocol.compression import MAX_BODY
from eruca.protocol.errors import ProtocolError
from eruca.protocol.message import COMPRESSED, PROPERTIES_MAX_LENGTH
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Outline, Record, decode_record, host_text, outline, properties_of, stored_body

T = TypeVar("T")
BEFORE_ID: Final = "UNIQ_KEY\x01"
AFTER_ID: Final = "\x02WAIT\x01true"
"""The property text before and after the unique id of a message without further properties."""
_AFTER_ID_AT_MOST: Final = PROPERTIES_MAX_LENGTH - len(BEFORE_ID) - 56
"""Maximum length of the text after the id, which has 56 digits at most."""


class MessageKeywords(TypedDict, total=False):
    """The options of a Message by name: for whoever passes them on."""

    tags: str | None
    keys: str | Iterable[str] | None
    properties: Mapping[str, str] | None
    flag: int
    delay_level: int
    delay: float | timedelta | None
    deliver_at: int | datetime | None
    wait_store: bool


class _Addressed(msgspec.Struct, gc=False):
    """The positional fields of a message."""

    topic: str
    body: bytes
    _by_name: None = None
    """Takes what was given by position in place of a name, so that the error can say so."""


class Message(_Addressed, gc=False, kw_only=True):
    """A message to send.

    Args:
        topic: where to.
        body: any bytes, at least one.
        tags: one tag, by which consumers subscribe.
        keys: business keys, by which a message is found again: one text or several, none with a blank in it.
        properties: more names and values; RocketMQ's own names are refused.
        flag: any 32-bit number, stored as it is.
        delay_level: 1 to 18 (1s 5s 10s 30s 1m 2m ... 2h by the broker's setting); 0 delivers at once.
        delay: any delay, in seconds or as a timedelta, to the millisecond. Eruca's brokers and those of RocketMQ 5
            know it; those of RocketMQ 4.9 deliver at once.
        deliver_at: in place of it the time, as a datetime or in ms since 1970; one that has passed means at once.
        wait_store: False lets the broker answer before the message is flushed or replicated.

    Equal are messages of one class with equal fields; since it may be changed, a message is no key of a dict. A msgspec
    Struct: a subclass may have more fields and methods, but no ``__init__``. Raises BadMessage.
    """

    tags: str | None = None
    keys: str | Iterable[str] | None = None
    properties: Mapping[str, str] | None = None
    flag: int = 0
    delay_level: int = 0
    delay: float | timedelta | None = None
    deliver_at: int | datetime | None = None
    wait_store: bool = True

    def __post_init__(self) -> None:
        if self._by_name is not None:
            raise BadMessage(
                "a Message takes topic and body by position; give tags, keys and all others by name: tags=..."
            )
        if self.keys is not None and not isinstance(self.keys, str):
            try:
                keys = [*self.keys]
                self.keys = " ".join(keys)
            except TypeError:
                raise BadMessage(f"keys={self.keys!r}: a text, or several texts, is expected") from None
            if self.keys.count(" ") != max(len(keys) - 1, 0):
                raise BadMessage(f"keys={keys!r}: a key must not contain a blank, which stands between keys")
        if self.delay is not None or self.deliver_at is not None:
            _timer(self.delay_level, self.delay, self.deliver_at)  # raises

    @classmethod
    def of(
        cls, topic: str, value: object, serializer: Serializer = serializers.JSON, **options: Unpack[MessageKeywords]
    ) -> Self:
        """A message whose body is ``value`` as the serializer writes it, by default JSON; ``options`` as of the class.

        The serializer's content type travels as a property, so that ``ReceivedMessage.value`` reads it again.
        Raises BadMessage.
        """
        serializers.check(serializer)
        options["properties"] = {CONTENT_TYPE: serializer.content_type, **(options.get("properties") or {})}
        return cls(topic, serializers.dump(serializer, value), **options)

    def __repr__(self) -> str:
        fits = isinstance(self.body, bytes | bytearray | memoryview)
        body = f"{len(self.body)} bytes" if fits else f"a body of type {type(self.body).__name__}"
        return f"<Message to {self.topic}, tags={self.tags!r}, keys={self.keys!r}, {body}>"

    def with_properties(self, properties: Mapping[str, str]) -> Self:
        """The same message with more properties; those of the same name are replaced."""
        other = copy.copy(self)
        other.properties = {**(self.properties or {}), **properties}
        return other


def as_it_is(value: T) -> T:
    """A copy of a message, for a send that begins in another thread while its program may change it; other values."""
    if not isinstance(value, Message):
        return value
    other = copy.copy(value)
    if isinstance(other.body, bytearray | memoryview):
        other.body = bytes(other.body)
    if isinstance(other.properties, Mapping):
        other.properties = {**other.properties}
    return other


def timer_of(message: Message) -> tuple[str, str] | None:
    """The property of an individual delay."""
    if message.delay is None and message.deliver_at is None:
        return None
    return _timer(message.delay_level, message.delay, message.deliver_at)


def check_message(given: object, max_size: int) -> None:
    """Raise BadMessage or BadName unless RocketMQ takes this message; ``max_size`` bounds the body in bytes."""
    message = check_type(given)
    if message.topic not in _checked:
        check_topic(message.topic)
        if message.topic in names.NOT_ALLOWED_SEND_TOPICS:
            raise BadMessage(f"Sending message to topic[{message.topic}] is forbidden.")
        if len(_checked) < 10_000:
            _checked.add(message.topic)
    body = message.body
    if type(body) is not bytes:
        if body is None:
            raise BadMessage("the message body is null")
        if not isinstance(body, bytes | bytearray | memoryview):
            raise BadMessage(
                f"the message body is of type {type(body).__name__}: bytes are expected, such as text.encode()"
            )
        message.body = body = bytes(body)
    if not body:
        raise BadMessage("the message body length is zero")
    if len(body) > max_size:
        raise BadMessage(f"the message body size over max value, MAX: {max_size}")
    check_numbers(message)


def check_numbers(message: Message) -> None:
    """Raise BadMessage unless ``delay_level`` and ``flag`` are numbers that RocketMQ takes."""
    level, flag = message.delay_level, message.flag
    if level and not (isinstance(level, int) and 0 < level <= MAX_DELAY_LEVEL):
        raise BadMessage(f"delay_level={level!r}: 0 to {MAX_DELAY_LEVEL} is expected")
    if flag and not (isinstance(flag, int) and -(1 << 31) <= flag < 1 << 31):
        raise BadMessage(f"flag={flag!r}: a number of 32 bits, -2147483648 to 2147483647, is expected")


def text_of(message: Message, unique_key: str) -> str:
    """The property text as it is sent. Raises BadMessage."""
    return BEFORE_ID + unique_key + text_after_id(message)


def text_after_id(message: Message) -> str:
    """The property text that follows the unique id. Raises BadMessage."""
    text = AFTER_ID if message.wait_store else "\x02WAIT\x01false"
    timer = None if message.delay is None and message.deliver_at is None else timer_of(message)
    if not (message.tags or message.keys or message.properties or message.delay_level or timer):
        return text
    pairs = 1
    if message.tags:
        text += _tags_text(message.tags)
        pairs += 1
    if message.keys:
        text += f"\x02KEYS\x01{message.keys}"
        pairs += 1
    if message.delay_level:
        check_numbers(message)
        text += f"\x02DELAY\x01{message.delay_level}"
        pairs += 1
    if timer:
        text += f"\x02{timer[0]}\x01{timer[1]}"
        pairs += 1
    if message.properties:
        text += _properties_text(message.properties)
        pairs += len(message.properties)
    if text.count("\x01") != pairs or text.count("\x02") != pairs:
        raise BadMessage("tags, keys and properties must not contain the characters 0x01 and 0x02")
    if not text.isascii() or len(text) > _AFTER_ID_AT_MOST:
        _check_length(text)
    return text


def check_type(message: object) -> Message:
    """The object if it is a Message. Raises BadMessage."""
    if not isinstance(message, Message):
        raise BadMessage(f"the message is of type {type(message).__name__}: make a Message(topic, body) of it")
    return message


_checked: set[str] = set()
"""Topics that were found legal."""


def _timer(level: int, delay: float | timedelta | None, deliver_at: int | datetime | None) -> tuple[str, str]:
    """The property of an individual delay. Raises BadMessage."""
    if level or (delay is not None and deliver_at is not None):
        raise BadMessage("a message takes one of delay_level, delay and deliver_at")
    if deliver_at is not None:
        try:
            return names.TIMER_DELIVER_MS, str(moment(deliver_at))
        except ValueError as error:
            raise BadMessage(f"deliver_at={deliver_at!r}: {error}") from None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < float("inf"):
        raise BadMessage(f"delay={delay!r}: 0 or more seconds, or a timedelta, is expected")
    return names.TIMER_DELAY_MS, str(round(seconds * 1000))


def _tags_text(tags: object) -> str:
    if not isinstance(tags, str):
        raise BadMessage(f"tags is of type {type(tags).__name__}: a text is expected")
    if "||" in tags:
        raise BadMessage(f"tags={tags!r}: a message has one tag; || stands between those of a subscription")
    return "\x02TAGS\x01" + tags


def _properties_text(properties: object) -> str:
    if type(properties) is not dict and not isinstance(properties, Mapping):
        raise BadMessage(f"properties is of type {type(properties).__name__}: a mapping is expected")
    text = ""
    for name, value in properties.items():
        _check_property(name, value)
        text += f"\x02{name}\x01{value}"
    return text


def _check_length(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadMessage("tags, keys and properties hold half of a surrogate pair, which UTF-8 cannot write") from None
    if size > _AFTER_ID_AT_MOST:
        raise BadMessage(f"tags, keys and properties together take more than {PROPERTIES_MAX_LENGTH} bytes")


def _check_property(name: str, value: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str) or not name.strip() or not value.strip():
        raise BadMessage(
            f"The name or value of property can not be null or blank string! ({name!r}: {value!r}; both are texts)"
        )
    if name in names.RESERVED_PROPERTIES:
        raise BadMessage(f"The Property<{name}> is used by system, input another please")


class ReceivedMessage:
    """A message that was received.

    ``record`` is what the broker stored, ``queue`` the queue it came from (of the group's retry topic when it came
    again after a failure). A compressed body is unpacked up to ``max_body`` bytes.
    """

    __slots__ = ("_at", "_body", "_data", "_head", "_max_body", "_record", "queue", "queue_offset")
    _at: int
    _body: bytes | None
    _data: bytes
    """The data with the message, until its record is read."""
    _head: Outline
    _max_body: int
    _record: Record | None
    queue: MessageQueue
    queue_offset: int
    """The position in its queue."""

    def __init__(self, record: Record, queue: MessageQueue, max_body: int = MAX_BODY) -> None:
        self._record = record
        self._body = None
        self._data = b""
        self._max_body = max_body
        self._head = (record.size, record.magic, record.queue_offset, record.sys_flag, record.body_length)
        self.queue = queue
        self.queue_offset = record.queue_offset

    @property
    def record(self) -> Record:
        """What the broker stored."""
        data, record = self._data, self._record  # in this order: another thread may read it meanwhile
        if record is None:
            try:
                record = self._record = decode_record(data, self._at)
            except ProtocolError as error:
                raise BadAnswer(str(error)) from error
            self._data = b""  # a message that is kept does not keep all that came with it
        return record

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles contain the record, not the whole reply."""
        return type(self), (self.record, self.queue, self._max_body)

    @property
    def topic(self) -> str:
        """The topic it was sent to, also after a retry."""
        topic = self.record.topic
        return topic if topic == self.queue.topic and topic[:1] != "%" else first_topic(self.record, self.queue)

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises BadAnswer when it cannot be decompressed, or exceeds ``max_body``."""
        body = self._body
        if body is None:
            head = self._head
            if head[3] & COMPRESSED:
                return self._decompress(self._max_body)
            data, record = self._data, self._record
            body = self._body = record.body if record is not None else stored_body(data, self._at, head)
        return body

    def _decompress(self, most: int) -> bytes:
        """The body that is compressed, from now on found by ``body``. Raises BadAnswer, also above ``most`` bytes."""
        data, record, head = self._data, self._record, self._head
        packed = record.body if record is not None else stored_body(data, self._at, head)
        body = self._body = decompress(packed, head[3], most)
        return body

    @property
    def stored_size(self) -> int:
        """Bytes in the broker's log."""
        return self._head[0]

    @property
    def value(self) -> Any:
        """The body, decoded by the serializer of its content type; bytes if it has none.

        Raises BadBody when the body is not of its type, or when nobody registered the type.
        """
        return serializers.load(self.record.properties.get(CONTENT_TYPE), self.body)

    def value_by(self, serializer: Reader[T]) -> T:
        """The body, decoded by this serializer, whatever its content type. Raises BadBody and UsageError."""
        return serializers.load_by(serializer, self.body)

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.record.tags

    @property
    def keys(self) -> list[str]:
        """The business keys."""
        return self.record.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, RocketMQ's own included."""
        return self.record.properties

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that the sender gave, without RocketMQ's own."""
        return {name: value for name, value in self.record.properties.items() if name not in names.OWN_PROPERTIES}

    @property
    def message_id(self) -> str:
        """The producer's id, or the broker's if it has none."""
        return self.record.unique_key or self.record.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id, which contains the offset in its log."""
        return self.record.offset_message_id

    @property
    def reconsume_times(self) -> int:
        """How often it was retried."""
        return self.record.reconsume_times

    @property
    def born_timestamp(self) -> int:
        """When it was sent, by the producer's clock (ms since 1970)."""
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """When it was stored, by the broker's clock (ms since 1970)."""
        return self.record.store_timestamp

    @property
    def born_host(self) -> str:
        """``address:port`` of the producer."""
        return host_text(self.record.born_host)

    @property
    def flag(self) -> int:
        """The number that the sender set."""
        return self.record.flag

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.message_id} of {self.queue} at {self.queue_offset}>"


def received(
    data: bytes,
    queue: MessageQueue,
    *,
    kind: type[ReceivedMessage] = ReceivedMessage,
    tags: Collection[bytes] | None = None,
    max_body: int = MAX_BODY,
) -> list[ReceivedMessage]:
    """The messages of a pull reply, with one of ``tags`` if tags are given; their records are read on demand.

    Raises BadAnswer.
    """
    try:
        places, found = outline(data)
    except ProtocolError as error:
        raise BadAnswer(str(error)) from error
    messages, new = [], kind.__new__
    if tags is not None:
        texts = (properties_of(data[place : place + head[0]]) for place, head in zip(places, found, strict=True))
        wanted = [properties_text.get(text, "TAGS") in tags for text in texts]
        places, found = list(compress(places, wanted)), list(compress(found, wanted))
    for place, head in zip(places, found, strict=True):
        message = new(kind)
        message._record = message._body = None
        message._data = data
        message._at = place
        message._head = head
        message._max_body = max_body
        message.queue = queue
        message.queue_offset = head[2]
        messages.append(message)
    return messages


def sizes(messages: Iterable[ReceivedMessage]) -> dict[int, int]:
    """The stored size of each message by its queue offset, in order."""
    return {each.queue_offset: each._head[0] for each in messages}
