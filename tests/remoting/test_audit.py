"""The audit log: requests that a route declares as changes leave one line each, whatever becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from eruca.protocol import api
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.offsets import OffsetReply, QueueOf
from eruca.remoting import Call, Channels, Reply, Router, Routes
from eruca.remoting.audit import LONGEST
from eruca.remoting.router import Guard
from eruca.remoting.server import Server
from tests.support.pairs import eventually
from tests.support.peers import Peer

routes: Routes[asyncio.Event] = Routes()


@routes.on(api.GET_MAX_OFFSET, changes=lambda ask: f"queue {ask.queue_id} of {ask.topic}")
def plain(begun: asyncio.Event, call: Call[QueueOf]) -> Reply:
    return _moved(call)


def _moved(call: Call[QueueOf]) -> Reply:
    if call.header.queue_id < 0:
        raise Refused(ResponseCode.SYSTEM_ERROR, "no such queue")
    if call.header.queue_id > 9:
        raise KeyError(call.header.queue_id)
    call.note(before=1, after="x" * 2000)
    return Reply(header=OffsetReply(offset=1))


@routes.on(api.GET_MIN_OFFSET, costly=True, changes="a queue")
async def costly(begun: asyncio.Event, call: Call[QueueOf]) -> Reply:
    call.note(target=f"queue {call.header.queue_id}")
    begun.set()
    if call.header.queue_id == 5:
        await asyncio.Event().wait()
    return _moved(call)


@routes.on(api.GET_BROKER_RUNTIME_INFO)
def reading(begun: asyncio.Event, call: Call[Empty]) -> Reply:
    return Reply()


@asynccontextmanager
async def serving(*guards: Guard) -> AsyncIterator[tuple[asyncio.Event, Channels, str]]:
    begun = asyncio.Event()
    server, channels = Server(Router(begun, [routes], guards=guards)), Channels()
    await server.start("127.0.0.1", 0)
    yield begun, channels, f"127.0.0.1:{server.port}"
    await channels.close()
    await server.stop()


def of(queue_id: int) -> QueueOf:
    return QueueOf(topic="T", queue_id=queue_id)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "eruca.audit")
    return caplog


def audited(lines: pytest.LogCaptureFixture) -> list[str]:
    found = [each.getMessage() for each in lines.records if each.name == "eruca.audit"]
    lines.clear()
    return found


async def test_each_outcome_of_a_change_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    async with serving() as (_, channels, address):
        await channels.call(address, api.GET_BROKER_RUNTIME_INFO, Empty())
        assert audited(lines) == []
        await channels.call(address, api.GET_MAX_OFFSET, of(3))
        (line,) = audited(lines)
        assert "request_code=30" in line and "account='none' request='GET_MAX_OFFSET' target='queue 3 of T'" in line
        assert f"before='1' after='{'x' * LONGEST}...+{2000 - LONGEST}' result='done'" in line
        for ask, endpoint in ((of(-1), api.GET_MAX_OFFSET), (of(-1), api.GET_MIN_OFFSET)):
            with pytest.raises(Refused):
                await channels.call(address, endpoint, ask)
            (line,) = audited(lines)
            assert "result='refused' response_code=1 reason='no such queue'" in line
        with pytest.raises(Refused):
            await channels.call(address, api.GET_MIN_OFFSET, of(10))
        (line,) = audited(lines)
        assert "target='queue 10'" in line and "result='refused' response_code=1 reason='KeyError: 10'" in line
        connection = await channels.get(address)
        connection.oneway(api.GET_MAX_OFFSET, of(4))
        await eventually(lambda: any("queue 4" in each.getMessage() for each in lines.records))


async def test_what_a_guard_refuses_is_a_line_also_if_its_header_cannot_be_read(
    lines: pytest.LogCaptureFixture,
) -> None:
    def closed(call: Call[QueueOf]) -> None:
        raise Refused(ResponseCode.NO_PERMISSION, "closed")

    async with serving(closed) as (_, channels, address):
        with pytest.raises(Refused):
            await channels.call(address, api.GET_MAX_OFFSET, of(3))
        (line,) = audited(lines)
        assert "target='queue 3 of T'" in line and "result='refused' response_code=16 reason='closed'" in line
        peer = await Peer().connect(address)
        assert (await peer.ask(30, {})).code == 16
        await peer.close()
        (line,) = audited(lines)
        assert "target='not readable'" in line and "result='refused'" in line


async def test_a_connection_that_ends_meanwhile_leaves_a_line(lines: pytest.LogCaptureFixture) -> None:
    async with serving() as (begun, channels, address):
        asked = channels.call(address, api.GET_MIN_OFFSET, of(5))
        waiting = asyncio.ensure_future(asked)
        await begun.wait()
        await channels.close()
        await asyncio.gather(waiting, return_exceptions=True)
        await eventually(lambda: any("result='unknown'" in each.getMessage() for each in lines.records))
        assert len(audited(lines)) == 1
