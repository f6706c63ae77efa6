"""A slave that cannot take its master's log in: it keeps, confirms and promises nothing of it, and says why."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from eruca.broker.config import BrokerRole
from eruca.broker.store import verify
from tests.broker.services.replication.pairs import (
    FILE,
    caught_up,
    end,
    filled,
    log_bytes,
    master_of,
    send_fields,
    slave_of,
    until,
)
from tests.support.desk import Desk

DONE, SLAVE_NOT_AVAILABLE = 0, 11
SEND, RUNTIME = 310, 28


async def as_it_is(slave: Desk) -> None:
    """Nothing is done to it."""


async def with_another_log(slave: Desk) -> None:
    """It has a message of another master."""
    async with master_of(slave.folder) as other:
        filled(other, 1, topic="Foreign")


async def without_room(slave: Desk) -> None:
    slave.disk.full = "commitlog"


async def with_room(slave: Desk) -> None:
    slave.disk.full = None


async def emptied_with_the_masters_size(slave: Desk) -> None:
    """As the sentence says."""
    await slave.stop()
    slave.config.store.mapped_file_size_commit_log = FILE
    shutil.rmtree(slave.folder / "store")
    await slave.start()


class Case(NamedTuple):
    """Why a slave refuses its master's log, and what helps."""

    reason: str
    file_size: int = FILE
    before: Callable[[Desk], Awaitable[None]] = as_it_is
    """What is done to the slave before it starts."""
    has: int = 20
    """The messages that the master has then."""
    more: int = 0
    """The messages that come when the slave is there."""
    remedy: Callable[[Desk], Awaitable[None]] = emptied_with_the_masters_size


REFUSED = {
    "smaller files here": Case("set the same mappedFileSizeCommitLog", 4 << 10),
    "larger files here": Case("set the same mappedFileSizeCommitLog", 2 * FILE, more=60),
    "files that begin elsewhere": Case("no multiple of mappedFileSizeCommitLog", 3 * FILE, has=60),
    "another log": Case("has another log", before=with_another_log),
    "no room": Case("cannot be written: No space left", before=without_room, remedy=with_room),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_nothing_of_a_refused_copy_stays_or_counts_and_the_slave_says_why_until_it_is_mended(
    tmp_path: Path, case: Case
) -> None:
    slave = slave_of(tmp_path / "slave", "", file_size=case.file_size)
    await case.before(slave)
    with capture_logs() as said:
        async with master_of(tmp_path / "master", BrokerRole.SYNC_MASTER) as master:
            master.topic("T", 2)
            filled(master, case.has)
            slave.config.store.ha_master_address = master.broker.ha_address
            await slave.start()
            try:
                await until(lambda: bool(connections(said)))
                filled(master, case.more, first=case.has)
                await until(lambda: case.reason in slave.broker.readiness.reasons.get("master", ""))
                await refused_again(master, slave, case, said)
                await case.remedy(slave)
                await until(lambda: end(slave) == end(master))
                await until(lambda: slave.broker.readiness.ready and master.broker.slaves.in_reach)
                assert "notReady" not in await figures(slave)
                assert (await master.ask(SEND, send_fields(1), b"x")).code == DONE
                await caught_up(master, slave)
            finally:
                await slave.stop()
            assert log_bytes(slave).items() <= log_bytes(master).items()
            assert verify(tmp_path / "slave" / "store").findings == []


async def refused_again(master: Desk, slave: Desk, case: Case, said: Sequence[Mapping[str, Any]]) -> None:
    """The slave tries again three times, more and more rarely; at no moment does the master count it."""
    loop, slaves, before = asyncio.get_running_loop(), master.broker.slaves, end(slave)
    await until(lambda: not slaves.connected)
    begun, tries = loop.time(), len(connections(said))
    while len(connections(said)) < tries + 3 or slaves.connected:
        assert not slaves.in_reach and slaves.status().in_sync_slave_nums == 0
        assert case.reason in slave.broker.readiness.reasons["master"]
        assert not slave.broker.ha_client.status(0).ha_client_runtime_info.activated
        await asyncio.sleep(0.001)
    assert loop.time() - begun > 0.5
    assert case.reason in (await figures(slave))["notReady"]
    assert (await master.ask(SEND, send_fields(0), b"x")).code == SLAVE_NOT_AVAILABLE
    assert end(slave) == before and slaves.confirmed <= before
    assert slave.broker.store.replicator.whole_offset == before
    assert len([line for line in said if case.reason in line.get("reason", "")]) == 1, "one line a minute"


def connections(said: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [line for line in said if line["event"] == "slave_connected"]


async def figures(slave: Desk) -> dict[str, str]:
    """What mqadmin brokerStatus shows."""
    found: dict[str, str] = json.loads((await slave.ask(RUNTIME)).body)["table"]
    return found


async def with_a_lower_limit(slave: Desk) -> None:
    slave.config.store.max_message_size = 10


async def damaged(master: Desk) -> None:
    """The body of a message is another one."""
    unit = master.broker.store.unit("T", 0, 3)
    assert unit is not None
    view = master.broker.store.commit_log.view(*unit[:2])
    assert view is not None
    view[90:94] = b"oops"


TAKEN = {
    "damage at the master": (damaged, as_it_is, 1),
    "messages that are too large for sends to the slave": (as_it_is, with_a_lower_limit, 0),
}


@pytest.mark.parametrize(("of_master", "of_slave", "damages"), TAKEN.values(), ids=TAKEN)
async def test_what_a_slave_copies_as_it_is_does_not_hold_it_up(
    tmp_path: Path,
    of_master: Callable[[Desk], Awaitable[None]],
    of_slave: Callable[[Desk], Awaitable[None]],
    damages: int,
) -> None:
    async with master_of(tmp_path / "master", BrokerRole.SYNC_MASTER) as master:
        filled(master, 20)
        await of_master(master)
        slave = slave_of(tmp_path / "slave", master.broker.ha_address)
        await of_slave(slave)
        async with slave:
            await until(lambda: end(slave) == end(master))
            filled(master, 60, first=20)
            await caught_up(master, slave)
            assert slave.broker.readiness.ready and master.broker.slaves.in_reach
            assert slave.broker.store.figures().damaged_records == damages
            assert log_bytes(slave) == log_bytes(master)
