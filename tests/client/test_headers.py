"""How the headers of requests are written: by the settings, and by what the server takes up."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from eruca.client import ClientSettings, Message, Producer
from eruca.client.errors import BadConfig
from eruca.protocol import frame
from tests.support.scripted import Scripted


@pytest.mark.parametrize(
    ("header", "first", "later"),
    [
        ("JSON", frame.JSON, frame.JSON),
        ("ROCKETMQ", frame.ROCKETMQ, frame.ROCKETMQ),
        ("MSGPACK", frame.JSON, frame.MSGPACK),
    ],
)
async def test_headers_are_written_as_the_settings_say(
    server: Scripted, header: Literal["JSON", "ROCKETMQ", "MSGPACK"], first: int, later: int
) -> None:
    settings = ClientSettings(nameserver=server.address, header=header)
    async with Producer("writers", settings=settings) as producer:
        for number in range(3):
            await producer.send(Message("T", b"body %d" % number))
    # The first request may have been another one.
    assert server.serializations in ([first, later, later], [later, later, later])


def test_an_unknown_form_is_refused() -> None:
    wrong: Any = "XML"
    with pytest.raises(BadConfig, match="one of JSON, ROCKETMQ, MSGPACK is expected"):
        ClientSettings(nameserver="mq:9876", header=wrong)
