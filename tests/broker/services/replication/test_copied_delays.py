"""Messages that wait while the master is lost: the slave that becomes the master delivers each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from eruca.broker.config import BrokerRole
from eruca.broker.state.delay_mark import DelayMark, Deliveries
from eruca.protocol.record import Record, decode_record
from tests.broker.services.replication.pairs import end, master_of, send_fields, slave_of, until
from tests.support.desk import Desk

LEVEL_2, TIMER = "DELAY\x012", "TIMER_DELAY_MS\x015000"
"""Both wait for 5 s."""


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Desk]:
    async with master_of(tmp_path / "master") as desk:
        desk.topic("T")
        yield desk


@pytest.fixture
async def slave(tmp_path: Path, master: Desk) -> AsyncIterator[Desk]:
    async with slave_of(tmp_path / "slave", master.broker.ha_address) as desk:
        yield desk


async def send(desk: Desk, *names: bytes) -> None:
    """Two messages of each name: one waits by its level, one by a delay of its own."""
    for name in names:
        for properties, kind in ((LEVEL_2, b"level"), (TIMER, b"timer")):
            answer = await desk.ask(310, send_fields(0, properties=properties), kind + b" " + name)
            assert answer.code == 0, answer


def come(desk: Desk) -> Counter[bytes]:
    """What lies in the topic itself."""
    store = desk.broker.store
    units = store.units("T", 0, 0, store.max_offset("T", 0))
    return Counter(decode_record(store.record(unit[0]) or b"").body for unit in units)


def each_once(*names: bytes) -> Counter[bytes]:
    return Counter(kind + b" " + name for name in names for kind in (b"level", b"timer"))


async def passes(desk: Desk, millis: int) -> None:
    """Let time pass, and what is due be delivered."""
    desk.now += millis
    desk.broker.delays.deliver(desk.now, desk.passed())
    desk.broker.store.drain()


Promoted = Callable[[Desk], Awaitable[Desk]]


@pytest.fixture(params=["restarted", "running"])
def promoted(request: pytest.FixtureRequest) -> Promoted:
    """Makes the slave a master: by a start, or while it runs."""

    async def by_a_start(slave: Desk) -> Desk:
        slave.config.store.broker_role = BrokerRole.ASYNC_MASTER
        await slave.restart()
        return slave

    async def while_it_runs(slave: Desk) -> Desk:
        assert (await slave.ask(25, {}, b"brokerRole=ASYNC_MASTER")).code == 0
        return slave

    return by_a_start if request.param == "restarted" else while_it_runs


async def fetch(slave: Desk, master: Desk) -> None:
    await slave.broker.table_sync.fetch(master.app.address)


def mark_of(desk: Desk) -> Deliveries | None:
    """What its file holds."""
    mark = DelayMark(desk.folder / "store" / "eruca.delays")
    mark.load()
    return mark.current


async def followed(slave: Desk, master: Desk) -> None:
    await until(lambda: end(slave) == end(master))
    slave.now = master.now


async def test_what_the_master_delivered_does_not_come_again_and_all_else_does(
    master: Desk, slave: Desk, promoted: Promoted
) -> None:
    await send(master, b"one", b"two")
    await passes(master, 6000)
    await followed(slave, master)
    await fetch(slave, master)
    mark = mark_of(slave)
    assert mark is not None and mark.copied and mark.levels == {2: 2}
    await send(master, b"three")
    await passes(master, 6000)  # delivered after the note
    await send(master, b"four")
    await followed(slave, master)
    await master.stop()
    await promoted(slave)
    assert come(slave) == each_once(b"one", b"two", b"three")
    await passes(slave, 4000)
    assert come(slave) == each_once(b"one", b"two", b"three")
    await passes(slave, 2000)
    assert come(slave) == each_once(b"one", b"two", b"three", b"four")
    await master.start()


async def test_a_delivery_that_was_not_copied_is_made_again(master: Desk, slave: Desk, promoted: Promoted) -> None:
    """The master says that it has delivered, and is lost with the copy."""
    await send(master, b"one")
    await followed(slave, master)
    await slave.broker.ha_client.stop()
    await passes(master, 6000)
    assert come(master) == each_once(b"one")
    await fetch(slave, master)
    assert slave.broker.delays.offsets.table == {2: 1}
    slave.now = master.now
    await promoted(slave)
    await passes(slave, 0)
    assert come(slave) == each_once(b"one")


async def test_what_a_busy_master_said_counts_when_the_log_has_come_so_far(
    master: Desk, slave: Desk, promoted: Promoted
) -> None:
    await send(master, b"one")
    await followed(slave, master)
    await slave.broker.ha_client.stop()
    await passes(master, 6000)
    await fetch(slave, master)
    assert mark_of(slave) is None
    slave.broker.ha_client.start()
    await followed(slave, master)
    await slave.broker.ha_client.stop()
    await send(master, b"two")
    await fetch(slave, master)  # again more than is here; what it said before is reached
    mark = mark_of(slave)
    assert mark is not None and mark.levels == {2: 1}
    await promoted(slave)
    await passes(slave, 0)
    assert come(slave) == each_once(b"one")


async def test_without_a_note_the_log_tells(master: Desk, slave: Desk, promoted: Promoted) -> None:
    await send(master, b"one", b"two")
    await passes(master, 6000)
    await send(master, b"three")
    await followed(slave, master)
    assert not (slave.folder / "store" / "eruca.delays").exists()
    await promoted(slave)
    await passes(slave, 6000)
    assert come(slave) == each_once(b"one", b"two", b"three")


async def test_a_master_that_becomes_a_slave_and_a_master_again_goes_on(
    master: Desk, slave: Desk, promoted: Promoted
) -> None:
    await send(master, b"one")
    await passes(master, 6000)
    await send(master, b"two")
    await followed(slave, master)
    await fetch(slave, master)
    await master.stop()
    await promoted(slave)
    await passes(slave, 6000)
    master.config.store.broker_role = BrokerRole.SLAVE
    master.config.broker_id = 1
    master.config.store.ha_master_address = slave.broker.ha_address
    await master.start()
    await followed(master, slave)
    await send(slave, b"three")
    await followed(master, slave)
    await slave.stop()
    await promoted(master)
    await passes(master, 6000)
    assert come(master) == each_once(b"one", b"two", b"three")
    await slave.start()


async def test_a_promotion_does_not_read_again_what_the_start_has_read(master: Desk, slave: Desk) -> None:
    """The pause of a failover must not grow with the log since the last mark."""
    await send(master, b"one")
    await passes(master, 6000)
    await send(master, b"two")
    await followed(slave, master)
    await slave.restart()
    await followed(slave, master)
    await master.stop()
    store, read = slave.broker.store, []
    plain = store.records_since

    def noted(position: int) -> Iterator[Record]:
        for record in plain(position):
            read.append(record.body)
            yield record

    store.records_since = noted  # type: ignore[method-assign]
    assert (await slave.ask(25, {}, b"brokerRole=ASYNC_MASTER")).code == 0
    assert read == []
    await passes(slave, 6000)
    assert come(slave) == each_once(b"one", b"two")
    await master.start()


async def test_what_a_lost_master_said_does_not_count_when_another_ones_log_has_come_so_far(
    tmp_path: Path, master: Desk, slave: Desk
) -> None:
    """The next master has not delivered the message yet: its clock is behind."""
    async with slave_of(tmp_path / "next", master.broker.ha_address) as following:
        await send(master, b"one")
        slave.config.store.ha_master_address = following.broker.ha_address  # from its next connection on
        for each in (slave, following):
            await until(lambda each=each: end(each) == end(master))  # type: ignore[misc]
            await each.broker.ha_client.stop()
        await slave.broker.table_sync.stop()  # the test fetches
        slave.broker.table_sync.follow(master.app.address)
        await passes(master, 6000)
        await fetch(slave, master)
        assert (await following.ask(25, {}, b"brokerRole=ASYNC_MASTER")).code == 0
        following.topic("T")
        slave.broker.ha_client.start()
        slave.broker.table_sync.follow(following.app.address)
        while end(following) < end(master):
            assert (await following.ask(310, send_fields(0), b"other")).code == 0
        await followed(slave, following)
        await slave.broker.ha_client.stop()
        assert (await following.ask(310, send_fields(0), b"last")).code == 0
        await fetch(slave, following)  # more than is here
        assert (await slave.ask(25, {}, b"brokerRole=ASYNC_MASTER")).code == 0
        await passes(slave, 6000)
        assert come(slave) & each_once(b"one") == each_once(b"one")


async def test_what_a_master_said_to_a_broker_whose_disk_hung_is_not_taken_for_its_logs(
    master: Desk, slave: Desk
) -> None:
    await send(master, b"one")
    await followed(slave, master)
    await slave.broker.ha_client.stop()
    slave.broker.delays.rest()
    slave.broker.delays.copied.end()
    await passes(master, 6000)
    await fetch(slave, master)
    slave.broker.delays.stand_by()  # the disk goes on
    slave.now = master.now
    assert (await slave.ask(25, {}, b"brokerRole=ASYNC_MASTER")).code == 0
    await passes(slave, 0)
    assert come(slave) == each_once(b"one")
