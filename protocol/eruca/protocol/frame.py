"""Frames: length, header word, header in one of three serializations, body.

Owns the frame layout of the remoting protocol (RemotingCommand, RocketMQSerializable and NettyDecoder in 4.9.7) and
Eruca's own third serialization (msgpack), which is only ever sent to a peer that asked for it. Pure: bytes to values
and back. Reading raises ``ProtocolError`` for whatever is no frame. For a header that is readable but wrong
``Head.ext`` is a ``Refused``, since the request can be answered.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from eruca.protocol.codes import LANGUAGE, LANGUAGE_CODES, LANGUAGES, VERSION, ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Empty, Header
from eruca.protocol.header_fields import (
    MAX_FIELDS,
    TOO_MANY,
    from_fields,
    read_binary_fields,
    write_binary_fields,
)

JSON: Final = 0
"""Header serialization of every client's first word."""
ROCKETMQ: Final = 1
"""Apache's binary header serialization."""
MSGPACK: Final = 2
"""Eruca's own header serialization, between Eruca peers that agreed on it."""

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2
RELAYED_FLAG: Final = 4
"""Of a request that a former master passes on to the present one; between Eruca's brokers only."""

MAX_FRAME: Final = 16 * 1024 * 1024
"""The longest frame in bytes, its length field included (frameMaxLength in 4.9.7)."""

MAX_HEADER: Final = 2 * 1024 * 1024
"""The longest header in bytes: it is read at once, whoever sent it. The longest field is a value of 1 MiB (100)."""

OFFER_FIELD: Final = "ErucaHeader"
"""The field by which a peer offers, and its partner accepts, the msgpack serialization."""

T = TypeVar("T")
H = TypeVar("H", bound=Header)


class Head(msgspec.Struct, Generic[T]):
    """What a header says apart from its fields; ``ext`` holds those, typed or as they came."""

    code: int
    flag: int = 0
    opaque: int = 0
    version: int = 0
    language: str | int | None = None
    remark: str | None = None
    ext: T = msgspec.field(name="extFields", default=None)  # type: ignore[assignment]


_raw_json = msgspec.json.Decoder(Head[msgspec.Raw], strict=False)
_Value = str | int | float | bool | None
"""A field as it may come: a list or an object is refused where it begins, whatever it holds."""
_loose_fields = msgspec.json.Decoder(dict[str, _Value] | None)
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_text_value = msgspec.json.Decoder(str)
_msgpack_head = msgspec.msgpack.Decoder(
    tuple[int, int, int, int, str, str | None, Annotated[dict[str, _Value], msgspec.Meta(max_length=MAX_FIELDS)]]
)
_FEW: Final = 4096
"""Bytes of a header whose fields need no counting."""
_MOST_MARKS: Final = 64 * 1024
"""Quotation marks and brackets of a header, whether they are in a text or not, at most: each takes time."""
_MOST_COMMAS: Final = 256 * 1024
"""Commas, backslashes and blanks of a header, likewise; no client writes a text with that many."""
_LARGE: Final = 64 * 1024
"""Bytes of a header that is not tried the quick way first: what does not fit there would be read twice."""


class _Texts(msgspec.Struct):
    """The fields of a header of which each is a text, as in nearly all."""

    ext: dict[str, str] = msgspec.field(name="extFields")


_only_texts = msgspec.json.Decoder(_Texts)
_binary_head = struct.Struct(">hBHiii")
_binary_start = struct.Struct(">hBHiiii").unpack_from
"""The same with the length of the fields, of a header without a remark."""
_prefix = struct.Struct(">II")
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What reading a JSON header raises."""
_encode_json = msgspec.json.Encoder().encode


def split(data: bytes, start: int) -> tuple[int, int, int, int] | None:
    """Find the frame at ``start``: (serialization, header start, body start, end), or None while it is incomplete.

    Raises ProtocolError for lengths that no frame has, as soon as they are readable.
    """
    available = len(data) - start
    if available < 8:
        if available >= 4:
            check_length(int.from_bytes(data[start : start + 4], "big"))
        return None
    length, word = _prefix.unpack_from(data, start)
    check_length(length)
    header_length = word & 0xFFFFFF
    if header_length > MAX_HEADER:
        raise ProtocolError(f"a header of {header_length} bytes is refused: at most {MAX_HEADER} are read")
    if header_length > length - 4:
        raise ProtocolError(f"the frame says that its header has {header_length} bytes, but only {length - 4} follow")
    if available < length + 4:
        return None
    header_start = start + 8
    return word >> 24, header_start, header_start + header_length, start + 4 + length


def opaque_of_offer(data: bytes) -> int | None:
    """The opaque of the request that begins here and offers the msgpack serialization; None for any other frame."""
    found = split(data, 0)
    if found is None or found[0] != JSON or b'"ErucaHeader":"msgpack"' not in data[found[1] : found[2]]:
        return None
    head = read(JSON, data[found[1] : found[2]])
    return None if head.flag else head.opaque


def check_length(length: int) -> None:
    """Raise ProtocolError when a frame's length field cannot be right."""
    if length < 4 or length > MAX_FRAME - 4:
        raise ProtocolError(f"a frame of {length} bytes is refused: at most {MAX_FRAME - 4} may follow the length")


FieldsReader = Callable[[bytes], Header | None]
"""Reads the fields of a binary header to their type; returns None for those that ``from_fields`` has to read."""


class RequestReader:
    """Reads headers of requests whose codes are known beforehand, straight into their types.

    ``asks`` has the header type of each request code, ``binary_readers`` what reads binary fields faster, for some of
    the codes. A frame with another code, and every response, keeps its fields as they came (see ``typed``).
    """

    def __init__(
        self, asks: Mapping[int, type[Header]], binary_readers: Mapping[int, FieldsReader] | None = None
    ) -> None:
        self._asks = dict(asks)
        self._binary_readers = dict(binary_readers or {})
        # The three bytes after `{"code":` identify nearly every request before it is parsed.
        self._json = {
            (b"%d," % code)[:3]: (code, msgspec.json.Decoder(Head[kind | None], strict=False))  # type: ignore[valid-type]
            for code, kind in asks.items()
            if 10 <= code <= 999
        }

    def read(self, serialization: int, data: bytes) -> Head[Any]:
        """Read a header; ``ext`` is of the declared type, or a Refused where the fields do not fit."""
        if serialization == JSON:
            known = self._json.get(data[8:11])
            size = len(data)
            if known is not None and (size <= _FEW or (size <= _LARGE and _has_few_fields(data))):
                try:
                    quick: Head[Any] = known[1].decode(data)
                    if quick.code == known[0] and not quick.flag & RESPONSE_FLAG and quick.ext is not None:
                        return quick
                except UNREADABLE:
                    pass  # the lenient reading below reads it, or raises what is wrong
        elif serialization == ROCKETMQ and len(data) > 21:
            code, language, version, opaque, flag, remark, length = _binary_start(data)
            reader = self._binary_readers.get(code)
            if reader is not None and not flag & RESPONSE_FLAG and not remark and length == len(data) - 21:
                fields = reader(data[21:])
                if fields is not None:
                    name = LANGUAGES[language] if language < len(LANGUAGES) else None
                    return Head(code, flag, opaque, version, name, None, fields)
        head = read(serialization, data)
        if not head.flag & RESPONSE_FLAG and not isinstance(head.ext, Header):
            kind = self._asks.get(head.code)
            if kind is not None:
                try:
                    head.ext = typed(kind, head)
                except Refused as refused:
                    head.ext = refused
                except ProtocolError as fault:  # the frame around the fields is sound
                    head.ext = Refused(ResponseCode.SYSTEM_ERROR, str(fault))
        return head


def read(serialization: int, data: bytes) -> Head[Any]:
    """Read a header and leave its fields as they came (a Raw, or a dict of texts). Raises ProtocolError."""
    try:
        if serialization == JSON:
            if len(data) > _FEW and not _has_few_fields(data):
                raise ProtocolError(TOO_MANY)
            return _raw_json.decode(data)
        if serialization == ROCKETMQ:
            return _read_binary(data)
        if serialization == MSGPACK:
            return _read_msgpack(data)
    except UNREADABLE as error:
        raise ProtocolError(f"the frame's header cannot be read: {error}") from None
    raise ProtocolError(f"header serialization {serialization} is not known")


def _has_few_fields(data: bytes) -> bool:
    """Whether a JSON header has at most MAX_FIELDS fields, as its texts show, and is read in a short time."""
    quotes = data.count(b'"')
    if quotes + data.count(b"[") + data.count(b"{") > _MOST_MARKS:
        return False
    if data.count(b",") + data.count(b"\\") + data.count(b" ") > _MOST_COMMAS:
        return False
    if quotes <= 4 * MAX_FIELDS:
        return True
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return unescaped.count(b'"') <= 4 * MAX_FIELDS


def _read_binary(data: bytes, *, empty: bool = False) -> Head[dict[str, str]]:
    if len(data) < 21:
        raise ProtocolError("a ROCKETMQ header has at least 21 bytes")
    code, language, version, opaque, flag, remark_length = _binary_head.unpack_from(data)
    fields_at = 17 + remark_length + 4
    if remark_length < 0 or fields_at > len(data):
        raise ProtocolError("a ROCKETMQ header is shorter than its remark")
    remark = data[17 : 17 + remark_length].decode() if remark_length else None
    length = int.from_bytes(data[fields_at - 4 : fields_at], "big", signed=True)
    if length < 0 or fields_at + length > len(data):
        raise ProtocolError("a ROCKETMQ header is shorter than its fields")
    name = LANGUAGES[language] if language < len(LANGUAGES) else None
    entries = data[fields_at : fields_at + length]
    return Head(code, flag, opaque, version, name, remark, read_binary_fields(entries, empty=empty))


def _read_msgpack(data: bytes) -> Head[dict[str, Any]]:
    try:
        code, flag, opaque, version, language, remark, fields = _msgpack_head.decode(data)
    except UNREADABLE as error:
        raise ProtocolError(f"the frame's msgpack header cannot be read: {error}") from None
    return Head(code, flag, opaque, version, language, remark, fields)


def typed(kind: type[H], head: Head[Any]) -> H:
    """The fields of a header as a header type. Raises Refused(1) when they do not fit."""
    ext = head.ext
    if isinstance(ext, Header):
        raise TypeError("the fields of this header are typed already")
    if kind is Empty:
        return kind()
    if isinstance(ext, msgspec.Raw):
        try:
            return _json_decoder(kind).decode(ext)  # type: ignore[no-any-return]
        except UNREADABLE:
            ext = _loose_json(ext)
    return from_fields(kind, ext or {})


AnswerReader = tuple[type[Header], Callable[[bytes], Head[Any]]]
"""A type of fields, and what reads a JSON header with fields of it in one go; that raises one of UNREADABLE."""
_answer_readers: dict[type[Header], AnswerReader] = {}


def answer_reader(kind: type[Header]) -> AnswerReader:
    """The reader of headers with such fields."""
    found = _answer_readers.get(kind)
    if found is None:
        decoder = msgspec.json.Decoder(Head[kind | None], strict=False)  # type: ignore[valid-type]
        found = _answer_readers[kind] = (kind, decoder.decode)
    return found


_decoders: dict[type[Header], msgspec.json.Decoder[Any]] = {}


def _json_decoder(kind: type[Header]) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    return decoder


def _loose_json(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        found: dict[str, Any] | None = _loose_fields.decode(raw)
    except UNREADABLE as error:
        raise ProtocolError(f"the frame's fields cannot be read: {error}") from None
    return found or {}


def texts(serialization: int, data: bytes) -> dict[str, str]:
    """All fields of a header as text, those that no type names included; signatures are computed over these."""
    if serialization == JSON and len(data) <= _LARGE:
        try:
            return _only_texts.decode(data).ext
        except UNREADABLE:
            pass  # a number, a null, or no field at all; or nothing that can be read
    elif serialization == ROCKETMQ:
        return _read_binary(data).ext
    return fields_of(read(serialization, data))


def texts_with_nulls(serialization: int, data: bytes) -> dict[str, str]:
    """The same with the fields that are null in Java, as the text that Java signs: null in JSON, empty in ROCKETMQ."""
    if serialization == ROCKETMQ:
        return {name: text or "null" for name, text in (_read_binary(data, empty=True).ext or {}).items()}
    return {name: "null" if text is None else text for name, text in _loose_texts(read(serialization, data)).items()}


def fields_of(head: Head[Any]) -> dict[str, str]:
    """All fields of a header that was left as it came, as text. Raises ProtocolError when they cannot be read."""
    return {name: text for name, text in _loose_texts(head).items() if text is not None}


def _loose_texts(head: Head[Any]) -> Mapping[str, str | None]:
    """All fields as texts, None for those that are null. Raises ProtocolError for a list or an object."""
    if not isinstance(head.ext, msgspec.Raw):
        return {name: _text(value) for name, value in (head.ext or {}).items()}
    try:
        return {name: _text_of_json(value) for name, value in (_raw_fields.decode(head.ext) or {}).items()}
    except UNREADABLE as error:
        raise ProtocolError(f"the frame's fields cannot be read: {error}") from None


def _text_of_json(value: msgspec.Raw) -> str | None:
    """Numbers stay as they are written."""
    written = bytes(value)
    if written[:1] == b'"':
        return _text_value.decode(written)
    if written[:1] in (b"[", b"{"):
        raise ProtocolError("a field of the frame's header is a list or an object: fields are texts")
    return None if written == b"null" else written.decode()


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def encode(
    serialization: int,
    code: int,
    opaque: int,
    flag: int,
    header: Header | None = None,
    body_length: int = 0,
    remark: str | None = None,
    extra: Mapping[str, str] | None = None,
    language: str = LANGUAGE,
    version: int = VERSION,
) -> bytes:
    """Everything of a frame before its body: length, header word and header.

    ``extra`` are fields beside the typed ones (access key, signature, an offer). Raises ProtocolError when the frame
    would be longer than a peer accepts.
    """
    if serialization == JSON:
        head = _json_head(code, opaque, flag, header, remark, extra, language, version)
    elif serialization == ROCKETMQ:
        head = _binary(code, opaque, flag, header, remark, extra, language, version)
    else:
        fields = header.natives() if header is not None else {}
        if extra:
            fields.update(extra)
        head = msgspec.msgpack.encode((code, flag, opaque, version, language, remark, fields))
    length = 4 + len(head) + body_length
    if length > MAX_FRAME - 4:
        raise too_long(length)
    return _prefix.pack(length, serialization << 24 | len(head)) + head


def relayed(serialization: int, data: bytes, opaque: int, body_length: int) -> bytes:
    """Everything before the body of a request that is passed on: the header with another opaque, and RELAYED_FLAG.

    Its fields stay as they were written, and with them what a signature covers.
    """
    head = read(serialization, data)
    flag = head.flag | RELAYED_FLAG
    if serialization == JSON:
        head.flag, head.opaque = flag, opaque
        header = _encode_json(head)
    elif serialization == ROCKETMQ:
        header = data[:5] + opaque.to_bytes(4, "big") + flag.to_bytes(4, "big") + data[13:]
    else:
        header = msgspec.msgpack.encode((head.code, flag, opaque, head.version, head.language, head.remark, head.ext))
    length = 4 + len(header) + body_length
    if length > MAX_FRAME - 4:
        raise too_long(length)
    return _prefix.pack(length, serialization << 24 | len(header)) + header


def encode_reply(serialization: int, opaque: int, header: Header | None, body_length: int) -> bytes:
    """What ``encode`` gives for the commonest of frames: a reply with code 0 and no remark."""
    if serialization == JSON:
        head = _OK_EMPTY % opaque if header is None else _OK_REPLY % (header.as_json(), opaque)
    elif serialization == ROCKETMQ:
        fields = header.as_binary() if header is not None else b""
        head = _OK_BINARY % (opaque & 0xFFFFFFFF).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + fields
    else:
        return encode(serialization, 0, opaque, RESPONSE_FLAG, header, body_length)
    length = 4 + len(head) + body_length
    if length > MAX_FRAME - 4:
        raise too_long(length)
    return _prefix.pack(length, serialization << 24 | len(head)) + head


_OK_REPLY: Final = (
    b'{"code":0,"extFields":%%b,"flag":1,"language":"%b","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
    % (LANGUAGE.encode(), VERSION)
)
_OK_EMPTY: Final = _OK_REPLY.replace(b'"extFields":%b,', b"")
_OK_BINARY: Final = b"\0\0%c%b%%b\0\0\0\1\0\0\0\0" % (LANGUAGE_CODES[LANGUAGE], VERSION.to_bytes(2, "big"))


def too_long(length: int) -> ProtocolError:
    """The error of a frame that no peer would accept."""
    return ProtocolError(f"a frame of {length} bytes is too long to send: at most {MAX_FRAME - 4} are accepted")


def _json_head(
    code: int,
    opaque: int,
    flag: int,
    header: Header | None,
    remark: str | None,
    extra: Mapping[str, str] | None,
    language: str,
    version: int,
) -> bytes:
    if extra:
        ext = b'"extFields":%b,' % _encode_json({**(header.fields() if header is not None else {}), **extra})
    elif header is not None:
        ext = b'"extFields":%b,' % header.as_json()
    else:
        ext = b""
    return b'{"code":%d,%b"flag":%d,"language":"%b","opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        code,
        ext,
        flag,
        language.encode(),
        opaque,
        b"" if remark is None else b'"remark":%b,' % _encode_json(remark),
        version,
    )


def _binary(
    code: int,
    opaque: int,
    flag: int,
    header: Header | None,
    remark: str | None,
    extra: Mapping[str, str] | None,
    language: str,
    version: int,
) -> bytes:
    fields = header.as_binary() if header is not None else b""
    if extra:
        fields += write_binary_fields(extra)
    text = remark.encode() if remark else b""
    head = _binary_head.pack(code, LANGUAGE_CODES[language], version, opaque, flag, len(text))
    return b"%b%b%b%b" % (head, text, len(fields).to_bytes(4, "big"), fields)
