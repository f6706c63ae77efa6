"""Headers that differ from message to message in a few values: the rest is written or compared as bytes.

A template is a header with two fields and the opaque cut out. ``fill`` writes a whole header with other values in
these three places, ``match`` reads the three values of a header that is equal to the template everywhere else. Sends
(born timestamp and properties), replies to sends (message id and queue offset) and pulls (queue offset and number of
messages) use it. The other half of this module reads what repeats: ``RepeatedFields`` parses the constant part of a
binary header once, ``read_stored_json`` and ``read_stored_binary`` read replies to sends.

Everything here is a fast path with one invariant: the result is what ``frame.encode``, ``frame.read`` and
``frame.typed`` give, byte for byte, or None, and then the caller uses those. The native step reads templates by the
order of their fields (``store/c/sends.c``). Facts: RemotingSerializable and RocketMQSerializable in 4.9.7. Pure.
Times are ms since 1970.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from eruca.protocol import frame
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Header, Int, Long
from eruca.protocol.header_fields import from_fields, read_binary_fields
from eruca.protocol.headers.pull import PullMessage
from eruca.protocol.headers.send import SendMessageV2, SendRefused, SendReply
from eruca.protocol.memo import Memo

H = TypeVar("H", bound=Header)

BORN_LENGTH: Final = 13
"""Digits of a born timestamp from 2001 to 2286, as templates of sends want it."""
BORN_FIELD: Final = "g"
"""The field of the born timestamp in SendMessageRequestHeaderV2."""
PROPERTIES_FIELD: Final = "i"
"""The field of the properties in SendMessageRequestHeaderV2."""

_LIMIT: Final = 4096
_LONGEST: Final = frame.MAX_FRAME - 4
_LONGEST_FIELDS: Final = 65_536
_OPAQUE: Final = b'"opaque":'
_BORN_JSON: Final = b'","g":"'
_BORN_BINARY: Final = b"\0\1g\0\0\0\x0d"
_BINARY_WORD: Final = frame.ROCKETMQ << 24 | 21

_prefix = struct.Struct(">II").pack
_length = struct.Struct(">I").pack
_binary_start = struct.Struct(">II5sI8sI").pack
_inside_quotes = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL).match
_encode_text = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode

# ---------------------------------------------------------------------- templates


Writer = Callable[[int, bytes, str, str, bytes], bytes]
"""Given opaque, first value, id, the text behind the id, and the body: everything of a frame before the body.

Raises ProtocolError when the frame would be too long."""


class Values(NamedTuple):
    """The values of a header in the places of a template, as they stand in the header."""

    first: bytes
    second: bytes
    opaque: int


class JsonTemplate(NamedTuple):
    """A JSON header. The native step knows the fields by their places."""

    before: bytes
    """Everything before the first value, its quotation mark included."""
    between: bytes
    before_opaque: bytes
    """Begins with the quotation mark behind the second value."""
    end: bytes

    @classmethod
    def of(cls, header: bytes, first: str, second: str) -> JsonTemplate | None:
        """Cut a header at the values of these two fields, which stand in this order; None for any other layout."""
        first_at = _json_value(header, first, 0)
        first_end = _end_of_text(header, first_at)
        second_at = _json_value(header, second, first_end)
        second_end = _end_of_text(header, second_at)
        opaque_at = header.find(_OPAQUE, second_end) + len(_OPAQUE)
        opaque_end = header.find(b",", opaque_at)
        if first_at < 0 or second_at < 0 or opaque_at < len(_OPAQUE) or opaque_end < 0:
            return None
        return cls(header[:first_at], header[first_end:second_at], header[second_end:opaque_at], header[opaque_end:])

    def fill(self, opaque: int, first: bytes, second: bytes, body_length: int) -> bytes:
        """Everything of a frame before its body; the two values are written as ``quote`` gives them.

        Raises ProtocolError when the frame would be too long.
        """
        before, between, before_opaque, end = self
        number = b"%d" % opaque
        header = b"".join((before, first, between, second, before_opaque, number, end))
        size = len(header)
        length = 4 + size + body_length
        if length > _LONGEST:
            raise frame.too_long(length)
        return _prefix(length, size) + header

    def match(self, header: bytes) -> Values | None:
        """The values of a header that is equal to this one everywhere else; None for any other header."""
        before, between, before_opaque, end = self
        first_at = len(before)
        first_end = _end_of_text(header, first_at)
        second_at = first_end + len(between)
        second_end = _end_of_text(header, second_at)
        opaque_at = second_end + len(before_opaque)
        opaque = header[opaque_at : len(header) - len(end)]
        if (
            header.startswith(before)
            and header.startswith(between, first_end)
            and header.startswith(before_opaque, second_end)
            and header.endswith(end, opaque_at)
            and opaque.isdigit()
        ):
            return Values(header[first_at:first_end], header[second_at:second_end], int(opaque))
        return None

    def writer(self, before: str, usual: str, quote: Callable[[str], bytes]) -> Writer:
        """``fill`` for headers whose second value is ``before``, an id, and a text, which most often is ``usual``.

        ``quote`` gives the text as it is written; ``usual`` is quoted once, and known by its identity.
        """
        constant = [
            piece.replace(b"%", b"%%")
            for piece in (self.before, self.between + self.quote(before), self.before_opaque, self.end)
        ]
        pattern = b"%b%%b%b%%b%%b%b%%d%b" % tuple(constant)
        usual_value = quote(usual)

        def write(opaque: int, first: bytes, key: str, text: str, body: bytes) -> bytes:
            header = pattern % (first, key.encode(), usual_value if text is usual else quote(text), opaque)
            size = len(header)
            length = 4 + size + len(body)
            if length > _LONGEST:
                raise frame.too_long(length)
            return _prefix(length, size) + header

        return write

    def with_first(self, before: str) -> JsonTemplate:
        """The template of headers whose first value begins with this text; ``fill`` writes the rest of it."""
        return self._replace(before=self.before + self.quote(before))

    @staticmethod
    def quote(text: str) -> bytes:
        """A text as it is written in a value."""
        return _encode_text(text)[1:-1]

    @staticmethod
    def unquote(value: bytes) -> str:
        """The text of a value. Raises one of ``frame.UNREADABLE``."""
        return _decode_text(b'"%b"' % value)


class BinaryTemplate(NamedTuple):
    """A ROCKETMQ header without a remark. The native step knows the fields by their places."""

    kind: bytes
    """Code, language and version: 5 bytes."""
    flag: bytes
    """Flag, and the length of a remark, which is 0: 8 bytes."""
    before: bytes
    """The fields before the length of the first value."""
    first_begin: bytes
    """The constant beginning of the first value."""
    between: bytes
    """From the end of the first value to the length of the second one."""
    second_begin: bytes
    """The constant beginning of the second value."""
    end: bytes
    """From the end of what is filled in for the second value."""
    second_constant: int
    """Bytes of the second value that ``second_begin`` and ``end`` hold."""

    @classmethod
    def of(cls, header: bytes, first: str, second: str) -> BinaryTemplate | None:
        """Cut a header at the values of these two fields, which stand in this order; None for any other layout."""
        if len(header) < 21 or header[13:17] != bytes(4) or int.from_bytes(header[17:21], "big") != len(header) - 21:
            return None
        first_at = _binary_value(header, first, 21)
        first_end = first_at + int.from_bytes(header[first_at - 4 : first_at], "big")
        second_at = _binary_value(header, second, first_end) if first_at >= 0 else -1
        second_end = second_at + int.from_bytes(header[second_at - 4 : second_at], "big")
        if second_at < 0 or second_end > len(header):
            return None
        before, between = header[21 : first_at - 4], header[first_end : second_at - 4]
        return cls(header[:5], header[9:17], before, b"", between, b"", header[second_end:], 0)

    def fill(self, opaque: int, first: bytes, second: bytes, body_length: int) -> bytes:
        """As ``JsonTemplate.fill``."""
        kind, flag, before, first_begin, between, second_begin, end, constant = self
        body = b"".join(
            (
                before,
                _length(len(first_begin) + len(first)),
                first_begin,
                first,
                between,
                _length(constant + len(second)),
                second_begin,
                second,
                end,
            )
        )
        size = len(body)
        length = 25 + size + body_length
        if length > _LONGEST:
            raise frame.too_long(length)
        return _binary_start(length, _BINARY_WORD + size, kind, opaque & 0xFFFFFFFF, flag, size) + body

    def match(self, header: bytes) -> Values | None:
        """As ``JsonTemplate.match``; for templates without constant beginnings and ends of values."""
        kind, flag, before, _, between, _, end, _ = self
        first_at = 25 + len(before)
        first_end = first_at + int.from_bytes(header[first_at - 4 : first_at], "big")
        second_at = first_end + len(between) + 4
        second_end = second_at + int.from_bytes(header[second_at - 4 : second_at], "big")
        if (
            header.startswith(kind)
            and header.startswith(flag, 9)
            and int.from_bytes(header[17:21], "big") == len(header) - 21
            and header.startswith(before, 21)
            and header.startswith(between, first_end)
            and second_end + len(end) == len(header)
            and header.endswith(end)
        ):
            opaque = int.from_bytes(header[5:9], "big", signed=True)
            return Values(header[first_at:first_end], header[second_at:second_end], opaque)
        return None

    def writer(self, before: str, usual: str, quote: Callable[[str], bytes]) -> Writer:
        """As ``JsonTemplate.writer``."""
        begin, usual_value = before.encode(), quote(usual)
        fill = self._replace(second_begin=begin, second_constant=len(begin)).fill

        def write(opaque: int, first: bytes, key: str, text: str, body: bytes) -> bytes:
            return fill(opaque, first, key.encode() + (usual_value if text is usual else quote(text)), len(body))

        return write

    def with_first(self, before: str) -> BinaryTemplate:
        """As ``JsonTemplate.with_first``."""
        return self._replace(first_begin=before.encode())

    @staticmethod
    def quote(text: str) -> bytes:
        """As ``JsonTemplate.quote``."""
        return text.encode()

    @staticmethod
    def unquote(value: bytes) -> str:
        """As ``JsonTemplate.unquote``."""
        return value.decode()


Template = JsonTemplate | BinaryTemplate

_KINDS: Final[dict[int, Callable[[bytes, str, str], Template | None]]] = {
    frame.JSON: JsonTemplate.of,
    frame.ROCKETMQ: BinaryTemplate.of,
}


def template_of(serialization: int, header: bytes, first: str, second: str) -> Template | None:
    """Cut a header at the values of these two fields; None for another layout or serialization."""
    make = _KINDS.get(serialization)
    return None if make is None else make(header, first, second)


def _json_value(header: bytes, name: str, start: int) -> int:
    """Where the value of a field begins; -1 without such a field. A quotation mark behind a comma or a bracket is none
    within a text."""
    at = header.find(b',"%b":"' % name.encode(), start)
    if at < 0:
        at = header.find(b'{"%b":"' % name.encode(), start)
    return -1 if at < 0 else at + len(name) + 5


def _end_of_text(header: bytes, at: int) -> int:
    found = _inside_quotes(header, max(at, 0))
    return len(header) if found is None else found.end()


def _binary_value(header: bytes, name: str, at: int) -> int:
    """Where the value of the field begins that is the first of this name from the field at ``at`` on; -1 without."""
    wanted = name.encode()
    while at + 2 <= len(header):
        name_end = at + 2 + int.from_bytes(header[at : at + 2], "big")
        value_at = name_end + 4
        if value_at > len(header):
            break
        if header[at + 2 : name_end] == wanted:
            return value_at
        at = value_at + int.from_bytes(header[name_end:value_at], "big")
    return -1


# ---------------------------------------------------------------------- sends and their replies

_SAMPLE_BORN: Final = 10**BORN_LENGTH - 1
_SAMPLE_TEXT: Final = "sample"
_templates: Memo[tuple[Any, ...], Template | None] = Memo(_LIMIT)


def encode_send(serialization: int, code: int, opaque: int, flag: int, ask: SendMessageV2, body_length: int) -> bytes:
    """Everything of a send's frame before its body, as ``frame.encode``. Raises ProtocolError as that."""
    template = send_template(serialization, code, flag, ask)
    properties, born = ask.properties, ask.born_timestamp
    if template is None or not properties or not 10**12 <= born < 10**13:
        return frame.encode(serialization, code, opaque, flag, ask, body_length)
    return template.fill(opaque, b"%d" % born, template.quote(properties), body_length)


def send_template(serialization: int, code: int, flag: int, ask: SendMessageV2) -> Template | None:
    """The template of sends that differ from this one in born timestamp, properties and opaque only.

    Its first value are the digits of a born timestamp of BORN_LENGTH digits, its second one the properties, which must
    not be empty. None where there is no template, as in msgpack.
    """
    key = (
        ask.queue_id,
        ask.topic,
        ask.sys_flag,
        ask.producer_group,
        code,
        ask.flag,
        flag,
        serialization,
        ask.batch,
        ask.default_topic_queue_nums,
        ask.default_topic,
        ask.reconsume_times,
        ask.max_reconsume_times,
        ask.unit_mode,
    )
    try:
        return _templates[key]
    except KeyError:
        sample = msgspec.structs.replace(ask, born_timestamp=_SAMPLE_BORN, properties=_SAMPLE_TEXT)
        values = b"%d" % _SAMPLE_BORN, _SAMPLE_TEXT.encode()
        fields = BORN_FIELD, PROPERTIES_FIELD
        return _templates.remember(key, _of_sample(serialization, code, flag, sample, fields, values))


def reply_template(serialization: int, host: str, reply: SendReply) -> Template | None:
    """The template of replies to sends that differ from this one in message id and queue offset only.

    ``host`` is what message ids begin with: the broker's address in upper-case hex. The first value is the rest of the
    message id (16 digits in hex; in a batch's, whole further ids follow), the second one is the queue offset in digits.
    """
    sample = msgspec.structs.replace(reply, msg_id=f"{host}{0:016X}", queue_offset=1)
    values = sample.msg_id.encode(), b"1"
    fields = "msgId", "queueOffset"
    template = _of_sample(serialization, 0, frame.RESPONSE_FLAG, sample, fields, values)
    return None if template is None else template.with_first(host)


def pull_template(serialization: int, code: int, ask: PullMessage) -> Template | None:
    """The template of pulls (11, 361) that differ from this one in queue offset and number of messages only.

    Both values are digits: ``fill(opaque, b"%d" % offset, b"%d" % count, 0)`` is the whole frame.
    """
    values = b"%d" % ask.queue_offset, b"%d" % ask.max_msg_nums
    return _of_sample(serialization, code, 0, ask, ("queueOffset", "maxMsgNums"), values)


def _of_sample(
    serialization: int, code: int, flag: int, sample: Header, fields: tuple[str, str], values: tuple[bytes, bytes]
) -> Template | None:
    """The template of a header; None for one that does not give its own sample back."""
    if serialization not in _KINDS:
        return None
    whole = frame.encode(serialization, code, 7, flag, sample)
    template = template_of(serialization, whole[8:], *fields)
    return template if template is not None and template.fill(7, *values, 0) == whole else None


def json_send_key(header: bytes) -> bytes:
    """Everything of a JSON header of a send before the born timestamp; something useless where it has none."""
    return header[: header.find(_BORN_JSON) + len(_BORN_JSON)]


def binary_send_key(header: bytes) -> bytes:
    """Code, language, version, and the fields before the born timestamp, of a ROCKETMQ header of a send; something
    useless where it has none."""
    return header[:5] + header[21 : header.find(_BORN_BINARY, 21) + len(_BORN_BINARY)]


# ---------------------------------------------------------------------- binary fields that repeat


class Varying(NamedTuple):
    """A field that differs from request to request."""

    wire: str
    attribute: str
    digits: int
    """The longest number that is read here; 0 for a text."""


class RepeatedFields(Generic[H]):
    """Reads the fields of binary headers of one type: what repeats is parsed once.

    Two fields vary: first a number, then a number or a text, in the order in which Java writes them. They are found by
    their names. What stands before, between and after them is the key of a memo, which holds the header as it was read
    the first time.
    """

    def __init__(self, kind: type[H], first: Varying, second: Varying) -> None:
        self._kind = kind
        self._first, self._first_name, self._first_digits = first.attribute, _binary_name(first), first.digits
        self._second, self._second_name, self._second_digits = second.attribute, _binary_name(second), second.digits
        self._first_size, self._second_size = len(self._first_name) + 2, len(self._second_name) + 2
        self._names = frozenset((first.wire, second.wire))
        self._known: Memo[tuple[bytes, bytes, bytes], H] = Memo(_LIMIT)

    def read(self, fields: bytes) -> H | None:
        """The header with these fields; None when they have to be read by ``from_fields``."""
        if len(fields) > _LONGEST_FIELDS or _SIGNATURE in fields:
            return None
        first_at = fields.find(self._first_name)
        start = first_at + self._first_size
        first_end = start + int.from_bytes(fields[start - 2 : start], "big")
        first = fields[start:first_end]
        second_at = fields.find(self._second_name, first_end)
        start = second_at + self._second_size
        end = start + int.from_bytes(fields[start - 2 : start], "big")
        second = fields[start:end]
        if first_at < 0 or second_at < 0 or end > len(fields) or len(first) > self._first_digits or not first.isdigit():
            return None
        value: int | str | None
        if not (digits := self._second_digits):
            try:
                value = second.decode() or None
            except UnicodeDecodeError:
                return None
        elif len(second) <= digits and second.isdigit():
            value = int(second)
        else:
            return None
        key = fields[:first_at], fields[first_end:second_at], fields[end:]
        known = self._known.get(key) or self._remember(fields, key)
        if known is None:
            return None
        return msgspec.structs.replace(known, **{self._first: int(first), self._second: value})

    def _remember(self, fields: bytes, parts: tuple[bytes, bytes, bytes]) -> H | None:
        """Read a header whole, and remember it if each part consists of whole fields, none of which varies."""
        try:
            for part in parts:
                if not self._names.isdisjoint(read_binary_fields(part)):
                    return None
            found = from_fields(self._kind, read_binary_fields(fields))
        except (ProtocolError, Refused):
            return None
        return self._known.remember(parts, found)


_SIGNATURE = b"\x00\x09Signature\x00\x00"
"""The name of the field that no two requests have alike."""


def _binary_name(field: Varying) -> bytes:
    """A field's name as it is written, and the two upper bytes of its value's length."""
    name = field.wire.encode()
    return len(name).to_bytes(2, "big") + name + bytes(2)


read_send = RepeatedFields(
    SendMessageV2,
    Varying(BORN_FIELD, "born_timestamp", 18),
    Varying(PROPERTIES_FIELD, "properties", 0),
).read
"""Reads the binary fields of a 310, 320 or 325."""
read_pull = RepeatedFields(
    PullMessage, Varying("queueOffset", "queue_offset", 18), Varying("commitOffset", "commit_offset", 18)
).read
"""Reads the binary fields of an 11 or 361."""

# ---------------------------------------------------------------------- replies to sends, at the client


class Stored(msgspec.Struct, gc=False, rename="camel"):
    """Where a message is, or the first one of a batch."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    region: str = msgspec.field(name="MSG_REGION", default="DefaultRegion")
    trace_on: bool = msgspec.field(name="TRACE_ON", default=True)


class StoredAnswer(msgspec.Struct, gc=False):
    """The header of a reply to a send: stored (code 0), without a remark."""

    code: Literal[0]
    flag: Literal[1]
    opaque: int
    stored: Stored = msgspec.field(name="extFields")


read_stored_json = msgspec.json.Decoder(StoredAnswer, strict=False).decode
"""Reads the JSON header of a reply with code 0. Raises one of ``frame.UNREADABLE`` for any other header."""
_reply_start = struct.Struct(">hBHiiii7si").unpack_from
"""Code, language, version, opaque, flag, length of the remark, length of the fields; the first name, and how long."""
_ID: Final = b"\0\5msgId"
_QUEUE: Final = b"\0\7queueId\0\0\0"
_OFFSET: Final = b"\0\x0bqueueOffset\0\0\0"
_TRANSACTION: Final = b"\0\x0dtransactionId\0\0\0"
_FIRST: Final = frozenset(("msgId", "queueId", "queueOffset", "transactionId"))
_ID_AT: Final = 32
_ends: Memo[bytes, SendRefused | None] = Memo(64)
"""The fields of ends of headers; None where one changes what was read before them."""


def read_stored_binary(header: bytes) -> StoredAnswer | None:
    """Reads the ROCKETMQ header of a reply with code 0; None for any other header."""
    try:
        code, _, _, opaque, flag, remark, size, name, length = _reply_start(header)
        queue_at = _ID_AT + length
        queue, offset_at = _short_field(header, _QUEUE, queue_at)
        offset, end_at = _short_field(header, _OFFSET, offset_at)
        if code or flag != frame.RESPONSE_FLAG or remark or name != _ID or length <= 0 or size != len(header) - 21:
            return None
        transaction = None
        if header.startswith(_TRANSACTION, end_at):
            text, end_at = _short_field(header, _TRANSACTION, end_at)
            if not text:
                return None
            transaction = text.decode()
        end = header[end_at:]
        rest = _ends[end] if end in _ends else _ends.remember(end, _read_end(end))
        if rest is None or not _are_numbers(queue, offset):
            return None
        identity = header[_ID_AT:queue_at].decode()
        stored = Stored(identity, int(queue), int(offset), transaction, rest.region, rest.trace_on)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    return StoredAnswer(0, 1, opaque, stored)


def _are_numbers(queue: bytes, offset: bytes) -> bool:
    return queue.isdigit() and offset.isdigit() and len(queue) < 10 and len(offset) < 19


def _short_field(header: bytes, name: bytes, at: int) -> tuple[bytes, int]:
    """The value of a field of up to 255 bytes that is expected here, and where it ends; nothing without it."""
    start = at + len(name) + 1
    if not header.startswith(name, at):
        return b"", at
    end = start + header[start - 1]
    return header[start:end] if end <= len(header) else b"", end


def _read_end(end: bytes) -> SendRefused | None:
    """The fields in the end of a header; None where one of them is among those that come first, or is malformed."""
    try:
        fields = read_binary_fields(end)
        return from_fields(SendRefused, fields) if _FIRST.isdisjoint(fields) else None
    except (ProtocolError, Refused):
        return None
