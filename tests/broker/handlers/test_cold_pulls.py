"""Pulls of what has to come from the disk: they are read as the reader takes the answers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading

import pytest

from eruca.broker.broker import COLD_PULLS
from eruca.broker.store import NotInMemory, Store
from eruca.broker.store.reader import Reader
from eruca.broker.store.results import Got
from eruca.remoting.connection import WRITE_HIGH_WATER
from tests.support.desk import Desk
from tests.support.pairs import eventually
from tests.support.raw import frame, send_header

COUNT = 300
SIZE = 250_000
ASK = {"consumerGroup": "readers", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
ASK |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*"}


async def test_a_peer_that_reads_nothing_has_little_read_for_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.topic("T")
    desk.store("T", 0, 1, body=bytes(SIZE))
    get, reads, under_way = Reader.get, [0], [0, 0]
    lock = threading.Lock()

    def cold(reader: Reader, *asked: object, wait: bool = False) -> Got:
        if not wait:
            raise NotInMemory
        with lock:
            reads[0] += 1
        got = get(reader, *asked, wait=True)  # type: ignore[arg-type]
        got.buffers[:] = [bytes(one) for one in got.buffers]
        return got

    begun = Store.get

    def counted(store: Store, *asked: object) -> object:
        under_way[0] += 1
        return begun(store, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(Reader, "get", cold)
    monkeypatch.setattr(desk.broker.store, "get", lambda *asked: counted(desk.broker.store, *asked))
    host, _, port = desk.app.address.rpartition(":")
    with socket.create_connection((host, int(port))) as peer:
        asks = [frame(send_header(code=11, opaque=number, extFields=ASK)) for number in range(COUNT)]
        await asyncio.to_thread(peer.sendall, b"".join(asks))
        await eventually(lambda: any(each.congested for each in desk.app._main.connections))
        for _ in range(COLD_PULLS):  # until nobody reads from the disk any more
            await desk.broker.cold_pulls.acquire()
        for _ in range(COLD_PULLS):
            desk.broker.cold_pulls.release()
        assert under_way[0] == COUNT, "all were looked at"
        assert reads[0] * SIZE <= 3 * WRITE_HIGH_WATER, "few were read"

        def opaques() -> set[int]:
            peer.settimeout(30)
            found = set()
            with peer.makefile("rb") as file:
                for _ in range(COUNT):
                    data = file.read(int.from_bytes(file.read(4), "big"))
                    head = json.loads(data[4 : 4 + int.from_bytes(data[1:4], "big")])
                    assert head["code"] == 0 and len(data) > SIZE
                    found.add(head["opaque"])
            return found

        assert await asyncio.to_thread(opaques) == set(range(COUNT))
        assert reads[0] == COUNT
