"""Headers of sends, written by filling in what changes from message to message.

A producer's sends to one queue differ in born timestamp, properties and opaque. The rest is written once, by the
ordinary way (``frame.encode``), cut where those three stand (``cuts``), and remembered as a form. What is written is
byte for byte what the ordinary way writes, or the ordinary way writes it: forms that do not give their own sample back
are not used. Who sends much to one queue keeps its form (``form_of``). Times are ms since 1970.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from eruca.protocol import frame
from eruca.protocol.cuts import cut_binary, cut_json
from eruca.protocol.headers.send import SendMessageV2

_REMEMBERED: Final = 4096
_LONGEST: Final = frame.MAX_FRAME - 4
_BORN: Final = range(10**12, 10**13)
"""Timestamps of 13 digits, which is what forms are cut by."""
_SAMPLE: Final = (1234567890123, "sample", 7, 0)

Fill = Callable[[int, str, int, int], bytes]
Write = Callable[[bytes, bytes, int, int], bytes]
"""Given a born timestamp of 13 digits, an id of letters and digits, opaque, and the length of a body that fits a frame:
everything of a send's frame before its body."""


class Form(NamedTuple):
    """What writes everything of a send's frame before its body."""

    fill: Fill
    """Given a born timestamp of 13 digits, properties that are not empty, opaque, and the length of the body. Raises
    ProtocolError as ``frame.encode``."""
    around: Callable[[str, str], Write]
    """Given the properties before and after an id: what writes sends that differ in nothing but that."""


_forms: dict[tuple[Any, ...], Form | None] = {}
_prefix = struct.Struct(">II").pack
_lengths = struct.Struct(">I").pack
_quote = msgspec.json.Encoder().encode


def encode_send(serialization: int, code: int, opaque: int, flag: int, ask: SendMessageV2, body_length: int) -> bytes:
    """Everything of a send's frame before its body, as ``frame.encode``. Raises ProtocolError as that."""
    form = form_of(serialization, code, flag, ask)
    properties, born = ask.properties, ask.born_timestamp
    if form is None or not properties or born not in _BORN:
        return frame.encode(serialization, code, opaque, flag, ask, body_length)
    return form.fill(born, properties, opaque, body_length)


def form_of(serialization: int, code: int, flag: int, ask: SendMessageV2) -> Form | None:
    """The form of sends like this one; None where there is none, as in msgpack."""
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
        return _forms[key]
    except KeyError:
        return _remember(key, serialization, code, flag, ask)


def _remember(key: tuple[Any, ...], serialization: int, code: int, flag: int, ask: SendMessageV2) -> Form | None:
    make, form = _FORMS.get(serialization), None
    if make is not None:
        born, properties, opaque, _ = _SAMPLE
        sample = msgspec.structs.replace(ask, born_timestamp=born, properties=properties)
        written = frame.encode(serialization, code, opaque, flag, sample)
        form = make(written[8:])
        if form is not None and form.fill(*_SAMPLE) != written:
            form = None
    if len(_forms) >= _REMEMBERED:
        _forms.clear()
    _forms[key] = form
    return form


def _json_form(written: bytes) -> Form | None:
    cut = cut_json(written)
    if cut is None:
        return None
    head, before_text, before_opaque, end = (part.replace(b"%", b"%%") for part in cut)
    # The quotation marks around the text come with it.
    template = b"%b%%d%b%%b%b%%d%b" % (head, before_text[:-1], before_opaque[1:], end)

    def fill(born: int, properties: str, opaque: int, body_length: int) -> bytes:
        header = template % (born, _quote(properties), opaque)
        size = len(header)
        length = 4 + size + body_length
        if length > _LONGEST:
            raise frame.too_long(length)
        return _prefix(length, size) + header

    def around(before: str, after: str) -> Write:
        begin, rest = (_quote(text).replace(b"%", b"%%") for text in (before, after))
        parts = (head, before_text[:-1], begin[:-1], rest[1:], before_opaque[1:], end)
        template = b"%b%%b%b%b%%b%b%b%%d%b" % parts

        def write(born: bytes, key: bytes, opaque: int, body_length: int) -> bytes:
            header = template % (born, key, opaque)
            size = len(header)
            return _prefix(4 + size + body_length, size) + header

        return write

    return Form(fill, around)


def _binary_form(written: bytes) -> Form | None:
    cut = cut_binary(written)
    if cut is None:
        return None
    head, before_text, end, kind, flag = cut
    head = head[2:]  # the code stands in ``kind`` too
    size = len(head) + 13 + len(before_text) + 4 + len(end)
    word = frame.ROCKETMQ << 24

    def fill(born: int, properties: str, opaque: int, body_length: int) -> bytes:
        text = properties.encode()
        fields = size + len(text)
        length = 25 + fields + body_length
        if length > _LONGEST:
            raise frame.too_long(length)
        return b"%b%b%b%b%b%b%d%b%b%b%b" % (
            *(_prefix(length, word | 21 + fields), kind, _lengths(opaque), flag, _lengths(fields), head),
            *(born, before_text, _lengths(len(text)), text, end),
        )

    def around(before: str, after: str) -> Write:
        begin, rest = before.encode(), after.encode()
        around_id = len(begin) + len(rest)

        def write(born: bytes, key: bytes, opaque: int, body_length: int) -> bytes:
            length = around_id + len(key)
            fields = size + length
            return b"%b%b%b%b%b%b%b%b%b%b%b%b%b" % (
                *(_prefix(25 + fields + body_length, word | 21 + fields), kind, _lengths(opaque), flag),
                *(_lengths(fields), head, born, before_text, _lengths(length), begin, key, rest, end),
            )

        return write

    return Form(fill, around)


_FORMS: Final[dict[int, Callable[[bytes], Form | None]]] = {frame.JSON: _json_form, frame.ROCKETMQ: _binary_form}
