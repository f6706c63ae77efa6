"""A producer at a scripted broker, and a connection whose other end is the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eruca.client import ClientSettings, Message, Producer
from eruca.protocol import frame
from eruca.protocol.headers.send import SendMessageV2
from eruca.remoting import Connection
from tests.support.scripted import Scripted


class Line:
    """The transport of a connection: keeps what is written, and brings answers."""

    def __init__(self, connection: Connection) -> None:
        self.written: list[bytes] = []
        self._connection = connection

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, pieces: list[bytes]) -> None:
        self.written.append(b"".join(pieces))

    def frames(self) -> list[bytes]:
        """The frames that were written since the last call."""
        data, found = b"".join(self.written), []
        self.written.clear()
        while data:
            length = int.from_bytes(data[:4], "big") + 4
            found.append(data[:length])
            data = data[length:]
        return found

    def requests(self) -> list[tuple[frame.Head[SendMessageV2], bytes]]:
        """The header and the body of each send among them."""
        return [read(each) for each in self.frames()]

    def answers(self, data: bytes) -> None:
        """The broker answers."""
        self._connection.data_received(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self._connection.connection_lost(None)

    abort = close


def read(whole: bytes) -> tuple[frame.Head[SendMessageV2], bytes]:
    """The header and the body of a send, by the slow path."""
    found = frame.split(whole, 0)
    assert found is not None
    serialization, header_at, body_at, end = found
    head = frame.read(serialization, whole[header_at:body_at])
    head.ext = frame.typed(SendMessageV2, head)
    return head, whole[body_at:end]


class Pair:
    """A producer and the broker that it knows."""

    def __init__(self, names: Scripted, broker: Scripted, producer: Producer) -> None:
        self.names, self.broker, self.producer = names, broker, producer

    @property
    def connection(self) -> Connection:
        connection = self.producer.session.ready(self.broker.address)
        assert connection is not None
        return connection

    def line(self) -> Line:
        """From now on the test is the other end of the connection."""
        line = Line(self.connection)
        self.connection.connection_made(line)  # type: ignore[arg-type]
        return line


@pytest.fixture(params=["JSON", "ROCKETMQ"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("T", broker, queues=4)
        settings = ClientSettings(nameserver=names.address, header=request.param)
        async with Producer("g", settings=settings, send_timeout=30) as producer:
            await producer.send(Message("T", b"first"))
            yield Pair(names, broker, producer)
            for connection in tuple(broker.connections):
                connection.abort()
