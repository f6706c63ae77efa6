"""What a master asks of etcd when it changes its mind before etcd was asked: only what it wants now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from eruca.broker.coordination.port import Put, Unavailable
from eruca.broker.failover import group as groups
from eruca.broker.failover.events import Changed, Event, NotChanged, Propose
from eruca.broker.failover.group import Group
from eruca.broker.failover.member import Known, Member, State
from eruca.broker.services.failover.etcd_calls import EtcdCalls
from eruca.broker.services.failover.kept import Kept
from eruca.broker.services.failover.ports import Office, Pace, Self
from eruca.remoting.clock import boottime_ms
from tests.support.coordination import FakeClient, FakeCoordinator
from tests.support.failover_groups import KEYS, until

ME = Self(1, "store-1", "broker-1:10911", "broker-1:10912", 0, founds=True)
TWO = groups.found(1, "store-1").change(frozenset((1, 2)), {2: "store-2"})
ONE, THREE = TWO.change(frozenset((1,)), {}), TWO.change(frozenset((1, 2, 3)), {3: "store-3"})


class Client(FakeClient):
    """Of the calls that change the group, the first one fails as the test wants."""

    def __init__(self, fake: FakeCoordinator) -> None:
        super().__init__(fake)
        self.wanted: list[Group] = []
        """The groups that etcd was asked for."""
        self.on_first = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.fails = False

    async def change(self, seen: Mapping[str, int], puts: Sequence[Put], deletes: Sequence[str] = ()) -> int | None:
        asked = [groups.decode(put.value) for put in puts if put.key == KEYS.group]
        if asked:
            self.wanted += asked
            self.on_first.set()
            await self.goes_on.wait()
            if self.fails and len(self.wanted) == 1:
                raise Unavailable("the fake is away")
        return await super().change(seen, puts, deletes)


class Driver:
    """A master that has ``TWO`` in mind, and wants something else."""

    def __init__(self) -> None:
        self.member = Member(1, "store-1", state=State.MASTER)
        self.events: list[Event] = []

    def post(self, event: Event) -> None:
        self.events.append(event)


class World:
    """The calls of a master, and etcd, which has the group ``TWO``."""

    def __init__(self, client: Client, calls: EtcdCalls, driver: Driver, revision: int) -> None:
        self.client = client
        self.revision = revision
        self._calls = calls
        self._driver = driver

    def want(self, group: Group, revision: int) -> None:
        """Have the master propose that, and nothing else any more."""
        self._driver.member = replace(self._driver.member, known=Known(TWO, revision), proposed=group)
        self._calls.propose(Propose(group, revision))

    def heard(self, kind: type[Event]) -> bool:
        """Whether the master was told so."""
        return any(isinstance(event, kind) for event in self._driver.events)


@pytest.fixture
async def world(etcd: FakeCoordinator) -> AsyncIterator[World]:
    client, driver = Client(etcd), Driver()
    revision = await FakeClient(etcd).change({}, [Put(KEYS.group, groups.encode(TWO))])
    assert revision is not None
    pace = Pace(again=0.2, doubt=60)
    calls = EtcdCalls(ME, KEYS, client, driver, Kept(cast(Office, None)), boottime_ms, pace)
    running = asyncio.create_task(calls.run())
    yield World(client, calls, driver, revision)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_was_refused_is_not_asked_for_again_when_something_else_is_wanted_meanwhile(world: World) -> None:
    world.want(ONE, world.revision - 1)
    await until(lambda: world.heard(NotChanged))
    world.want(ONE, world.revision - 1)  # the same again: not at once
    for _ in range(10):
        await asyncio.sleep(0)
    world.want(THREE, world.revision)
    await until(lambda: world.heard(Changed))
    assert world.client.wanted == [ONE, THREE]


async def test_a_call_that_failed_is_not_made_again_when_something_else_is_wanted_meanwhile(world: World) -> None:
    world.client.goes_on.clear()
    world.client.fails = True
    world.want(ONE, world.revision)
    await world.client.on_first.wait()
    world.want(THREE, world.revision)
    world.client.goes_on.set()
    await until(lambda: world.heard(Changed))
    assert world.client.wanted == [ONE, THREE]
