"""Frames: captured bytes, the three serializations, and bytes that are no frame."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import api, frame
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header_fields import from_fields, read_binary_fields, write_binary_fields
from eruca.protocol.headers.offsets import OffsetReply, QueueOf
from eruca.protocol.headers.pull import PullMessage
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.templates import read_pull, read_send

READER = frame.RequestReader(
    {endpoint.code: endpoint.ask for endpoint in api.ENDPOINTS},
    {endpoint.code: endpoint.read_binary for endpoint in api.ENDPOINTS if endpoint.read_binary is not None},
)

# Captured from a client and a broker of 4.9.7.
JSON_REQUEST = bytes.fromhex(
    "0000006c000000687b22636f6465223a33302c226c616e6775616765223a224a415641222c2276657273696f6e223a3339352c226f7061"
    "717565223a352c22666c6167223a302c226578744669656c6473223a7b22746f706963223a225431222c2271756575654964223a2230227d7d"
)
JSON_RESPONSE_HEADER = (
    b'{"code":0,"extFields":{"offset":"7"},"flag":1,"language":"JAVA","opaque":5,'
    b'"serializeTypeCurrentRPC":"JSON","version":407}'
)
BINARY_REQUEST = bytes.fromhex(
    "0000003401000030001e00018b0000004d00000000000000000000001b0005746f7069630000000254310007717565756549640000000130"
)
BINARY_RESPONSE_HEADER = bytes.fromhex("00000001970000004d00000001000000000000000d00066f66667365740000000133")


def read(data: bytes) -> tuple[frame.Head[object], bytes]:
    found = frame.split(data, 0)
    assert found is not None
    serialization, start, body, end = found
    assert end == len(data)
    return READER.read(serialization, data[start:body]), data[body:end]


def test_the_captured_json_request() -> None:
    head, body = read(JSON_REQUEST)
    assert (head.code, head.opaque, head.version, head.language, head.flag) == (30, 5, 395, "JAVA", 0)
    assert head.ext == QueueOf(topic="T1", queue_id=0)
    assert body == b""


def test_the_captured_json_response() -> None:
    written = frame.encode(frame.JSON, 0, 5, 1, OffsetReply(offset=7), language="JAVA")
    assert written[8:] == JSON_RESPONSE_HEADER
    assert frame.typed(OffsetReply, frame.read(frame.JSON, JSON_RESPONSE_HEADER)) == OffsetReply(offset=7)


def test_the_captured_binary_request() -> None:
    ask = QueueOf(topic="T1", queue_id=0)
    assert frame.encode(frame.ROCKETMQ, 30, 77, 0, ask, language="JAVA", version=395) == BINARY_REQUEST
    head, _ = read(BINARY_REQUEST)
    assert (head.code, head.opaque, head.version, head.language, head.ext) == (30, 77, 395, "JAVA", ask)


def test_the_captured_binary_response() -> None:
    written = frame.encode(frame.ROCKETMQ, 0, 77, 1, OffsetReply(offset=3), language="JAVA")
    assert written[8:] == BINARY_RESPONSE_HEADER


header_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
sends = st.builds(
    SendMessageV2,
    producer_group=header_text,
    topic=header_text,
    queue_id=st.integers(-1, 2**31 - 1),
    sys_flag=st.integers(0, 2**31 - 1),
    born_timestamp=st.integers(0, 2**63 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    properties=st.none() | header_text,
    reconsume_times=st.none() | st.integers(0, 99),
    unit_mode=st.booleans(),
    batch=st.booleans(),
    max_reconsume_times=st.none() | st.integers(0, 99),
)


@given(
    st.sampled_from([frame.JSON, frame.ROCKETMQ, frame.MSGPACK]),
    sends,
    st.binary(max_size=50),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | header_text,
)
def test_what_is_written_is_read(
    serialization: int, ask: SendMessageV2, body: bytes, opaque: int, remark: str | None
) -> None:
    data = frame.encode(serialization, 310, opaque, 0, ask, len(body), remark) + body
    head, read_body = read(data)
    assert head.ext == ask
    assert (head.code, head.opaque, head.remark, head.language, read_body) == (310, opaque, remark, "PYTHON", body)


def test_a_json_header_is_json() -> None:
    data = frame.encode(frame.JSON, 310, 1, 0, SendReply(msg_id='quote " and \x01', queue_id=1, queue_offset=2))
    assert json.loads(data[8:])["extFields"] == {
        "msgId": 'quote " and \x01',
        "queueId": "1",
        "queueOffset": "2",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_what_the_cpp_client_writes_is_read() -> None:
    # Numbers for texts, booleans as 0 and 1, nulls for absent credentials, an empty remark.
    header = (
        b'{"code":310,"extFields":{"a":"g","b":"T","c":"TBW102","d":4,"e":2,"f":0,"g":"1700000000000","h":0,'
        b'"i":"TAGS\\u0001A","j":"0","k":"0","m":"1","Signature":null,"AccessKey":null},'
        b'"flag":0,"language":"CPP","opaque":9,"remark":"","version":333}'
    )
    ask = READER.read(frame.JSON, header).ext
    assert isinstance(ask, SendMessageV2)
    assert (ask.queue_id, ask.default_topic_queue_nums, ask.born_timestamp) == (2, 4, 1700000000000)
    assert (ask.properties, ask.unit_mode, ask.batch) == ("TAGS\x01A", False, True)
    assert frame.texts(frame.JSON, header)["d"] == "4"
    assert "Signature" not in frame.texts(frame.JSON, header)


def test_a_boolean_is_true_for_the_word_and_for_the_one_of_cpp() -> None:
    for text, value in [("true", True), ("TRUE", True), ("1", True), ("yes", False), ("0", False), ("false", False)]:
        for serialization in (frame.JSON, frame.ROCKETMQ):
            fields = {"a": "g", "b": "T", "e": "0", "f": "0", "g": "1", "h": "0", "m": text}
            data = frame.encode(serialization, 320, 1, 0, None, 0, None, fields)
            head, _ = read(data)
            assert isinstance(head.ext, SendMessageV2)
            assert head.ext.batch is value, (text, serialization)


def test_a_missing_field_is_refused_and_not_fatal() -> None:
    for serialization in (frame.JSON, frame.ROCKETMQ, frame.MSGPACK):
        head, _ = read(frame.encode(serialization, 30, 5, 0, None, 0, None, {"topic": "T1"}))
        assert isinstance(head.ext, Refused)
        assert (head.opaque, head.ext.code) == (5, 1)
        assert "queueId" in head.ext.remark


def test_a_number_that_is_none_is_refused_with_its_field() -> None:
    head, _ = read(frame.encode(frame.JSON, 30, 5, 0, None, 0, None, {"topic": "T1", "queueId": "seven"}))
    assert isinstance(head.ext, Refused)
    assert "queueId" in head.ext.remark and "seven" in head.ext.remark


def test_a_number_out_of_its_range_is_refused() -> None:
    head, _ = read(frame.encode(frame.JSON, 30, 5, 0, None, 0, None, {"topic": "T1", "queueId": str(2**31)}))
    assert isinstance(head.ext, Refused)


def test_fields_of_any_order_are_read() -> None:
    head = READER.read(frame.JSON, b'{"flag":0,"opaque":3,"extFields":{"queueId":"4","topic":"T"},"code":30}')
    assert head.ext == QueueOf(topic="T", queue_id=4)


def test_no_fields_at_all() -> None:
    head = READER.read(frame.JSON, b'{"code":34,"flag":0,"opaque":3,"extFields":null}')
    assert head.code == 34 and not isinstance(head.ext, Refused)


def test_unknown_fields_are_ignored() -> None:
    header = b'{"code":30,"extFields":{"topic":"T","queueId":"1","bname":"b","ns":"x","lo":"false"},"opaque":3}'
    assert READER.read(frame.JSON, header).ext == QueueOf(topic="T", queue_id=1)


def test_a_code_that_begins_like_another() -> None:
    assert READER.read(frame.JSON, b'{"code":200050,"extFields":{"x":"1"},"opaque":3}').code == 200050
    assert READER.read(frame.JSON, b'{"code":3101,"extFields":{"x":"1"},"opaque":3}').code == 3101


@pytest.mark.parametrize("length", [2**24 - 3, 2**31, 2**32 - 1, 0, 3])
def test_lengths_that_no_frame_has(length: int) -> None:
    with pytest.raises(ProtocolError):
        frame.split(length.to_bytes(4, "big") + b"\0\0\0\0", 0)
    with pytest.raises(ProtocolError):
        frame.split(length.to_bytes(4, "big"), 0)


def test_the_greatest_length() -> None:
    assert frame.split((2**24 - 4).to_bytes(4, "big") + b"\0\0\0\0", 0) is None
    with pytest.raises(ProtocolError):
        frame.encode(frame.JSON, 310, 1, 0, None, 2**24)


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ, frame.MSGPACK])
def test_no_frame_that_is_too_long_is_made(serialization: int) -> None:
    """Not by a few bytes: what follows the length has 2**24 - 4 bytes at most, the header among them."""
    asked = frame.encode(serialization, 30, 1, 0, QueueOf(topic="T", queue_id=3), 0)
    ways: dict[str, Callable[[int], bytes]] = {
        "a request": lambda size: frame.encode(serialization, 30, 1, 0, None, size),
        "a reply": lambda size: frame.encode_reply(serialization, 1, None, size),
        "a reply with fields": lambda size: frame.encode_reply(serialization, 1, OffsetReply(offset=1), size),
        "what is passed on": lambda size: frame.relayed(serialization, asked[8:], 1234567, size),
    }
    for way, make in ways.items():
        most = 2**24 - 4 - (len(make(0)) - 4)
        assert len(make(most)) + most == 2**24, way
        with pytest.raises(ProtocolError, match=f"a frame of {2**24 - 3} bytes is too long to send"):
            make(most + 1)


def test_a_header_longer_than_its_frame() -> None:
    with pytest.raises(ProtocolError):
        frame.split(bytes.fromhex("0000001000000020") + bytes(16), 0)


def test_a_longest_header_before_any_of_it_has_come() -> None:
    """What must not grow with its length is the time for which others wait until it is read."""
    most = frame.MAX_HEADER
    assert frame.split((most + 4).to_bytes(4, "big") + most.to_bytes(4, "big"), 0) is None
    with pytest.raises(ProtocolError, match="header of 2097153 bytes is refused: at most 2097152"):
        frame.split((most + 5).to_bytes(4, "big") + (most + 1).to_bytes(4, "big"), 0)


@given(st.integers(0, 3), st.binary(max_size=200))
def test_noise_is_a_protocol_error_or_a_header(serialization: int, data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        READER.read(serialization, data)


@given(st.integers(0, 2), st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_header_is_a_protocol_error_or_a_header(serialization: int, at: int, byte: int) -> None:
    ask = PullMessage(
        consumer_group="g",
        topic="T",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=0,
        suspend_timeout_millis=15000,
        sub_version=1,
    )
    data = bytearray(frame.encode(serialization, 11, 1, 0, ask, 0, "remark")[8:])
    data[at % len(data)] = byte
    with contextlib.suppress(ProtocolError):
        READER.read(serialization, bytes(data))


def test_deep_json_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        READER.read(frame.JSON, b'{"code":30,"extFields":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@given(sends, st.sampled_from(["a", "b", "i", "x"]), st.binary(max_size=30))
def test_sends_are_read_alike_the_quick_way_and_the_ordinary_way(ask: SendMessageV2, name: str, noise: bytes) -> None:
    ask.born_timestamp = 1_700_000_000_000 + ask.born_timestamp % 1000
    # Values that look like the entries of a header must not mislead the quick way.
    tricky = ask.as_binary() + write_binary_fields({name: (b"\0\1g\0\0\0\x0d1700000000000" + noise).decode("latin1")})
    for fields in (ask.as_binary(), tricky, ask.as_binary() + noise):
        quick = read_send(fields)
        try:
            ordinary = from_fields(SendMessageV2, read_binary_fields(fields))
        except (ProtocolError, Refused):
            assert quick is None
        else:
            assert quick is None or quick == ordinary


def test_the_quick_way_is_taken() -> None:
    ask = SendMessageV2(
        producer_group="g",
        topic="T",
        queue_id=1,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="A\1b",
    )
    assert read_send(ask.as_binary()) == ask
    assert read_send(ask.as_binary()) == ask  # and again, from memory


@given(st.sampled_from([frame.JSON, frame.ROCKETMQ, frame.MSGPACK]), st.integers(-(2**31), 2**31 - 1), header_text)
def test_the_commonest_reply_is_written_like_any_other(serialization: int, opaque: int, text: str) -> None:
    for header in (SendReply(msg_id=text, queue_id=1, queue_offset=2), None):
        written = frame.encode_reply(serialization, opaque, header, 3)
        assert written == frame.encode(serialization, 0, opaque, 1, header, 3)


offsets = st.integers(0, 10**17)


@given(offsets, offsets, st.sampled_from(["consumerGroup", "subscription", "queueOffset", "x"]), st.binary(max_size=30))
def test_pulls_are_read_alike_the_quick_way_and_the_ordinary_way(
    offset: int, committed: int, name: str, noise: bytes
) -> None:
    ask = PullMessage(
        consumer_group="g",
        topic="T",
        queue_id=1,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=committed,
        suspend_timeout_millis=15000,
    )
    tricky = ask.as_binary() + write_binary_fields({name: (b"\0\x0bqueueOffset\0\0\0\x011" + noise).decode("latin1")})
    for fields in (ask.as_binary(), tricky, tricky.replace(b"\x011", b"\x017"), ask.as_binary() + noise):
        quick = read_pull(fields)
        try:
            ordinary = from_fields(PullMessage, read_binary_fields(fields))
        except (ProtocolError, Refused):
            assert quick is None
        else:
            assert quick is None or quick == ordinary
    assert read_pull(ask.as_binary()) == ask
    ask.queue_offset += 1
    assert read_pull(ask.as_binary()) == ask


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ, frame.MSGPACK])
def test_a_request_that_is_passed_on_keeps_its_fields_and_what_is_signed_of_them(serialization: int) -> None:
    extra = {"AccessKey": "k", "Signature": "s", "unknown": 'Ü"\\'}
    ask = QueueOf(topic="T", queue_id=3)
    whole = frame.encode(serialization, 30, 77, frame.ONEWAY_FLAG, ask, 5, None, extra, "CPP", 100) + b"body!"
    found = frame.split(whole, 0)
    assert found is not None
    data = whole[found[1] : found[2]]
    passed_on = frame.relayed(serialization, data, 1234567, 5) + b"body!"
    split = frame.split(passed_on, 0)
    assert split is not None and (split[0], split[3]) == (serialization, len(passed_on))
    again = passed_on[split[1] : split[2]]
    head = frame.read(serialization, again)
    assert (head.code, head.opaque, head.flag) == (30, 1234567, frame.ONEWAY_FLAG | frame.RELAYED_FLAG)
    assert (head.language, head.version, passed_on[split[2] :]) == ("CPP", 100, b"body!")
    assert frame.texts(serialization, again) == frame.texts(serialization, data)
    assert frame.texts(serialization, again)["unknown"] == extra["unknown"]
