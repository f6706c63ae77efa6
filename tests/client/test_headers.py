"""How the headers of requests are written: by the settings, and by what the server takes up."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from eruca.client import ClientSettings, Message, Producer
from eruca.client.errors import BadConfig
from eruca.protocol import frame
from eruca.protocol.codes import RequestCode
from eruca.remoting import Connection
from tests.client.conftest import Lab


@pytest.mark.parametrize(
    ("header", "first", "later"),
    [
        ("JSON", frame.JSON, frame.JSON),
        ("ROCKETMQ", frame.ROCKETMQ, frame.ROCKETMQ),
        ("MSGPACK", frame.JSON, frame.MSGPACK),
    ],
)
async def test_headers_are_written_as_the_settings_say(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    header: Literal["JSON", "ROCKETMQ", "MSGPACK"],
    first: int,
    later: int,
) -> None:
    seen: list[int] = []
    received = Connection.data_received

    def spy(receiver: Connection, data: bytes) -> None:
        at = 0
        while (found := frame.split(data, at)) is not None:
            serialization, start, body_at, at = found
            head = frame.read(serialization, data[start:body_at])
            if head.code == RequestCode.SEND_MESSAGE_V2 and not head.flag & frame.RESPONSE_FLAG:
                seen.append(serialization)
        received(receiver, data)

    monkeypatch.setattr(Connection, "data_received", spy)
    settings = ClientSettings(nameserver=lab.address, header=header)
    async with Producer("writers", settings=settings) as producer:
        results = [await producer.send(Message("T-headers", b"body %d" % number)) for number in range(3)]
    assert len({(result.queue, result.offset) for result in results}) == 3
    assert seen in ([first, later, later], [later, later, later])  # the first request may have been another one


def test_an_unknown_form_is_refused() -> None:
    wrong: Any = "XML"
    with pytest.raises(BadConfig, match="one of JSON, ROCKETMQ, MSGPACK is expected"):
        ClientSettings(nameserver="mq:9876", header=wrong)
