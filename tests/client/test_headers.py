"""How the headers of requests are written: by the settings, and by what the server takes up."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from eruca.client import ClientSettings, Message, Producer
from eruca.client.errors import BadConfig
from eruca.protocol import forms, frame
from eruca.protocol.codes import RequestCode
from eruca.remoting import connection
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
    encode, encode_send = frame.encode, forms.encode_send

    def spy(serialization: int, *rest: Any) -> bytes:
        seen.append(serialization)
        return encode_send(serialization, *rest)

    def spy_on_offers(serialization: int, code: int, *rest: Any) -> bytes:
        if code == RequestCode.SEND_MESSAGE_V2 and isinstance(rest[-1], dict) and frame.OFFER_FIELD in rest[-1]:
            seen.append(serialization)
        return encode(serialization, code, *rest)

    def spy_on_prepared(sender: connection.Connection, frames: list[bytes], *rest: Any) -> None:
        seen.append(frames[0][4])
        depart(sender, frames, *rest)

    depart = connection.Connection.depart
    monkeypatch.setattr(connection.Connection, "depart", spy_on_prepared)
    monkeypatch.setattr(connection, "encode_send", spy)
    monkeypatch.setattr(frame, "encode", spy_on_offers)
    settings = ClientSettings(nameserver=lab.address, header=header)
    async with Producer("writers", settings=settings) as producer:
        results = [await producer.send(Message("T-headers", b"body %d" % number)) for number in range(3)]
    assert len({(result.queue, result.offset) for result in results}) == 3
    assert seen in ([first, later, later], [later, later, later])  # the first request may have been another one


def test_an_unknown_form_is_refused() -> None:
    wrong: Any = "XML"
    with pytest.raises(BadConfig, match="one of JSON, ROCKETMQ, MSGPACK is expected"):
        ClientSettings(nameserver="mq:9876", header=wrong)
