"""Answers to sends that are read in one go say what the ordinary way reads."""

from __future__ import annotations

import pytest

from eruca.protocol import frame
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.headers.send import SendReply
from eruca.protocol.templates import Stored, StoredAnswer, read_stored_binary, read_stored_json

ID = "7F00000100002A9F000000000001E240"
APACHE_JSON = (
    b'{"code":0,"extFields":{"queueId":"3","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"7F00000100002A9F000000000001E240","queueOffset":"7"},"flag":1,"language":"JAVA","opaque":12,'
    b'"serializeTypeCurrentRPC":"JSON","version":399}'
)
BINARY_FIELDS = (
    b"\0\x05msgId\0\0\0\x207F00000100002A9F000000000001E240\0\x07queueId\0\0\0\x013\0\x0bqueueOffset\0\0\0\x017"
)


def binary(fields: bytes, *, code: int = 0, flag: int = 1) -> bytes:
    """A ROCKETMQ header with these fields."""
    start = code.to_bytes(2, "big") + b"\0\x01\x8f\0\0\0\x0c" + flag.to_bytes(4, "big") + bytes(4)
    return start + len(fields).to_bytes(4, "big") + fields


def reply(**given: object) -> SendReply:
    return SendReply(**({"msg_id": ID, "queue_id": 3, "queue_offset": 123_456} | given))  # type: ignore[arg-type]


Told = tuple[int, str, int, int, str | None, str, bool]
"""Opaque, message id, queue id, offset, transaction id, region, and whether messages are to be traced."""


def ordinary(serialization: int, header: bytes) -> Told | None:
    """What the ordinary way reads of an answer with code 0."""
    try:
        head = frame.read(serialization, header)
        if head.code or head.flag != frame.RESPONSE_FLAG:
            return None
        found = frame.typed(SendReply, head)
    except (ProtocolError, Refused):
        return None
    return head.opaque, *values(found)


def read(serialization: int, header: bytes) -> StoredAnswer | None:
    """What is read in one go."""
    if serialization != frame.JSON:
        return read_stored_binary(header)
    try:
        return read_stored_json(header)
    except frame.UNREADABLE:
        return None


def told(answer: StoredAnswer) -> Told:
    return answer.opaque, *values(answer.stored)


def values(found: SendReply | Stored) -> tuple[str, int, int, str | None, str, bool]:
    return found.msg_id, found.queue_id, found.queue_offset, found.transaction_id, found.region, found.trace_on


ANSWERS = [
    *(
        (serialization, frame.encode(serialization, 0, 2**31 - 1, frame.RESPONSE_FLAG, header)[8:])
        for serialization in (frame.JSON, frame.ROCKETMQ)
        for header in (
            reply(),
            reply(queue_offset=2**53, queue_id=0),
            reply(msg_id=",".join([ID] * 32)),
            reply(transaction_id="7F0000010001"),
            reply(region="eu", trace_on=False),
        )
    ),
    (frame.JSON, APACHE_JSON),
    (frame.ROCKETMQ, binary(BINARY_FIELDS)),
    (frame.ROCKETMQ, binary(BINARY_FIELDS + b"\0\x08TRACE_ON\0\0\0\x04true\0\x0aMSG_REGION\0\0\0\x0dDefaultRegion")),
]


@pytest.mark.parametrize(("serialization", "header"), ANSWERS)
def test_brokers_answers_are_read_in_one_go(serialization: int, header: bytes) -> None:
    answer = read(serialization, header)
    assert answer is not None
    assert told(answer) == ordinary(serialization, header)


@pytest.mark.parametrize(
    ("serialization", "header"),
    [
        *(
            (serialization, frame.encode(serialization, *what)[8:])
            for serialization in (frame.JSON, frame.ROCKETMQ)
            for what in (
                (10, 1, 1, reply()),  # stored, but not flushed
                (1, 1, 1, None, 0, "refused"),
                (0, 1, 1, None),
                (0, 1, 1, reply(), 0, "with a remark"),
                (310, 1, 0, reply()),
            )
            if what != (0, 1, 1, reply(), 0, "with a remark") or serialization == frame.ROCKETMQ
        ),
        (frame.MSGPACK, frame.encode(frame.MSGPACK, 0, 1, 1, reply())[8:]),
        (frame.JSON, b"{"),
        (frame.ROCKETMQ, b""),
        (frame.ROCKETMQ, binary(BINARY_FIELDS + b"\0\x07queueId\0\0\0\x014")),
        (frame.ROCKETMQ, binary(BINARY_FIELDS.replace(b"queueId\0\0\0\x013", b"queueId\0\0\0\x00"))),
    ],
)
def test_all_others_are_left_to_the_ordinary_way(serialization: int, header: bytes) -> None:
    assert read(serialization, header) is None


@pytest.mark.parametrize(("serialization", "header"), ANSWERS)
def test_what_is_damaged_is_read_as_the_ordinary_way_reads_it_or_not_at_all(serialization: int, header: bytes) -> None:
    for place in range(min(len(header), 200)):
        for byte in (0, 0x31, 0x7F, header[place] ^ 1):
            damaged = header[:place] + bytes((byte,)) + header[place + 1 :]
            answer = read(serialization, damaged)
            assert answer is None or told(answer) == ordinary(serialization, damaged), damaged
        cut = header[:place]
        answer = read(serialization, cut)
        assert answer is None or told(answer) == ordinary(serialization, cut), cut
