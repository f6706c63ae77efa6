"""Answers of a kind that came before are read in one go; each call gets its own all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eruca.protocol import api, frame
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Empty, Header
from eruca.protocol.headers.offsets import OffsetReply, TimestampReply
from eruca.protocol.headers.send import SendReply
from eruca.remoting import Answer
from eruca.remoting.calls import Calls


class Asked:
    """Calls whose answers come as bytes, the way a connection brings them; ``ways`` tells how each was read."""

    def __init__(self) -> None:
        self.calls = Calls(asyncio.get_running_loop())
        self.ways: list[str] = []

    def ask(self, opaque: int, endpoint: api.Endpoint[Any, Any]) -> asyncio.Future[Answer[Any]]:
        future: asyncio.Future[Answer[Any]] = asyncio.get_running_loop().create_future()
        self.calls.add(opaque, future, endpoint, 60.0)
        return future

    def answer(self, opaque: int, header: Header | None, code: int = 0, *, flag: int = 1, body: bytes = b"") -> None:
        written = frame.encode(frame.JSON, code, opaque, flag, header, len(body), "why" if code else None)[8:]
        data = written + body
        if self.calls.answered_as_expected(written, data, len(written), len(data)):
            self.ways.append("in one go")
        else:
            self.ways.append("in two steps")
            self.calls.answered(frame.read(frame.JSON, written), body)


def stored(offset: int) -> SendReply:
    return SendReply(msg_id="7F00000100002A9F000000000001E240", queue_id=1, queue_offset=offset)


async def test_answers_of_one_kind_are_read_in_one_go_after_the_first() -> None:
    asked = Asked()
    sends = [asked.ask(opaque, api.SEND_MESSAGE_V2) for opaque in range(3)]
    asked.answer(1, stored(11), body=b"one")
    asked.answer(0, stored(10), code=10)
    asked.answer(2, stored(12))
    assert asked.ways == ["in two steps", "in one go", "in one go"]
    answers = [await each for each in sends]
    assert [each.header.queue_offset for each in answers] == [10, 11, 12]
    assert [(each.code, each.remark, each.body) for each in answers] == [
        (10, "why", b""),
        (0, None, b"one"),
        (0, None, b""),
    ]
    assert [(each.language, each.version) for each in answers] == [("PYTHON", 407)] * 3
    assert len(asked.calls) == 0


async def test_kinds_in_turn_are_not_mixed_up() -> None:
    asked = Asked()
    for opaque in range(0, 40, 4):
        sent = asked.ask(opaque, api.SEND_MESSAGE_V2)
        offset = asked.ask(opaque + 1, api.GET_MAX_OFFSET)
        time = asked.ask(opaque + 2, api.GET_EARLIEST_MSG_STORETIME)
        beat = asked.ask(opaque + 3, api.HEART_BEAT)
        asked.answer(opaque + 2, TimestampReply(timestamp=5))
        asked.answer(opaque, stored(opaque))
        asked.answer(opaque + 3, None)
        asked.answer(opaque + 1, OffsetReply(offset=opaque))
        assert isinstance((await beat).header, Empty)
        assert ((await sent).header, (await offset).header) == (stored(opaque), OffsetReply(offset=opaque))
        assert (await time).header == TimestampReply(timestamp=5)


async def test_a_refusal_after_many_answers() -> None:
    asked = Asked()
    sends = [asked.ask(opaque, api.SEND_MESSAGE_V2) for opaque in range(4)]
    asked.answer(0, stored(1))
    asked.answer(1, None, code=2)
    asked.answer(2, stored(2), code=14)
    asked.answer(3, OffsetReply(offset=3))
    for opaque, (code, remark) in ((1, (2, "why")), (2, (14, "why"))):
        with pytest.raises(Refused) as refused:
            await sends[opaque]
        assert (refused.value.code, refused.value.remark) == (code, remark)
    with pytest.raises(ProtocolError, match="SEND_MESSAGE_V2 was answered"):
        await sends[3]


async def test_a_late_answer_and_a_request_disturb_nothing() -> None:
    asked = Asked()
    first, second = asked.ask(1, api.SEND_MESSAGE_V2), asked.ask(2, api.SEND_MESSAGE_V2)
    asked.answer(1, stored(1))
    asked.answer(9, stored(9))
    written = frame.encode(frame.JSON, 40, 2, 0, stored(2))[8:]
    assert not asked.calls.answered_as_expected(written, written, len(written), len(written))
    second.cancel()
    asked.answer(2, stored(2))
    assert (await first).header.queue_offset == 1 and second.cancelled() and len(asked.calls) == 0
