"""What the port promises, of a real etcd of three members and of the fake that other tests use."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from eruca.broker.coordination.etcd import Etcd
from eruca.broker.coordination.port import ABSENT, Coordinator, HoldEnded, OutcomeUnknown, Put, Unavailable
from tests.support.coordination import FakeCoordinator
from tests.support.etcd import EtcdCluster, needs_etcd
from tests.support.proxy import Proxy

NUMBERS = count()


class World(ABC):
    """A coordination service, and what a test does to it. Each has its own keys."""

    coordinator: Coordinator

    def __init__(self) -> None:
        self.prefix = f"/test/{next(NUMBERS)}/"

    @abstractmethod
    async def expired(self, seconds: float) -> None:
        """Let a hold of so many seconds end."""

    @abstractmethod
    def go_away(self) -> None:
        """Answer nobody."""

    @abstractmethod
    def come_back(self) -> None:
        """Answer again."""

    @abstractmethod
    def lose_an_answer(self) -> None:
        """Lose the answer to the next request."""

    @abstractmethod
    async def end(self) -> None:
        """Leave nothing behind."""


class FakeWorld(World):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = self._fake = FakeCoordinator()

    async def expired(self, seconds: float) -> None:
        self._fake.pass_time(seconds)

    def go_away(self) -> None:
        self._fake.away = True

    def come_back(self) -> None:
        self._fake.return_again()

    def lose_an_answer(self) -> None:
        self._fake.lost_answers = 1

    async def end(self) -> None:
        await self.coordinator.close()


class EtcdWorld(World):
    """Each member is behind a proxy."""

    def __init__(self, proxies: list[Proxy]) -> None:
        super().__init__()
        self._proxies = proxies
        self.coordinator = Etcd([f"http://{proxy.address}" for proxy in proxies])

    async def expired(self, seconds: float) -> None:
        async with asyncio.timeout(seconds + 5):
            while await self.coordinator.read_all(self.prefix):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def go_away(self) -> None:
        for proxy in self._proxies:
            proxy.blocked = True
            proxy.cut()

    def come_back(self) -> None:
        for proxy in self._proxies:
            proxy.blocked = False

    def lose_an_answer(self) -> None:
        for proxy in self._proxies:
            proxy.cut_after = proxy.forwarded + 1

    async def end(self) -> None:
        await self.coordinator.close()
        for proxy in self._proxies:
            await proxy.stop()


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(params=["fake", pytest.param("etcd", marks=[needs_etcd, pytest.mark.processes])])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world: World
    if request.param == "fake":
        world = FakeWorld()
    else:
        members = request.getfixturevalue("members")
        world = EtcdWorld([await Proxy(address).start() for address in members.addresses])
    yield world
    await world.end()


async def put(world: World, name: str, value: bytes, hold: int | None = None) -> int:
    """A key that was absent; its revision."""
    key = world.prefix + name
    revision = await world.coordinator.change({key: ABSENT}, [Put(key, value, hold)])
    assert revision is not None
    return revision


# ---------------------------------------------------------------------- read, change


async def test_a_key_is_read_with_the_revision_of_its_last_change(world: World) -> None:
    key = world.prefix + "group"
    assert await world.coordinator.read(key) is None
    first = await put(world, "group", b"\0one\xff")
    assert await world.coordinator.read(key) == (b"\0one\xff", first)
    second = await world.coordinator.change({key: first}, [Put(key, b"")])
    assert second is not None and second > first
    assert await world.coordinator.read(key) == (b"", second)


async def test_a_change_is_made_only_if_the_key_is_as_it_was_seen(world: World) -> None:
    key = world.prefix + "group"
    first = await put(world, "group", b"one")
    assert await world.coordinator.change({key: ABSENT}, [Put(key, b"two")]) is None
    assert await world.coordinator.change({key: first + 1}, [Put(key, b"two")]) is None
    assert await world.coordinator.change({world.prefix + "other": first}, [Put(key, b"two")]) is None
    assert await world.coordinator.read(key) == (b"one", first)


async def test_of_two_who_saw_the_same_one_makes_the_change(world: World) -> None:
    key = world.prefix + "group"
    first = await put(world, "group", b"one")
    made = await asyncio.gather(
        *(world.coordinator.change({key: first}, [Put(key, b"%d" % each)]) for each in range(8))
    )
    (revision,) = [each for each in made if each is not None]
    assert await world.coordinator.read(key) == (b"%d" % made.index(revision), revision)


async def test_a_change_of_several_keys_is_made_whole_or_not_at_all(world: World) -> None:
    group, master = world.prefix + "group", world.prefix + "master"
    first = await put(world, "group", b"one")
    assert await world.coordinator.change({group: first, master: first}, [Put(group, b"2"), Put(master, b"m")]) is None
    assert await world.coordinator.read_all(world.prefix) == {group: (b"one", first)}
    second = await world.coordinator.change({group: first, master: ABSENT}, [Put(group, b"2"), Put(master, b"m")])
    assert await world.coordinator.read_all(world.prefix) == {group: (b"2", second), master: (b"m", second)}
    assert await world.coordinator.change({master: second or 0}, [Put(group, b"3")], [master]) is not None
    assert [*(await world.coordinator.read_all(world.prefix))] == [group]
    assert await world.coordinator.read(master) is None


async def test_keys_are_read_by_their_beginning_in_order(world: World) -> None:
    for name in ("members/2", "members/10", "members0", "member", "members/1"):
        await put(world, name, name.encode())
    found = await world.coordinator.read_all(world.prefix + "members/")
    assert [key.removeprefix(world.prefix) for key in found] == ["members/1", "members/10", "members/2"]


# ---------------------------------------------------------------------- hold


async def test_a_key_goes_when_its_hold_is_not_renewed(world: World) -> None:
    hold = await world.coordinator.hold(2)
    await put(world, "master", b"me", hold)
    assert await world.coordinator.read(world.prefix + "master") is not None
    await world.expired(2)
    assert await world.coordinator.read(world.prefix + "master") is None
    with pytest.raises(HoldEnded):
        await world.coordinator.renew(hold)
    with pytest.raises(HoldEnded):
        await put(world, "master", b"me", hold)


async def test_a_key_stays_while_its_hold_is_renewed(world: World) -> None:
    hold, other = await world.coordinator.hold(60), await world.coordinator.hold(2)
    await world.coordinator.renew(hold)
    await put(world, "other", b"", other)
    await world.expired(2)
    await put(world, "master", b"me", hold)
    await world.coordinator.renew(hold)
    assert await world.coordinator.read(world.prefix + "master") is not None


async def test_a_released_hold_takes_its_keys_along_and_may_be_released_again(world: World) -> None:
    hold = await world.coordinator.hold(60)
    await put(world, "master", b"me", hold)
    kept = await put(world, "group", b"one")
    await world.coordinator.release(hold)
    assert await world.coordinator.read_all(world.prefix) == {world.prefix + "group": (b"one", kept)}
    await world.coordinator.release(hold)
    with pytest.raises(HoldEnded):
        await world.coordinator.renew(hold)


async def test_a_key_that_is_put_without_its_hold_outlives_it(world: World) -> None:
    key, hold = world.prefix + "master", await world.coordinator.hold(60)
    first = await put(world, "master", b"me", hold)
    second = await world.coordinator.change({key: first}, [Put(key, b"for ever")])
    await world.coordinator.release(hold)
    assert await world.coordinator.read(key) == (b"for ever", second)


# ---------------------------------------------------------------------- watch


async def turn(watch: AsyncIterator[None]) -> None:
    async with asyncio.timeout(8):
        await anext(watch)


async def test_a_watch_has_a_turn_at_first_and_after_each_change(world: World) -> None:
    watch = world.coordinator.watch(world.prefix)
    await turn(watch)
    first = await put(world, "group", b"one")
    await turn(watch)
    key = world.prefix + "group"
    await world.coordinator.change({key: first}, [], [key])
    await turn(watch)


async def test_a_watch_has_a_turn_when_a_hold_ends(world: World) -> None:
    await put(world, "master", b"me", await world.coordinator.hold(2))
    watch = world.coordinator.watch(world.prefix)
    await turn(watch)
    gone = asyncio.create_task(turn(watch))
    await world.expired(2)
    await gone


async def test_a_watch_has_a_turn_when_the_service_is_back(world: World) -> None:
    watch = world.coordinator.watch(world.prefix)
    await turn(watch)
    world.go_away()
    back = asyncio.create_task(turn(watch))
    await asyncio.sleep(0)
    assert not back.done()
    world.come_back()
    await put(world, "group", b"one")
    await back


# ---------------------------------------------------------------------- faults


async def test_a_service_that_is_away_answers_nothing_and_within_the_deadline(world: World) -> None:
    hold = await world.coordinator.hold(60)
    world.go_away()
    async with asyncio.timeout(4):
        for asked in (
            world.coordinator.read(world.prefix),
            world.coordinator.read_all(world.prefix),
            world.coordinator.hold(3),
            world.coordinator.renew(hold),
            world.coordinator.release(hold),
            world.coordinator.change({}, [Put(world.prefix + "group", b"one")]),
        ):
            with pytest.raises(Unavailable):
                await asked
    world.come_back()
    assert await world.coordinator.read_all(world.prefix) == {}


async def test_a_change_whose_answer_is_lost_may_have_been_made_and_is_not_repeated(world: World) -> None:
    key = world.prefix + "group"
    first = await put(world, "group", b"one")
    world.lose_an_answer()
    with pytest.raises(OutcomeUnknown):
        await world.coordinator.change({key: first}, [Put(key, b"two")])
    world.come_back()
    found = await world.coordinator.read(key)
    assert found is not None and found.value == b"two" and found.revision > first
