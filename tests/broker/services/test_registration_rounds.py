"""Topics that change side by side, at nameservers: each has its route, whatever happens to a registration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from eruca.broker.services.registration_rounds import MOST_ALONE, Rounds, release
from tests.support.desk import Desk
from tests.support.names import Names
from tests.support.pairs import eventually
from tests.support.proxy import Proxy

CREATE, DELETE, WIPE_WRITE_PERMISSION, SEND = 17, 215, 205, 310


@pytest.fixture
async def proxy(names: Names) -> AsyncIterator[Proxy]:
    proxy = await Proxy(names.address).start()
    yield proxy
    await proxy.stop()


def broker(folder: Path, *nameservers: str) -> Desk:
    desk = Desk(folder)
    desk.config.namesrv_addr = ";".join(nameservers)
    return desk


def settings(topic: str) -> dict[str, object]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }


def message(topic: str) -> dict[str, object]:
    return dict(zip("abcdefgh", ("pg", topic, "TBW102", 4, 0, 0, 1_700_000_000_000, 0), strict=True))


async def made(desk: Desk, topics: Iterable[str], *at: Names) -> list[str]:
    """Make topics side by side; those of which a nameserver has no route when that is answered."""

    async def make(topic: str) -> bool:
        assert (await desk.ask(CREATE, settings(topic))).code == 0
        return None in [await each.route(topic) for each in at]

    return [topic for topic, lacks in [(name, asyncio.create_task(make(name))) for name in topics] if await lacks]


async def connected(proxy: Proxy, count: int) -> None:
    await eventually(lambda: proxy.connections == count)


def some(count: int) -> list[str]:
    return [f"Topic{number}" for number in range(count)]


async def lacking(names: Names, topics: Iterable[str]) -> list[str]:
    return [topic for topic in topics if await names.route(topic) is None]


async def test_each_of_three_hundred_topics_made_at_once_has_a_route_when_that_is_answered(
    tmp_path: Path, names: Names
) -> None:
    async with Names(tmp_path / "other") as other, broker(tmp_path, names.address, other.address) as desk:
        before = names.server.table.registrations
        assert await made(desk, some(300), names, other) == []
        assert names.server.table.registrations - before < 100, "those that share a save share a registration"


async def test_each_topic_that_comes_by_a_send_has_a_route_however_late_a_nameserver_answers(
    tmp_path: Path, names: Names, proxy: Proxy
) -> None:
    async with broker(tmp_path, proxy.address) as desk:
        proxy.delay = 0.05
        before = names.server.table.registrations
        answers = await asyncio.gather(*(desk.ask(SEND, message(topic), b"x") for topic in some(100)))
        assert {answer.code for answer in answers} == {0}
        await desk.broker.registration.register_changed()
        assert await lacking(names, some(100)) == []
        assert names.server.table.registrations - before < 20, "what changes while one is under way goes together"


async def test_a_change_carries_what_changed_and_nothing_else(tmp_path: Path, names: Names, proxy: Proxy) -> None:
    """So a topic that was made gives no other one its write permission back."""
    async with broker(tmp_path, proxy.address) as desk:
        await made(desk, some(50))
        assert (await names.peer.ask(WIPE_WRITE_PERMISSION, {"brokerName": "broker-a"})).code == 0
        sent = len(proxy.sent[0])
        assert await made(desk, ["New"], names) == []
        assert len(proxy.sent[0]) - sent < 1000
        wiped, new = await names.route("Topic7"), await names.route("New")
        assert wiped is not None and new is not None
        assert (wiped.queue_datas[0].perm, new.queue_datas[0].perm) == (4, 6)
        await desk.ask(SEND, message("Sent"), b"x")
        wiped = await names.route("Topic7")
        assert wiped is not None and wiped.queue_datas[0].perm == 4


async def test_a_nameserver_that_lost_the_connection_gets_all_topics_with_the_next_registration(
    tmp_path: Path, names: Names, proxy: Proxy
) -> None:
    """It has forgotten the broker by then, and with it the topics of the registrations before."""
    async with broker(tmp_path, proxy.address) as desk:
        await made(desk, some(20))
        for number in range(3):
            proxy.cut()
            await made(desk, [f"New{number}"])  # by the connection that was cut, or by the next one
            await connected(proxy, number + 2)
            await desk.broker.registration.register_changed()
            assert await lacking(names, [*some(20), f"New{number}", "TBW102"]) == []


async def test_what_was_made_while_a_nameserver_could_not_be_reached_is_known_when_it_can(
    tmp_path: Path, names: Names, proxy: Proxy
) -> None:
    async with Names(tmp_path / "other") as other, broker(tmp_path, other.address, proxy.address) as desk:
        proxy.blocked = True
        proxy.cut()
        assert await made(desk, some(100), other) == []
        assert (await desk.ask(DELETE, {"topic": "Topic7"})).code == 0
        proxy.blocked = False
        await desk.broker.registration.register_changed()
        assert await lacking(names, some(100)) == ["Topic7"]


async def test_a_registration_without_an_answer_is_made_again_with_all_topics(
    tmp_path: Path, names: Names, proxy: Proxy
) -> None:
    """Nobody knows whether the nameserver has taken it."""
    desk = broker(tmp_path, proxy.address)
    desk.config.register_broker_timeout_mills = 100
    async with desk:
        await made(desk, some(10))
        proxy.delay = 0.3
        await made(desk, ["Late"])
        assert not desk.broker.registration.registered
        proxy.delay = 0
        sent = len(proxy.sent[0])
        assert await made(desk, ["New"], names) == []
        assert proxy.connections == 1
        assert b'"Topic7"' in proxy.sent[0][sent:] and b'"Late"' in proxy.sent[0][sent:]


def test_only_over_the_connection_of_the_last_answer_the_changed_topics_are_enough() -> None:
    rounds = Rounds()
    assert rounds.in_doubt
    rounds.changed("Before")
    assert rounds.carried("one") is None
    rounds.changed("A")
    rounds.changed("B")
    assert rounds.carried("one") == ["A", "B"]
    assert rounds.carried("one") == []
    rounds.changed("C")
    assert rounds.carried("two") is None
    rounds.changed("D")
    rounds.doubt()
    assert rounds.in_doubt and rounds.carried("two") is None


def test_the_whole_table_goes_when_very_many_topics_have_changed() -> None:
    rounds = Rounds()
    rounds.carried("one")
    for number in range(MOST_ALONE):
        rounds.changed(f"T{number}")
    assert not rounds.in_doubt
    rounds.changed("One more")
    assert rounds.in_doubt and rounds.carried("one") is None


async def test_who_asks_during_a_registration_waits_for_the_next_one() -> None:
    rounds = Rounds()
    first = rounds.over()
    waiting = rounds.begin()
    second = rounds.over()
    release(waiting)
    assert first.done() and not second.done() and rounds.due.is_set()
    release(rounds.begin())
    assert second.done() and not rounds.due.is_set()


async def test_nobody_waits_for_a_nameserver_that_gets_no_registrations() -> None:
    rounds = Rounds()
    waiter = rounds.over()
    rest = asyncio.create_task(rounds.rest(60))
    await waiter
    assert rounds.over().done()
    rest.cancel()
    await asyncio.wait([rest])
    waiter = rounds.over()
    assert not waiter.done()
    rounds.end()
    assert waiter.done() and rounds.over().done()
