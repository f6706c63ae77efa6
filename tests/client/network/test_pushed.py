"""What operators ask of a consumer through its broker: offsets, running information, one message now."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from eruca.client import Later, Message, MessageQueue, PushConsumer, ReceivedMessage
from eruca.client.errors import BrokerRefused
from eruca.protocol import api
from eruca.protocol.bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo, GetConsumerStatusBody
from eruca.protocol.headers.clients import ConsumeMessageDirectly, ConsumerRunningInfoOf
from eruca.protocol.headers.offsets import ConsumerStatus
from tests.client.conftest import Lab, Seen


async def ask(lab: Lab, endpoint: api.Endpoint[Any, Any], header: Any) -> bytes:
    """Ask the broker, which asks the consumer."""
    session = lab.puller.session
    return (await session.call(await session.master("broker-a", "T"), endpoint, header)).body


def client_id(consumer: PushConsumer) -> str:
    return consumer.session.client_id


async def test_the_offsets_in_memory(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *[b"x"] * 8)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T") as consumer:
        await seen.reaches(8)
        await asyncio.sleep(0)
        body = await ask(lab, api.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatus(topic="T", group="g"))
        table = GetConsumerStatusBody.decode(body).consumer_table[client_id(consumer)]
    assert table == {MessageQueue("T", "broker-a", number): 2 for number in range(4)}


async def test_running_information(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *[b"x"] * 4)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T", "A || B") as consumer:
        for stacks in (False, True):
            header = ConsumerRunningInfoOf(consumer_group="g", client_id=client_id(consumer), jstack_enable=stacks)
            info = ConsumerRunningInfo.decode(await ask(lab, api.GET_CONSUMER_RUNNING_INFO, header))
            assert ("MainThread" in (info.jstack or "")) is stacks
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CLIENT_VERSION"] == "V4_9_7"
    assert info.properties["PROP_NAMESERVER_ADDR"] == lab.address
    assert {each.topic for each in info.subscription_set} == {"T", "%RETRY%g"}
    assert len(info.mq_table) == 5
    queue = info.mq_table[MessageQueue("T", "broker-a", 1)]
    assert queue.last_pull_timestamp > 0 and not queue.droped and not queue.locked
    assert abs(queue.last_consume_timestamp - time.time() * 1000) < 60_000


async def test_running_information_of_an_ordered_member(lab: Lab, seen: Seen) -> None:
    """Its queues are locked, else operators are told that it cannot lock them."""
    await lab.send("T", b"x")
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, orderly=True).subscribe("T") as consumer:
        header = ConsumerRunningInfoOf(consumer_group="g", client_id=client_id(consumer))
        info = ConsumerRunningInfo.decode(await ask(lab, api.GET_CONSUMER_RUNNING_INFO, header))
    assert info.mq_table and all(each.locked and each.last_lock_timestamp for each in info.mq_table.values())


@pytest.mark.parametrize(
    ("answer", "result"), [(None, "CR_SUCCESS"), (Later(), "CR_LATER"), (ValueError("no"), "CR_THROW_EXCEPTION")]
)
@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_one_message_now(lab: Lab, answer: Later | ValueError | None, result: str, kind: str) -> None:
    sent = await lab.producer.send(Message("T", b"look", tags="other"))
    got: list[bytes] = []

    def function(message: ReceivedMessage) -> Later | None:
        got.append(message.body)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    async def coroutine(message: ReceivedMessage) -> Later | None:
        return function(message)

    listener = coroutine if kind == "coroutine" else function
    async with PushConsumer("g", listener, nameserver=lab.address).subscribe("T", "wanted") as consumer:
        header = ConsumeMessageDirectly(
            consumer_group="g", client_id=client_id(consumer), msg_id=sent.offset_message_id
        )
        said = ConsumeMessageDirectlyResult.decode(await ask(lab, api.CONSUME_MESSAGE_DIRECTLY, header))
    assert said.consume_result == result and got == [b"look"]
    assert said.remark == ("ValueError: no" if result == "CR_THROW_EXCEPTION" else None)


async def test_a_group_that_is_not_here(lab: Lab) -> None:
    await lab.send("T", b"x")
    with pytest.raises(BrokerRefused, match="The Consumer <nobody> <c> not online"):
        await ask(lab, api.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoOf(consumer_group="nobody", client_id="c"))
