"""Costly requests: one of a connection at a time, in order; one-way copies of reads; slices of the loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from eruca.protocol import api
from eruca.protocol.errors import Refused
from eruca.protocol.headers.offsets import OffsetReply, QueueOf, TimestampReply
from eruca.remoting import Call, Channels, Connection, Reply, Router, Routes
from eruca.remoting.costly import MOST_WAITING
from eruca.remoting.server import Server
from eruca.remoting.slices import in_thread, sliced
from tests.support.pairs import eventually


class Desk:
    """What the handlers below have done, and may go on with."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.changed: list[int] = []
        self.go_on = asyncio.Semaphore(0)


routes: Routes[Desk] = Routes()


@routes.on(api.GET_MAX_OFFSET, reads=True, costly=True)
async def costly(desk: Desk, call: Call[QueueOf]) -> Reply:
    desk.begun.append(call.header.queue_id)
    await desk.go_on.acquire()
    return Reply(header=OffsetReply(offset=call.header.queue_id))


@routes.on(api.GET_MIN_OFFSET, reads=True)
def cheap(desk: Desk, call: Call[QueueOf]) -> Reply:
    desk.begun.append(call.header.queue_id)
    return Reply(header=OffsetReply(offset=call.header.queue_id))


@routes.on(api.GET_EARLIEST_MSG_STORETIME, costly=True)
def change(desk: Desk, call: Call[QueueOf]) -> Reply:
    if call.header.queue_id < 0:
        raise Refused(16, "no such queue" if call.header.queue_id == -1 else "no queue \ud800")
    desk.changed.append(call.header.queue_id)
    return Reply(header=TimestampReply(timestamp=0))


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Desk, Server, Channels, Connection]]:
    desk = Desk()
    server = Server(Router(desk, [routes]))
    await server.start("127.0.0.1", 0)
    channels = Channels()
    try:
        yield desk, server, channels, await channels.get(f"127.0.0.1:{server.port}")
    finally:
        await channels.close()
        await server.stop(grace=0.2)


def of(queue: int) -> QueueOf:
    return QueueOf(topic="T", queue_id=queue)


async def test_costly_requests_of_a_connection_come_one_after_the_other_and_hold_up_nothing_else() -> None:
    async with serving() as (desk, server, _, connection):
        asked = [connection.start_call(api.GET_MAX_OFFSET, of(number)) for number in range(3)]
        assert (await connection.call(api.GET_MIN_OFFSET, of(9))).header.offset == 9
        others = Channels()
        other = await others.get(f"127.0.0.1:{server.port}")
        theirs = other.start_call(api.GET_MAX_OFFSET, of(7))
        await eventually(lambda: 7 in desk.begun and 0 in desk.begun)
        assert sorted(desk.begun) == [0, 7, 9], "each connection has its own order"
        for _ in range(4):
            desk.go_on.release()
        assert [(await each).header.offset for each in (*asked, theirs)] == [0, 1, 2, 7]
        assert [number for number in desk.begun if number < 7] == [0, 1, 2]
        await others.close()


async def test_refusals_and_plain_handlers_may_be_costly_too() -> None:
    async with serving() as (desk, _, _, connection):
        good, bad, last = (connection.start_call(api.GET_EARLIEST_MSG_STORETIME, of(number)) for number in (1, -1, 2))
        assert (await good).code == 0
        with pytest.raises(Refused, match="no such queue"):
            await bad
        assert (await last).code == 0 and desk.changed == [1, 2]


async def test_a_remark_that_is_no_text_is_answered_and_holds_up_no_other() -> None:
    async with serving() as (desk, _, _, connection):
        odd, last = (connection.start_call(api.GET_EARLIEST_MSG_STORETIME, of(number)) for number in (-2, 2))
        with pytest.raises(Refused, match="surrogates not allowed"):
            await odd
        assert (await last).code == 0 and desk.changed == [2]


async def test_more_than_may_wait_are_refused() -> None:
    async with serving() as (desk, _, _, connection):
        asked = [connection.start_call(api.GET_MAX_OFFSET, of(0), timeout=30)]
        await eventually(lambda: desk.begun == [0])
        for number in range(1, MOST_WAITING + 1):
            asked.append(connection.start_call(api.GET_MAX_OFFSET, of(number), timeout=30))
        with pytest.raises(Refused, match=f"{MOST_WAITING} costly requests of this connection wait already"):
            await connection.call(api.GET_MAX_OFFSET, of(1000))
        for _ in asked:
            desk.go_on.release()
        assert [(await each).header.offset for each in asked] == list(range(MOST_WAITING + 1))


async def test_no_more_than_32_mib_wait() -> None:
    async with serving() as (desk, _, _, connection):
        asked = [connection.start_call(api.GET_MAX_OFFSET, of(0), bytes(15 << 20), timeout=30)]
        await eventually(lambda: desk.begun == [0])
        for number in (1, 2):
            asked.append(connection.start_call(api.GET_MAX_OFFSET, of(number), bytes(15 << 20), timeout=30))
        with pytest.raises(Refused, match="2 costly requests of this connection wait already"):
            await connection.call(api.GET_MAX_OFFSET, of(3), bytes(15 << 20))
        for _ in asked:
            desk.go_on.release()
        assert [(await each).header.offset for each in asked] == [0, 1, 2]


async def test_a_connection_that_ends_takes_what_waits_with_it() -> None:
    async with serving() as (desk, server, channels, connection):
        for number in range(3):
            connection.start_call(api.GET_MAX_OFFSET, of(number)).add_done_callback(lambda asked: asked.exception())
        await eventually(lambda: desk.begun == [0])
        await channels.close()
        await eventually(lambda: not server.connections)
        desk.go_on.release()
        other = Channels()
        assert (await other.call(f"127.0.0.1:{server.port}", api.GET_MAX_OFFSET, of(5))).header.offset == 5
        assert desk.begun == [0, 5]
        await other.close()


async def test_one_way_copies_of_reads_are_dropped_and_those_of_changes_are_not() -> None:
    async with serving() as (desk, _, _, connection):
        connection.oneway(api.GET_MAX_OFFSET, of(1))
        connection.oneway(api.GET_MIN_OFFSET, of(2))
        connection.oneway(api.GET_EARLIEST_MSG_STORETIME, of(3))
        await connection.call(api.GET_EARLIEST_MSG_STORETIME, of(4))
        assert (desk.begun, desk.changed) == ([], [3, 4])


async def test_in_each_turn_of_the_loop_one_work_has_a_slice() -> None:
    begun: list[int] = []

    async def work(number: int) -> None:
        async for _ in sliced(range(3)):
            begun.append(number)
            until = asyncio.get_running_loop().time() + 0.002
            while asyncio.get_running_loop().time() < until:
                pass

    before = 0
    works = [asyncio.create_task(work(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert sorted(begun) == [0, 1, 2, 3, 4]
    while not all(each.done() for each in works):
        before = len(begun)
        await asyncio.sleep(0)
        assert len(begun) - before <= 1
    assert len(begun) == 15


async def test_long_works_in_the_thread_come_one_after_the_other_and_few_wait() -> None:
    usual = sys.getswitchinterval()
    at_work: list[int] = []
    most = 0

    def work() -> int:
        nonlocal most
        assert sys.getswitchinterval() < 0.001, "the loop comes soon to its turn"
        at_work.append(1)
        most = max(most, len(at_work))
        at_work.pop()
        return 7

    async def asked() -> int:
        try:
            return await in_thread(work)
        except Refused as refused:
            return refused.code

    assert sorted(await asyncio.gather(*(asked() for _ in range(20)))) == [2] * 4 + [7] * 16
    assert most == 1
    assert await in_thread(work) == 7
    assert sys.getswitchinterval() == usual


def test_loops_with_work_at_the_same_time_leave_the_turns_of_threads_as_they_were() -> None:
    usual = sys.getswitchinterval()
    began, may_end = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]

    def loop(number: int) -> None:
        def work() -> None:
            began[number].set()
            may_end[number].wait(30)

        asyncio.run(in_thread(work))

    loops = [threading.Thread(target=loop, args=(number,)) for number in range(2)]
    for number, each in enumerate(loops):
        each.start()
        assert began[number].wait(30)
    for number, each in enumerate(loops):
        may_end[number].set()
        each.join()
    left = sys.getswitchinterval()
    sys.setswitchinterval(usual)  # the next test is not to suffer from it
    assert left == usual
