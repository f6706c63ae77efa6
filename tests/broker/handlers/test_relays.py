"""What a consumer answers for itself, through the broker: 307 and 309."""

import asyncio
from typing import Any

import pytest

from eruca.broker.handlers import relays
from eruca.protocol import frame
from eruca.protocol.headers.clients import ConsumerRunningInfoOf as RunningInfo
from tests.support.desk import Desk, hear
from tests.support.peers import Pushed

RUNNING, DIRECTLY = 307, 309


async def test_the_consumer_tells_what_it_is_doing(desk: Desk) -> None:
    asked: list[Pushed] = []

    def tell(pushed: Pushed) -> tuple[int, bytes]:
        asked.append(pushed)
        return 0, b'{"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{}}}'

    await desk.consumer("g", "T", client_id="c1", peer=await desk.peer("GO", 317, tell))
    answer = await desk.ask(RUNNING, {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"})
    assert (answer.code, answer.remark) == (0, "from GO")
    assert (answer.header["language"], answer.header["version"]) == ("GO", 317)
    assert answer.body == b'{"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{}}}'
    request = next(pushed for pushed in asked if pushed.code == RUNNING)
    assert request.fields == {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}


async def test_the_consumers_refusal_goes_back_too(desk: Desk) -> None:
    await desk.consumer("g", "T", peer=await desk.peer(answering=lambda _: (1, b"why")))
    answer = await desk.ask(RUNNING, {"consumerGroup": "g", "clientId": "c"})
    assert (answer.code, answer.remark, answer.body) == (1, "from JAVA", b"why")


@pytest.mark.parametrize(
    ("language", "version", "passed_on"),
    [
        ('JAVA","code":17,"remark":"injected', 317, ("OTHER", 317)),
        ("KLINGON", 10**6, ("OTHER", 32_767)),
        ("GO", 40_000, ("GO", 32_767)),
    ],
)
@pytest.mark.parametrize("serialization", ["JSON", "ROCKETMQ"])
async def test_what_a_consumer_says_of_itself_does_not_become_the_brokers_header(
    desk: Desk, language: str, version: int, passed_on: tuple[str, int], serialization: str
) -> None:
    """Whatever the one who asks reads headers in: unknown words have no place in a binary one."""
    peer = await desk.peer(language, version, lambda _: (0, b"info"))
    await desk.consumer("g", "T", client_id="c1", peer=peer)
    ask = {"consumerGroup": "g", "clientId": "c1"}
    if serialization == "JSON":
        answer = await desk.ask(RUNNING, ask)
        assert (answer.code, answer.remark, answer.body) == (0, f"from {language}", b"info")
        assert (answer.header["language"], answer.header["version"]) == passed_on
        return
    head, data = await asked_in_binary(desk, RunningInfo(consumer_group="g", client_id="c1"))
    assert (head.code, data[-4:]) == (0, b"info")
    assert (head.language, head.version) == passed_on


@pytest.mark.parametrize("code", [99_999, -1, 2**31 - 1])
async def test_a_code_that_nobody_knows_is_not_passed_on(desk: Desk, code: int) -> None:
    await desk.consumer("g", "T", peer=await desk.peer(answering=lambda _: (code, b"why")))
    told = f"the consumer <g> <c> answered with the unknown code {code}: from JAVA"
    answer = await desk.ask(RUNNING, {"consumerGroup": "g", "clientId": "c"})
    assert (answer.code, answer.remark) == (1, told)
    head, _ = await asked_in_binary(desk, RunningInfo(consumer_group="g", client_id="c"))
    assert (head.code, head.remark) == (1, told)


async def asked_in_binary(desk: Desk, ask: RunningInfo) -> tuple[frame.Head[Any], bytes]:
    """The answer to a client with ROCKETMQ headers."""
    host, _, port = desk.app.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(frame.encode(frame.ROCKETMQ, RUNNING, 1, 0, ask))
    async with asyncio.timeout(5):
        answer = await hear(reader)
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_message_is_consumed_at_once(desk: Desk) -> None:
    asked: list[Pushed] = []

    def consume(pushed: Pushed) -> tuple[int, bytes]:
        asked.append(pushed)
        return 0, b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'

    await desk.consumer("g", "T", peer=await desk.peer(answering=consume))
    desk.topic("T")
    put = desk.store("T", 0, 0, body=b"hello")
    message_id = f"{desk.broker.store_host_hex}{put.physical_offset:016X}"
    answer = await desk.ask(DIRECTLY, {"consumerGroup": "g", "clientId": "c", "msgId": message_id})
    assert (answer.code, answer.body[:18]) == (0, b'{"autoCommit":true')
    request = next(pushed for pushed in asked if pushed.code == DIRECTLY)
    assert request.fields == {"consumerGroup": "g", "clientId": "c", "msgId": message_id, "brokerName": "broker-a"}
    assert request.body == desk.broker.store.record(put.physical_offset)


@pytest.mark.parametrize(
    ("message_id", "remark"),
    [
        ("nonsense", "msgId: a message id has 32 or 56 hexadecimal digits, not 'nonsense'"),
        ("7F00000100002A9F" + "0" * 15 + "7", "can not find message by the offset, 7"),
    ],
)
async def test_a_message_that_is_not_there(desk: Desk, message_id: str, remark: str) -> None:
    await desk.consumer("g", "T")
    answer = await desk.ask(DIRECTLY, {"consumerGroup": "g", "clientId": "c", "msgId": message_id})
    assert (answer.code, answer.remark) == (1, remark)


@pytest.mark.parametrize(("group", "client_id"), [("g", "stranger"), ("gone", "c")])
async def test_a_consumer_that_is_not_online(desk: Desk, group: str, client_id: str) -> None:
    await desk.consumer("g", "T")
    answer = await desk.ask(RUNNING, {"consumerGroup": group, "clientId": client_id})
    assert (answer.code, answer.remark) == (1, f"The Consumer <{group}> <{client_id}> not online")


async def test_a_consumer_that_is_too_old(desk: Desk) -> None:
    await desk.consumer("g", "T", peer=await desk.peer(version=61))
    answer = await desk.ask(RUNNING, {"consumerGroup": "g", "clientId": "c"})
    assert (answer.code, answer.remark) == (
        1,
        "The Consumer <c> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
    )


async def test_a_consumer_that_stays_silent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "ANSWER_WITHIN", 0.05)
    await desk.consumer("g", "T", peer=await desk.peer(answering=lambda _: None))
    answer = await desk.ask(RUNNING, {"consumerGroup": "g", "clientId": "c"})
    assert answer.code == 207
    assert (answer.remark or "").startswith("consumer <g> <c> Timeout: ")


async def test_a_consumer_that_goes_away_meanwhile(desk: Desk) -> None:
    def leave(pushed: Pushed) -> None:
        if pushed.code == RUNNING:
            (member,) = desk.broker.clients.consumers["g"].members
            member.abort()

    await desk.consumer("g", "T", peer=await desk.peer(answering=leave))
    answer = await desk.ask(RUNNING, {"consumerGroup": "g", "clientId": "c"})
    assert answer.code == 1
    assert (answer.remark or "").startswith("invoke consumer <g> <c> Exception: ")
