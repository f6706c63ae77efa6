"""A nameserver in this process, and somebody who asks it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.protocol.bodies import ClusterInfo, TopicRouteData
from tests.support.peers import Peer

ROUTE, CLUSTER = 105, 106


class Names:
    """A nameserver and a peer who asks it."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        config = NamesrvConfig(
            listen_port=port,
            bind_address="127.0.0.1",
            kv_config_path=str(folder / "kv.json"),
            config_store_path=str(folder / "namesrv.properties"),
        )
        self.server = Nameserver(config)
        self.peer = Peer()

    async def start(self) -> Self:
        await self.server.start()
        await self.peer.connect(self.server.address)
        return self

    async def stop(self) -> None:
        await self.peer.close()
        await self.server.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        return self.server.address

    async def route(self, topic: str) -> TopicRouteData | None:
        answer = await self.peer.ask(ROUTE, {"topic": topic})
        return TopicRouteData.decode(answer.body) if answer.code == 0 else None

    async def brokers(self) -> dict[str, dict[int, str]]:
        return await brokers_by(self.peer)


async def brokers_by(peer: Peer) -> dict[str, dict[int, str]]:
    """The addresses of all brokers, by name and brokerId, of the nameserver to which that peer is connected."""
    info = ClusterInfo.decode((await peer.ask(CLUSTER)).body)
    return {name: data.broker_addrs for name, data in info.broker_addr_table.items()}
