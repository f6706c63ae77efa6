"""Whatever a program asks for, the bytes of a send are those that the slow encoder writes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eruca.client import ClientSettings, Credentials, Hook, Message, MessageQueue, Producer
from eruca.client.message import AFTER_ID, text_of
from eruca.client.namespaces import Names
from eruca.client.producing.encoder import encoder_of
from eruca.protocol import api, frame
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.message import decode_properties
from eruca.remoting import Connection, Router
from eruca.remoting.rpc_hooks import sign
from tests.client.producing.conftest import Line, read
from tests.support.scripted import Scripted

ACCOUNT = Credentials("access", "secret-key", "token")
SERIALIZATIONS = {"JSON": frame.JSON, "ROCKETMQ": frame.ROCKETMQ, "MSGPACK": frame.MSGPACK}
TEXTS = [AFTER_ID, '\x02KEYS\x01Zürich "😀"\\\x02TAGS\x01标签\x02WAIT\x01false']
BORN = 1_700_000_000_123, 1_700_000_000_124, 77
"""The clock of a machine may be anywhere."""


class Stamp(Hook):
    """Gives every message a property."""

    def before_send(self, context: Any) -> None:
        context.properties["stamp"] = "过"


def slow(connection: Connection, names: Names, flag: int, opaque: int, header: SendMessageV2, body: bytes) -> bytes:
    """The head of a send as `frame.encode` writes it."""
    renamed = names.header(header) if names.rename else header
    code = (api.SEND_BATCH_MESSAGE if header.batch else api.SEND_MESSAGE_V2).code
    serialization = connection.serialization
    if connection.signer is None:
        return frame.encode(serialization, code, opaque, flag, renamed, len(body))
    fields = sign(connection.signer, renamed, None, serialization, body)
    return frame.encode(serialization, code, opaque, flag, None, len(body), None, fields)


@pytest.mark.parametrize("serialization", SERIALIZATIONS)
@pytest.mark.parametrize("namespace", [None, "MQ_INST_1"])
@pytest.mark.parametrize("account", [None, ACCOUNT, lambda fields, body: {"Signature": "mine"}])
@pytest.mark.parametrize("unit_mode", [False, True])
async def test_an_encoder_writes_what_the_slow_encoder_writes(
    serialization: str, namespace: str | None, account: Any, unit_mode: bool
) -> None:
    names = Names(namespace, unit_mode=unit_mode)
    rename = names.header if names.rename else None
    connection = Connection(
        Router(None, ()), serialization=SERIALIZATIONS[serialization], signer=account, rename=rename
    )
    for sys_flag, flag, batch, oneway, times in itertools.product((0, 0x301), (0, -7), (False, True), (0, 2), (0, 3)):
        header = SendMessageV2(
            producer_group="group", topic='To"pic', queue_id=3, sys_flag=sys_flag, born_timestamp=1, flag=flag,
            properties="", reconsume_times=times, max_reconsume_times=16 if times else None, batch=batch,
        )  # fmt: skip
        endpoint = api.SEND_BATCH_MESSAGE if batch else api.SEND_MESSAGE_V2
        for keyed, text, body in itertools.product((True, False), TEXTS, (b"x", b"yy")):
            encode = encoder_of(connection, names, endpoint, header, oneway, keyed=keyed)
            header.properties = f"UNIQ_KEY\x01AB{text}" if keyed else text
            for header.born_timestamp in BORN:
                expected = slow(connection, names, oneway, 1234567, header, body)
                assert encode(1234567, b"%d" % header.born_timestamp, "AB", text, body) == expected


@pytest.fixture(params=itertools.product(SERIALIZATIONS, (None, "ns"), (None, ACCOUNT)), ids=str)
async def given(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Producer, Scripted]]:
    header, namespace, account = request.param
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("ns%T" if namespace else "T", broker)
        settings = ClientSettings(nameserver=names.address, header=header, namespace=namespace, credentials=account)
        async with Producer("g", settings=settings) as producer:
            await producer.send(Message("T", b"first"))
            await producer.send(Message("T", b"second"))  # by then the serialization is settled
            yield producer, broker


async def test_every_combination_of_options_is_written_as_the_slow_encoder_writes_it(
    given: tuple[Producer, Scripted],
) -> None:
    producer, broker = given
    connection, names = producer.session.ready(broker.address), producer.session.names
    assert connection is not None
    line = Line(connection)
    connection.connection_made(line)  # type: ignore[arg-type]
    delays: list[dict[str, Any]] = [{}, {"delay_level": 3}, {"delay": 5}, {"deliver_at": 1_900_000_000_000}]
    tags: list[dict[str, Any]] = [{}, {"tags": "标签", "keys": ["钥匙", 'a"b'], "properties": {"n": "1"}}]
    for hooked in (False, True):
        if hooked:
            producer.add_hook(Stamp())
        for delay, tag, body, flag in itertools.product(delays, tags, (b"small", b"large" * 1000), (0, -9)):
            message = Message("T", body, flag=flag, **delay, **tag)
            send = producer.start_send(message, queue=MessageQueue("T", "broker-a", 0))
            await check_line(producer, connection, names, line, message, hooked)
            send.cancel()
        batch = asyncio.ensure_future(producer.send_batch([Message("T", b"1", tags="标"), Message("T", b"2")]))
        await asyncio.sleep(0)
        await check_line(producer, connection, names, line, None, hooked)
        batch.cancel()
        await producer.send_oneway(Message("T", b"one-way"))
        await check_line(producer, connection, names, line, Message("T", b"one-way"), hooked)
    connection.abort()


async def check_line(
    producer: Producer, connection: Connection, names: Names, line: Line, message: Message | None, hooked: bool
) -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (whole,) = line.frames()
    head, body = read(whole)
    sent = head.ext
    text = sent.properties or ""
    if message is not None:
        key = decode_properties(text.encode())["UNIQ_KEY"]
        if hooked:
            message = message.with_properties({"stamp": "过"})
        assert sent.flag == message.flag and (body == message.body or sent.sys_flag)
        text = text_of(message, key)
    else:
        assert sent.batch and (not hooked or "过".encode() in body)
        text = "WAIT\x01true"
    header = SendMessageV2(
        producer_group="g", topic="T", queue_id=sent.queue_id, sys_flag=sent.sys_flag, flag=sent.flag,
        born_timestamp=sent.born_timestamp, properties=text, reconsume_times=0, batch=message is None,
    )  # fmt: skip
    assert whole[: -len(body)] == slow(connection, names, head.flag, head.opaque, header, body)
