"""A master that hangs: its sends go to the broker that leads in its place, and to no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eruca.client import ClientSettings, Message, Producer
from tests.support.scripted import SILENT, Scripted


class Group:
    """A master, and a broker of its name that may lead in its place, as a nameserver says."""

    def __init__(self, names: Scripted, master: Scripted, other: Scripted) -> None:
        self.names = names
        self.master = master
        self.other = other
        self.settings = ClientSettings(nameserver=names.address)

    def is_led_by(self, broker: Scripted) -> None:
        """The nameserver names this one."""
        self.names.leads("T", {"broker-a": broker.address})


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    async with Scripted("names") as names, Scripted("broker-a") as master, Scripted("broker-a") as other:
        group = Group(names, master, other)
        group.is_led_by(master)
        yield group


async def until_asked_again(names: Scripted) -> None:
    """Wait until the route was asked for once more."""
    asked = len(names.asked)
    async with asyncio.timeout(10):
        while len(names.asked) == asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_sends_leave_a_master_that_hangs_when_another_one_leads(group: Group) -> None:
    async with Producer("P", settings=group.settings, send_timeout=30) as producer:
        await producer.send(Message("T", b"before"))
        group.master.answers.extend([SILENT] * 3)
        ordered = asyncio.ensure_future(producer.send(Message("T", b"by key"), ordered_by="key"))
        plain = [asyncio.ensure_future(producer.send(Message("T", b"plain"))) for _ in range(2)]
        await until_asked_again(group.names)
        assert not any(send.done() for send in (ordered, *plain))
        group.is_led_by(group.other)
        async with asyncio.timeout(5):
            await asyncio.gather(ordered, *plain)
    assert len(group.master.sends) == 4
    assert sorted(group.other.bodies) == [b"by key", b"plain", b"plain"]


async def test_a_send_that_connects_to_a_master_that_hangs_goes_to_the_one_that_leads(group: Group) -> None:
    """The system takes the connection, and nobody answers the heartbeat: that is not the end of the send's time."""
    group.master.heartbeats_answered.clear()
    settings = ClientSettings(nameserver=group.names.address, request_timeout=1.0)
    async with Producer("P", settings=settings, send_timeout=30) as producer:
        send = asyncio.ensure_future(producer.send(Message("T", b"x")))
        async with asyncio.timeout(10):
            while not group.master.heartbeats:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        group.is_led_by(group.other)
        async with asyncio.timeout(10):
            await send
        group.master.heartbeats_answered.set()
    assert group.other.bodies == [b"x"] and group.master.bodies == []


async def test_sends_stay_with_a_broker_that_is_slow_while_no_other_one_leads(group: Group) -> None:
    async with Producer("P", settings=group.settings, send_timeout=30) as producer:
        await producer.send(Message("T", b"before"))
        group.master.delay = 3.0
        slow = asyncio.ensure_future(producer.send(Message("T", b"slow")))
        await until_asked_again(group.names)
        await until_asked_again(group.names)
        assert (await slow).offset == 1
    assert group.master.bodies == [b"before", b"slow"]


async def test_sends_stay_with_a_former_master_that_answers(group: Group) -> None:
    async with Producer("P", settings=group.settings, send_timeout=30) as producer:
        await producer.send(Message("T", b"before"))
        group.master.delay = 1.0
        passed_on = asyncio.ensure_future(producer.send(Message("T", b"passed on")))
        group.is_led_by(group.other)
        assert (await passed_on).offset == 1
    assert group.other.bodies == []


async def test_nothing_runs_when_no_send_is_under_way(group: Group) -> None:
    async with Producer("P", settings=group.settings) as producer:
        await producer.send(Message("T", b"1"))
        async with asyncio.timeout(10):
            while any("Silence" in str(task.get_coro()) for task in asyncio.all_tasks()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert group.names.asked.count("T") == 1
