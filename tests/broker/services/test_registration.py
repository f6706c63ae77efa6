"""One name, one master, as brokers see it: who is refused says so, and gets the name when it is free."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.services import registration
from tests.support.desk import Desk
from tests.support.eruca import ErucaBroker
from tests.support.names import Names
from tests.support.pairs import eventually
from tests.support.proxy import Proxy
from tests.support.stopwatch import Stopwatch


def broker(folder: Path, names: Names) -> Desk:
    """A master of the one name; each has its own port, as if each had a machine of its own."""
    desk = Desk(folder)
    desk.config.namesrv_addr = names.address
    return desk


async def test_a_second_master_of_a_name_is_refused_and_says_so_once_a_period(tmp_path: Path, names: Names) -> None:
    async with broker(tmp_path / "a", names) as first:
        second = broker(tmp_path / "b", names)
        with capture_logs() as said:
            async with second:
                for _ in range(3):
                    await second.broker.registration.register_all()
                [reason] = second.broker.registration.name_taken.values()
                assert first.app.address in reason and second.app.address in reason
                assert not second.broker.registration.registered
                assert second.broker.readiness.reasons == {"name": reason}
        assert [(line["log_level"], line["reason"]) for line in said if line["event"] == "name_taken"] == [
            ("error", reason)
        ]
        assert not [line for line in said if line["event"] == "registration_failed"]
        assert [line["reason"] for line in said if line["event"] == "registration_refused"] == [reason]
        assert await names.brokers() == {"broker-a": {0: first.app.address}}, "the other one's end takes nothing along"
        assert await names.route("TBW102") is not None
        assert first.broker.registration.name_taken == {}


@pytest.mark.slow
async def test_a_refused_broker_says_so_again_every_registration_period(tmp_path: Path, names: Names) -> None:
    async with broker(tmp_path / "a", names):
        second = broker(tmp_path / "b", names)
        second.config.register_name_server_period = 10_000
        with capture_logs() as said:
            async with second:
                begin = time.monotonic()
                with Stopwatch() as watch:
                    await eventually(lambda: len([line for line in said if line["event"] == "name_taken"]) == 2)
                assert time.monotonic() - begin > 9 and watch.seconds < 14


async def test_the_name_is_the_second_ones_when_the_first_has_stopped(tmp_path: Path, names: Names) -> None:
    first = broker(tmp_path / "a", names)
    await first.start()
    async with broker(tmp_path / "b", names) as second:
        assert second.broker.registration.name_taken
        await first.stop()
        with Stopwatch() as watch:
            await eventually(lambda: bool(second.broker.registration.registered))
        assert watch.seconds < 4
        assert second.broker.registration.name_taken == {} and second.broker.readiness.ready
        assert await names.brokers() == {"broker-a": {0: second.app.address}}


@pytest.mark.processes
async def test_a_killed_broker_is_known_elsewhere_within_four_seconds(tmp_path: Path, names: Names) -> None:
    """The one that waits for the name was refused as long as the first one ran."""
    first = await asyncio.to_thread(ErucaBroker, tmp_path / "a", names.address)
    async with broker(tmp_path / "b", names) as second:
        assert second.broker.registration.name_taken
        first.process.kill()
        with Stopwatch() as watch:
            await eventually(lambda: bool(second.broker.registration.registered))
        assert watch.seconds < 4
    again = await asyncio.to_thread(ErucaBroker, tmp_path / "c", names.address)
    assert await names.brokers() == {"broker-a": {0: again.address}}
    again.process.kill()
    with Stopwatch() as watch:
        async with broker(tmp_path / "d", names) as third:
            await eventually(lambda: bool(third.broker.registration.registered))
            assert watch.seconds < 4


@pytest.mark.slow
async def test_the_holder_gets_its_name_back_from_a_restarted_nameserver_however_late_it_asks(tmp_path: Path) -> None:
    names = await Names(tmp_path).start()
    port = names.server.port
    proxy = await Proxy(names.address).start()
    first = broker(tmp_path / "a", names)
    first.config.namesrv_addr = proxy.address
    async with first, broker(tmp_path / "b", names) as second:
        assert second.broker.registration.name_taken
        proxy.blocked = True
        await names.stop()
        names = await Names(tmp_path, port).start()
        with pytest.raises(TimeoutError):  # longer than a broker without that answer would wait
            async with asyncio.timeout(2 * registration.RETRY_AFTER):
                await eventually(lambda: bool(second.broker.registration.registered))
        assert await names.brokers() == {}
        proxy.blocked = False
        await eventually(lambda: bool(first.broker.registration.registered))
        assert await names.brokers() == {"broker-a": {0: first.app.address}}
        assert second.broker.registration.name_taken
    await names.stop()
    await proxy.stop()
