"""What a header of any shape may cost: its fields are bounded, and none of them is a list or an object."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import api, frame
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header_fields import MAX_FIELDS
from tests.support.pace import slowness

READER = frame.RequestReader(
    {endpoint.code: endpoint.ask for endpoint in api.ENDPOINTS},
    {endpoint.code: endpoint.read_binary for endpoint in api.ENDPOINTS if endpoint.read_binary is not None},
)
ROOM = frame.MAX_HEADER - 200
WITHIN = 0.025
"""Seconds of CPU for one reading of the costliest header: 7 ms on an idle core; a list of lists took 220."""


def in_json(fields: bytes, code: int = 10) -> bytes:
    return b'{"code":%d,"extFields":%b,"flag":0,"language":"JAVA","opaque":1,"version":1}' % (code, fields)


def entry(name: bytes, text: bytes) -> bytes:
    return struct.pack(">H", len(name)) + name + struct.pack(">i", len(text)) + text


def in_binary(entries: bytes, code: int = 10) -> bytes:
    return struct.pack(">hBHiiii", code, 0, 1, 1, 0, 0, len(entries)) + entries


def in_msgpack(fields: object) -> bytes:
    return msgspec.msgpack.encode((10, 0, 1, 1, "JAVA", None, fields))


def full(unit: bytes) -> bytes:
    return unit * (ROOM // len(unit))


def numbered(units: Iterable[bytes]) -> bytes:
    out, size = [], 0
    for unit in units:
        size += len(unit) + 1
        if size > ROOM:
            break
        out.append(unit)
    return b",".join(out)


SHAPES = {
    "one field again and again": (frame.JSON, in_json(b"{" + full(b'"a":"",') + b'"z":""}')),
    "many texts": (frame.JSON, in_json(b"{" + numbered(b'"%x":""' % n for n in range(200_000)) + b"}")),
    "many numbers": (frame.JSON, in_json(b"{" + numbered(b'"%x":1' % n for n in range(200_000)) + b"}")),
    "a list of numbers": (frame.JSON, in_json(b'{"a":[' + full(b"1,") + b"1]}")),
    "a list of lists": (frame.JSON, in_json(b'{"a":[' + full(b"[],") + b"1]}")),
    "a list of objects": (frame.JSON, in_json(b'{"a":[' + full(b"{},") + b"1]}")),
    "lists in lists": (frame.JSON, in_json(b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}")),
    "fields that are a list": (frame.JSON, in_json(b"[" + full(b"1,") + b"1]")),
    "a long number": (frame.JSON, in_json(b'{"a":1' + full(b"1") + b"}")),
    "a long fraction": (frame.JSON, in_json(b'{"a":1.' + full(b"1") + b"}")),
    "quotation marks": (frame.JSON, in_json(b'{"a":"' + full(b'\\"') + b'"}')),
    "escapes": (frame.JSON, in_json(b'{"a":"' + full(b"\\u00e9") + b'"}')),
    "backslashes": (frame.JSON, in_json(b'{"a":"' + full(b"\\\\") + b'"}')),
    "escaped names": (frame.JSON, in_json(b"{" + full(b'"\\\\":"",') + b'"z":""}')),
    "beside the fields": (frame.JSON, b'{"code":10,' + full(b'"a":"",') + b'"flag":0}'),
    "a list beside them": (frame.JSON, b'{"code":10,"a":[' + full(b"[],") + b'1],"flag":0}'),
    "blanks": (frame.JSON, in_json(b"{" + full(b" ") + b"}")),
    "entries without a name": (frame.ROCKETMQ, in_binary(full(entry(b"", b"")))),
    "one entry again and again": (frame.ROCKETMQ, in_binary(full(entry(b"a", b"b")))),
    "many entries": (frame.ROCKETMQ, in_binary(b"".join(entry(b"%x" % n, b"") for n in range(170_000)))),
    "letters beyond ASCII": (frame.ROCKETMQ, in_binary(entry("é".encode(), full("é".encode())))),
    "many of a typed request": (frame.ROCKETMQ, in_binary(full(entry(b"a", b"b")), 310)),
    "packed lists": (frame.MSGPACK, in_msgpack({"a": [[]] * ROOM})),
    "packed maps": (frame.MSGPACK, in_msgpack({"a": [{}] * ROOM})),
    "packed fields": (frame.MSGPACK, in_msgpack({str(n): 0 for n in range(220_000)})),
    "packed numbers as names": (frame.MSGPACK, in_msgpack({n: 0 for n in range(220_000)})),
}


def seconds(serialization: int, data: bytes) -> dict[str, float]:
    """CPU seconds of each way to read a header on a core of the usual pace, the best of three."""
    readings = {"read": READER.read, "texts": frame.texts, "with nulls": frame.texts_with_nulls}
    best = dict.fromkeys(readings, 60.0)
    for _ in range(3):
        for name, reading in readings.items():
            slow = slowness()
            since = time.thread_time()
            with contextlib.suppress(ProtocolError):
                reading(serialization, data)
            best[name] = min(best[name], (time.thread_time() - since) / slow)
    return best


@pytest.mark.parametrize("shape", SHAPES)
def test_no_header_within_the_bound_takes_long(shape: str) -> None:
    serialization, data = SHAPES[shape]
    assert 1 << 20 < len(data) <= frame.MAX_HEADER, len(data)
    assert max(seconds(serialization, data).values()) < WITHIN, seconds(serialization, data)


@pytest.mark.parametrize("mark", [b"[", b"{"])
def test_brackets_are_bounded_wherever_they_are(mark: bytes) -> None:
    """Each takes time, and so many of them are in no header of a client."""
    for count, is_read in ((60_000, True), (70_000, False)):
        header = b'{"code":10,"flag":0,"opaque":1,"remark":"%b"}' % (mark * count)
        with contextlib.nullcontext() if is_read else pytest.raises(ProtocolError, match="too many brackets"):
            READER.read(frame.JSON, header)


@pytest.mark.parametrize("mark", [b",", b"\\\\", b" "])
def test_commas_backslashes_and_blanks_are_bounded_too(mark: bytes) -> None:
    for size, is_read in ((260_000, True), (266_000, False)):
        header = b'{"code":10,"flag":0,"opaque":1,"remark":"%b"}' % (mark * (size // len(mark)))
        with contextlib.nullcontext() if is_read else pytest.raises(ProtocolError, match="too many brackets"):
            READER.read(frame.JSON, header)


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
NESTED = st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=3)


@given(st.dictionaries(st.text(max_size=8), SCALARS, max_size=8), st.text(max_size=8), NESTED)
def test_a_list_or_an_object_is_no_field(fields: dict[str, object], name: str, nested: object) -> None:
    data = in_json(json.dumps({**fields, name: nested}).encode())
    for reading in (frame.texts, frame.texts_with_nulls):
        with pytest.raises(ProtocolError):
            reading(frame.JSON, data)


def test_a_typed_field_that_is_a_list_is_refused_and_the_connection_stays() -> None:
    head = READER.read(frame.JSON, in_json(b'{"topic":["T"],"queueId":0}', 30))
    assert isinstance(head.ext, Refused)
    assert "`array`" in head.ext.remark


@given(st.dictionaries(st.text(max_size=8), SCALARS, max_size=8))
def test_texts_and_numbers_are_fields_as_before(fields: dict[str, object]) -> None:
    said = {
        name: "true" if value is True else "false" if value is False else str(value) for name, value in fields.items()
    }
    data = in_json(json.dumps(fields).encode())
    assert frame.texts_with_nulls(frame.JSON, data) == {
        n: "null" if fields[n] is None else text for n, text in said.items()
    }
    assert frame.texts(frame.JSON, data) == {n: text for n, text in said.items() if fields[n] is not None}


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ, frame.MSGPACK])
@pytest.mark.parametrize("value", ["", 'say "it"\\', "x" * 30])
def test_as_many_fields_as_allowed(serialization: int, value: str) -> None:
    fields = {f"a field of {n}": value or "v" for n in range(MAX_FIELDS - 10)}
    data = frame.encode(serialization, 10, 1, 0, extra=fields)[8:]
    assert frame.texts(serialization, data) == fields
    many = {f"a field of {n}": value or "v" for n in range(2 * MAX_FIELDS + 100)}
    with pytest.raises(ProtocolError):
        READER.read(serialization, frame.encode(serialization, 10, 1, 0, extra=many)[8:])
