"""A topic whose only master is gone: sends that wait find the next one as soon as a nameserver names it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca.client import ClientSettings, Message, Producer
from eruca.client.errors import TopicNotFound
from tests.broker.services.replication.pairs import caught_up, followed, master_of, slave_of
from tests.support.names import Names


async def test_a_send_finds_the_next_master_within_its_time(tmp_path: Path) -> None:
    async with Names(tmp_path) as names:
        master = master_of(tmp_path / "1")
        master.config.namesrv_addr = names.address
        await master.start()
        slave = slave_of(tmp_path / "2", master.broker.ha_address)
        slave.config.namesrv_addr = names.address
        settings = ClientSettings(nameserver=names.address)
        async with slave, Producer("P", settings=settings, send_timeout=15.0) as producer:
            await producer.send(Message("T", b"before"))
            await followed(master)
            await caught_up(master, slave)
            await master.stop()
            while 0 in (await names.brokers())["broker-a"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            waiting = asyncio.create_task(producer.send(Message("T", b"meanwhile")))
            other = ClientSettings(nameserver=names.address, instance_name="other")
            async with Producer("Q", settings=other, send_timeout=15.0) as another:
                first = asyncio.create_task(another.send(Message("T", b"by one that never saw the master")))
                with pytest.raises(TopicNotFound, match="None of its brokers has a master now: broker-a"):
                    await another.send(Message("T", b"no time"), timeout=0.5)
                assert not waiting.done() and not first.done()
                await master.start()
                async with asyncio.timeout(5):
                    await asyncio.gather(waiting, first)
            await master.stop()
