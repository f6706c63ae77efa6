"""Headers of sends, written by filling in what changes from message to message.

A producer's sends to one queue differ in born timestamp, properties and opaque. The rest is written once, by the
ordinary way (``frame.encode``), cut where those three stand (``cuts``), and remembered as a form. What is written is
byte for byte what the ordinary way writes, or the ordinary way writes it: forms that do not give their own sample back
are not used. Times are ms since 1970.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from eruca.protocol import frame
from eruca.protocol.cuts import cut_binary, cut_json
from eruca.protocol.headers.send import SendMessageV2

_REMEMBERED: Final = 4096
_BORN: Final = range(10**12, 10**13)
"""Timestamps of 13 digits, which is what forms are cut by."""
_SAMPLE: Final = (1234567890123, "sample", 7)

Form = Callable[[int, str, int], bytes]
"""Given born timestamp, properties and opaque: the header."""

_forms: dict[tuple[Any, ...], Form | None] = {}
_prefix = struct.Struct(">II").pack
_lengths = struct.Struct(">I").pack
_quote = msgspec.json.Encoder().encode


def encode_send(serialization: int, code: int, opaque: int, flag: int, ask: SendMessageV2, body_length: int) -> bytes:
    """Everything of a send's frame before its body, as ``frame.encode``. Raises ProtocolError as that."""
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
        form = _forms[key]
    except KeyError:
        form = _remember(key, serialization, code, flag, ask)
    properties, born = ask.properties, ask.born_timestamp
    if form is None or not properties or born not in _BORN:
        return frame.encode(serialization, code, opaque, flag, ask, body_length)
    head = form(born, properties, opaque)
    length = 4 + len(head) + body_length
    if length > frame.MAX_FRAME - 4:
        raise frame.too_long(length)
    return _prefix(length, serialization << 24 | len(head)) + head


def _remember(key: tuple[Any, ...], serialization: int, code: int, flag: int, ask: SendMessageV2) -> Form | None:
    make, form = _FORMS.get(serialization), None
    if make is not None:
        born, properties, opaque = _SAMPLE
        sample = msgspec.structs.replace(ask, born_timestamp=born, properties=properties)
        written = frame.encode(serialization, code, opaque, flag, sample)[8:]
        form = make(written)
        if form is not None and form(*_SAMPLE) != written:
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

    def fill(born: int, properties: str, opaque: int) -> bytes:
        return template % (born, _quote(properties), opaque)

    return fill


def _binary_form(written: bytes) -> Form | None:
    cut = cut_binary(written)
    if cut is None:
        return None
    head, before_text, end, kind, flag = cut
    size = len(head) + 13 + len(before_text) + 4 + len(end)

    def fill(born: int, properties: str, opaque: int) -> bytes:
        text = properties.encode()
        length = len(text)
        return b"%b%b%b%b%b%d%b%b%b%b" % (
            *(kind, _lengths(opaque), flag, _lengths(size + length), head),
            *(born, before_text, _lengths(length), text, end),
        )

    return fill


_FORMS: Final[dict[int, Callable[[bytes], Form | None]]] = {frame.JSON: _json_form, frame.ROCKETMQ: _binary_form}
