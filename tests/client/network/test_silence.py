"""A broker that hangs: sends and pulls go to the one that leads in its place, and to no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from eruca.client import ClientSettings, LitePullConsumer, Message, Producer, PullConsumer, PushConsumer
from eruca.client.network import silence
from eruca.protocol.headers.pull import PullReply
from eruca.protocol.queues import MessageQueue
from tests.support.scripted import SILENT, Scripted

WITHIN = silence.QUIET + silence.SILENT + silence.LOOK + 3.0
"""Seconds in which pulls have left a broker that hangs, on a busy machine."""


class Group:
    """A master, and a broker of its name that may lead in its place, as a nameserver says."""

    def __init__(self, names: Scripted, master: Scripted, other: Scripted) -> None:
        self.names = names
        self.master = master
        self.other = other
        self.settings = ClientSettings(nameserver=names.address)

    def is_led_by(self, broker: Scripted) -> None:
        """The nameserver names this one, and no slave."""
        self.names.leads("T", {"broker-a": broker.address})

    def has_slave(self) -> None:
        """The nameserver names the master, and the other one as its slave."""
        self.names.leads("T", {"broker-a": self.master.address}, slave=self.other.address)


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    async with Scripted("names") as names, Scripted("broker-a") as master, Scripted("broker-a") as other:
        group = Group(names, master, other)
        group.is_led_by(master)
        yield group


async def until(true: Callable[[], object]) -> None:
    """Wait until it is true."""
    async with asyncio.timeout(2 * WITHIN):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_asked_again(names: Scripted) -> None:
    """Wait until the route was asked for once more."""
    asked = names.asked.count("T")
    await until(lambda: names.asked.count("T") > asked)


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
        assert producer.session.silence.runs
        await until(lambda: not producer.session.silence.runs)
        assert group.names.asked.count("T") == 1


# ------------------------------------------------------------------ pulls, which brokers hold

QUEUE = MessageQueue("T", "broker-a", 0)


class Pulls:
    """One consumer whose pull is held by the master."""

    def __init__(self, group: Group, kind: str) -> None:
        self._group = group
        self._kind = kind
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> None:
        settings, enter = self._group.settings, self._stack.enter_async_context
        if self._kind == "push":
            push = PushConsumer("G", settings=settings)
            push.subscribe("T")
            await enter(push)
        elif self._kind == "lite pull":
            await enter(LitePullConsumer("G", settings=settings).subscribe("T"))
        else:
            puller = await enter(PullConsumer("G", settings=settings))
            pull = asyncio.create_task(puller.pull_block_if_not_found(QUEUE, 7))
            self._stack.callback(pull.cancel)
        await until(lambda: self._group.master.pulls)

    async def __aexit__(self, *_: object) -> None:
        self._group.master.go_on()
        await self._stack.aclose()


@pytest.fixture(params=["push", "lite pull", "pull"])
async def pulls(group: Group, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    group.has_slave()
    async with Pulls(group, request.param):
        yield


async def test_pulls_leave_a_master_that_hangs_when_another_one_leads(group: Group, pulls: None) -> None:
    """Members of a group are told by the new master; a client that only pulls asks by itself."""
    group.master.hang()
    group.other.tell("G")
    await until_asked_again(group.names)
    assert group.other.pulls == []
    group.is_led_by(group.other)
    async with asyncio.timeout(silence.SILENT):  # the pause after an error is no part of it
        await until(lambda: group.other.pulls)
    there, here = group.other.pulls[0], group.master.pulls[-1]
    assert there.queue_offset == here.queue_offset
    assert group.master.least_asked <= 1, "a question that waits is not put again"


async def test_a_held_pull_that_goes_elsewhere_is_held_there_for_what_is_left(group: Group) -> None:
    group.has_slave()
    async with Pulls(group, "pull"):
        group.master.hang()
        await until(lambda: group.master.least_asked)
        group.is_led_by(group.other)
        await until(lambda: group.other.pulls)
        (there,), (here,) = group.other.pulls, group.master.pulls
        assert 0 < there.suspend_timeout_millis <= here.suspend_timeout_millis - silence.QUIET * 1000


async def test_pulls_stay_with_a_broker_that_holds_them_and_answers(group: Group, pulls: None) -> None:
    group.is_led_by(group.other)
    async with asyncio.timeout(2 * WITHIN):
        while group.master.least_asked < 2:
            group.other.tell("G")
            await asyncio.sleep(0.01)
    assert group.names.asked.count("T") == 1
    assert group.other.pulls == []


async def test_a_broker_whose_place_nobody_could_take_is_not_asked(group: Group) -> None:
    """It is alone under its name. The other consumer's broker, which has a slave, is asked meanwhile."""
    async with Scripted("names") as names:
        names.leads("T", {"broker-a": group.other.address})
        alone = Group(names, group.other, group.master)
        group.names.leads("T", {"broker-a": group.master.address}, slave=group.other.address)
        async with Pulls(alone, "pull"), Pulls(group, "pull"):
            await until(lambda: group.master.least_asked >= 2)
    assert group.other.least_asked == 0


async def test_a_pull_leaves_a_slave_that_hangs(group: Group) -> None:
    """The master sends the consumer to its slave, which then says nothing: it reads from the master again, at the next
    change of the group."""
    group.has_slave()
    there = PullReply(suggest_which_broker_id=1, next_begin_offset=3, min_offset=3, max_offset=9)
    group.master.moved.append(there)
    group.other.hang()
    async with PushConsumer("G", settings=group.settings).subscribe("T"):
        await until(lambda: group.other.pulls)
        asked = len(group.master.pulls)
        group.master.tell("G")
        await until(lambda: len(group.master.pulls) > asked)
        group.other.go_on()
