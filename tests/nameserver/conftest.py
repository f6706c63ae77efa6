"""A nameserver on a free port, and channels to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting import Channels


class Clock:
    """A monotonic clock that stands until it is told to move; ms."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def nameserver(tmp_path: Path, clock: Clock) -> AsyncIterator[Nameserver]:
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", rocketmq_home=str(tmp_path))
    server = Nameserver(config, monotonic=clock)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def peer(nameserver: Nameserver) -> AsyncIterator[Channels]:
    channels = Channels()
    yield channels
    await channels.close()
