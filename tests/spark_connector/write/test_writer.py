"""The writer of one task: where an attempt goes after a broker has refused the one before."""

import asyncio

import pytest

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import TopicNotFound
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.sink_options import read_sink_options
from eruca.spark_connector.write.encoder import SingleMessage
from eruca.spark_connector.write.writer import MessageWriter
from tests.support.scripted import Scripted


async def test_the_attempt_after_a_refusal_goes_to_another_broker() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a, b, queues=4)
        options = read_sink_options({"nameServer": names.address, "topic": "T"}, streaming=True)
        async with PullConsumer(nameserver=names.address) as consumer:
            writer = MessageWriter(consumer, options)
            a.answers.extend([1] * 100)
            for number in range(8):
                await writer.send_messages([SingleMessage("T", None, b"%d" % number, "WAIT\x01true", 7)])
    assert len(a.bodies) == len(set(a.bodies)) > 0, "no message was sent there twice"
    assert sorted(b.bodies) == [b"%d" % each for each in range(8)]


@pytest.mark.parametrize("code", [2, 215])
@pytest.mark.parametrize("queue", [None, MessageQueue("T", "broker-a", 1)], ids=["any queue", "a chosen queue"])
async def test_a_busy_broker_is_asked_again_after_waits_that_grow(code: int, queue: MessageQueue | None) -> None:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("T", broker, queues=4)
        options = read_sink_options({"nameServer": names.address, "topic": "T"}, streaming=True)
        async with PullConsumer(nameserver=names.address) as consumer:
            writer = MessageWriter(consumer, options)
            broker.answers.extend([code] * 3)
            began = asyncio.get_running_loop().time()
            await writer.send_messages([SingleMessage("T", queue, b"x", "WAIT\x01true", 7)])
            assert len(broker.sends) == 4
            assert asyncio.get_running_loop().time() - began > 0.1 + 0.2 + 0.4


@pytest.mark.parametrize("chosen", [False, True], ids=["any queue", "a chosen queue"])
async def test_a_topic_that_is_not_known_is_away_for_a_write_that_has_begun(chosen: bool) -> None:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        options = read_sink_options({"nameServer": names.address, "topic": "T"}, streaming=True)
        async with PullConsumer(nameserver=names.address) as consumer:

            async def send(epoch: int) -> None:
                writer = MessageWriter(consumer, options, epoch)
                queue = await writer.choose("T", None, 0, None) if chosen else None
                await writer.send_messages([SingleMessage("T", queue, b"x", "WAIT\x01true", 7)])

            with pytest.raises((SinkError, TopicNotFound), match="No route info of this topic: T"):
                await send(0)
            sending = asyncio.create_task(send(1))
            await asyncio.wait({sending}, timeout=0.3)
            assert not sending.done()
            names.knows("T", broker, queues=1)
            await sending
    assert broker.bodies == [b"x"]
