"""Daemons that have few file descriptors: connections do not take those that files need, and every error names them."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from eruca.protocol import api
from eruca.protocol.errors import Refused
from eruca.protocol.headers.routes import KVConfigKey, PutKVConfig
from eruca.remoting import Channels, RemotingError
from tests.support.load import send
from tests.support.lone import MANY_PEERS, SMALL
from tests.support.peers import Peer
from tests.support.processes import Process

pytestmark = pytest.mark.processes

DESCRIPTORS = 300
PEERS = 250
COMMIT, CREATE_TOPIC = 15, 17


def daemon(folder: Path, name: str, conf: str) -> Process:
    """``mqbroker`` or ``mqnamesrv`` that can neither have nor get more descriptors."""
    (folder / "conf").write_text(conf)
    program = str(Path(sys.executable).parent / name)
    limited = f'ulimit -n {DESCRIPTORS} && exec "$0" "$@"'
    return Process(["sh", "-c", limited, program, "-c", str(folder / "conf")], folder / "out")


@asynccontextmanager
async def crowd(port: int) -> AsyncIterator[int]:
    """So many idle connections to a server; how many of them it keeps."""
    ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(PEERS)]

    async def kept(reader: asyncio.StreamReader) -> bool:
        with suppress(TimeoutError, ConnectionResetError):
            async with asyncio.timeout(2):
                await reader.read(1)
                return False
        return not reader.at_eof() and reader.exception() is None

    try:
        yield sum(await asyncio.gather(*(kept(reader) for reader, _ in ends)))
    finally:
        for _, writer in ends:
            writer.close()


async def test_a_broker_stores_on_while_it_turns_connections_away(tmp_path: Path) -> None:
    settings = {**SMALL, **MANY_PEERS, "storePathRootDir": str(tmp_path / "store"), "mappedFileSizeCommitLog": "65536"}
    broker = daemon(tmp_path, "mqbroker", "".join(f"{name}={value}\n" for name, value in settings.items()))
    try:
        line = await asyncio.to_thread(broker.wait_for_line, "boot success")
        found = re.search(r"\[[^,]+, ([\d.]+):(\d+)\]", line)
        assert found is not None
        peer = await Peer().connect(f"{found[1]}:{found[2]}")
        async with crowd(int(found[2])) as kept:
            assert 60 <= kept <= PEERS - 100
            assert kept in range(*_limited(broker))
            for number in range(60):
                answer = await send(peer, 0, bytes(8000), topic=f"Topic{number}", within=20)
                assert (answer.code, answer.remark) == (0, None)
            assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 5, "the log has begun files"
            fields = {"consumerGroup": "g", "topic": "Topic1", "queueId": 0, "commitOffset": 1}
            assert (await peer.ask(COMMIT, fields)).code == 0
            saved = tmp_path / "store" / "config" / "consumerOffset.json"
            await asyncio.to_thread(broker.wait_until, lambda: saved.exists() and "Topic1@g" in saved.read_text(), "")
        await peer.close()
        assert broker.stop() == 0
        assert "disk is full" not in broker.output and "not_saved" not in broker.output, broker.output
    finally:
        broker.kill()


async def test_a_nameserver_keeps_values_while_it_turns_connections_away(tmp_path: Path) -> None:
    settings = {"listenPort": "0", "bindAddress": "127.0.0.1", "rocketmqHome": str(tmp_path), **MANY_PEERS}
    nameserver = daemon(tmp_path, "mqnamesrv", "".join(f"{name}={value}\n" for name, value in settings.items()))
    try:
        port = int((await asyncio.to_thread(nameserver.wait_for_line, "listening on 127")).rpartition(":")[2])
        channels = Channels()
        address = f"127.0.0.1:{port}"
        with suppress(Refused):
            await channels.call(address, api.GET_KV_CONFIG, KVConfigKey(namespace="n", key="k"))
        async with crowd(port) as kept:
            assert 60 <= kept <= PEERS - 100
            assert kept in range(*_limited(nameserver))
            for number in range(20):
                await channels.call(address, api.PUT_KV_CONFIG, PutKVConfig(namespace="n", key=f"k{number}", value="v"))
            late = Channels()
            with pytest.raises(RemotingError):
                await late.call(address, api.GET_KV_CONFIG, KVConfigKey(namespace="n", key="k1"))
            await late.close()
        answer = await channels.call(address, api.GET_KV_CONFIG, KVConfigKey(namespace="n", key="k19"))
        assert answer.header.value == "v"
        await channels.close()
        assert nameserver.stop() == 0
    finally:
        nameserver.kill()


def _limited(daemon: Process) -> tuple[int, int]:
    """The connections that a daemon has announced, without or with the one of the test itself."""
    found = re.search(r"connections_limited .*connections=(\d+) .*descriptors=(\d+)", daemon.output)
    assert found is not None, daemon.output
    assert int(found[2]) == DESCRIPTORS
    return int(found[1]) - 1, int(found[1]) + 1
