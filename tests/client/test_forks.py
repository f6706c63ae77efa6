"""Programs that fork: a client belongs to the process that made it, and says so elsewhere; new ones work there."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from eruca.client import LitePullConsumer, Message, MessageQueue, Producer, PullConsumer, SendStatus
from eruca.client.errors import ForkedClient

pytestmark = pytest.mark.processes

QUEUE = MessageQueue("T", "broker-a", 0)


def in_a_child(method: str, work: Callable[..., None], *args: Any) -> list[str]:
    """What ``work(pipe, *args)`` said in a process that was started by this method."""
    context: Any = multiprocessing.get_context(method)
    here, there = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, which is what is tested
        child = context.Process(target=work, args=(there, *args))
        child.start()
    there.close()
    said = []
    try:
        while here.poll(60):
            said.append(here.recv())
    except EOFError:
        pass
    child.join(30)
    assert child.exitcode == 0
    return said


def use_them(pipe: Connection, calls: list[Callable[[], Any]], address: str) -> None:
    async def use(call: Callable[[], Any]) -> None:
        try:
            await call()
        except ForkedClient as error:
            pipe.send(str(error))

    for call in calls:
        asyncio.run(use(call))
    send_one(pipe, address)


def send_one(pipe: Connection, address: str) -> None:
    async def work() -> None:
        async with Producer("p", nameserver=address) as producer:
            pipe.send((await producer.send(Message("T", b"child"), queue=QUEUE)).status.name)

    asyncio.run(work())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_what_was_made_before_a_fork_is_refused_and_new_ones_work(address: str) -> None:
    loop = asyncio.new_event_loop()
    producer = Producer("p", nameserver=address)
    puller = PullConsumer(nameserver=address)
    lite = LitePullConsumer("l", nameserver=address)
    lite.assign([QUEUE])
    loop.run_until_complete(producer.start())
    loop.run_until_complete(producer.create_topic("T", 1))
    loop.run_until_complete(puller.start())
    loop.run_until_complete(lite.start())
    try:
        calls = [
            lambda: producer.send(Message("T", b"x")),
            lambda: producer.send_oneway(Message("T", b"x")),
            lambda: producer.send_batch([Message("T", b"x")]),
            lambda: puller.max_offset(QUEUE),
            lambda: lite.poll(0.1),
        ]
        *refusals, sent = in_a_child("fork", use_them, calls, address)
        assert sent == "SEND_OK" and len(refusals) == len(calls)
        assert all(each.startswith("This client was made before a fork") for each in refusals)
        # Nothing of this has hurt the parent's.
        assert loop.run_until_complete(producer.send(Message("T", b"parent"))).status is SendStatus.SEND_OK
        assert loop.run_until_complete(puller.max_offset(QUEUE)) == 2
    finally:
        for client in (lite, puller, producer):
            loop.run_until_complete(client.stop())
        loop.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_of_multiprocessing_makes_its_own(address: str, method: str) -> None:
    assert in_a_child(method, send_one, address) == ["SEND_OK"]
