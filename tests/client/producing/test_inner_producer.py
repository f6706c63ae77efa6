"""Ready requests: sent as they are, in their order, and again until they are stored or their time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import BrokerRefused, CallTimeout, ClientError, SendFailed
from eruca.client.network.session import Session
from eruca.client.producing.inner_producer import InnerProducer
from eruca.protocol.message import TRANSACTION_PREPARED
from tests.support.scripted import SILENT, Scripted

QUEUE = MessageQueue("T", "broker-a", 1)


class Lab:
    """Two brokers with two queues of T each, and the session of a client."""

    def __init__(self, session: Session, a: Scripted, b: Scripted) -> None:
        self.session, self.a, self.b = session, a, b


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a, b, queues=2)
        async with PullConsumer(nameserver=names.address) as puller:
            yield Lab(puller.session, a, b)


def retriable(error: ClientError) -> bool:
    return error.retriable


async def test_requests_are_sent_as_they_are_in_their_order(lab: Lab) -> None:
    producer = InnerProducer(lab.session, "sink")
    sends = [producer.start_send("T", b"%d" % number, "TAGS\x01a", queue=QUEUE, flag=5) for number in range(100)]
    results = await asyncio.gather(*sends)
    assert [result.offset for result in results] == list(range(100)) and not lab.b.sends
    assert lab.a.bodies == [b"%d" % number for number in range(100)]
    header = lab.a.sends[0]
    assert (header.producer_group, header.queue_id, header.flag, header.properties) == ("sink", 1, 5, "TAGS\x01a")


async def test_half_messages_batches_and_returned_messages(lab: Lab) -> None:
    producer = InnerProducer(lab.session)
    await producer.start_send("T", b"x", "\x02TRAN_MSG\x01true", queue=QUEUE, sys_flag=TRANSACTION_PREPARED)
    await producer.start_send("T", b"x", "WAIT\x01true", queue=QUEUE, batch=True)
    await producer.start_send("T", b"x", "A\x01b", queue=QUEUE, reconsume_times=2, max_reconsume_times=16)
    half, batch, back = lab.a.sends
    assert half.sys_flag == TRANSACTION_PREPARED and batch.batch
    assert (back.reconsume_times, back.max_reconsume_times) == (2, 16)


async def test_every_attempt_has_an_id_of_its_own_and_the_result_names_that_which_was_stored(lab: Lab) -> None:
    lab.a.answers.extend([1, 2, 11])
    producer = InnerProducer(lab.session, retries=9, retry_waits=[0.001], retry=retriable, retry_when_not_stored=True)
    result = await producer.start_send("T", b"x", "\x02WAIT\x01true", queue=QUEUE, unique_id=True)
    texts = [header.properties for header in lab.a.sends]
    assert len(set(texts)) == 4 and texts[-1] == f"UNIQ_KEY\x01{result.message_id}\x02WAIT\x01true"


async def test_retries_go_to_another_broker_and_wait_in_between(lab: Lab) -> None:
    lab.a.answers.extend([1] * 10)
    producer = InnerProducer(lab.session, retries=2, retry_waits=[0.05, 0.1])
    results = await asyncio.gather(*(producer.start_send("T", b"x", "A\x01b") for _ in range(4)))
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    lab.b.answers.extend([1] * 10)
    began = lab.session.loop.time()
    with pytest.raises(SendFailed, match=r"Send \[3\] times"):
        await producer.start_send("T", b"x", "A\x01b")
    assert lab.session.loop.time() - began >= 0.15


async def test_a_silent_broker_costs_an_attempt_and_the_time_of_all_is_bounded(lab: Lab) -> None:
    lab.a.answers.extend([SILENT] * 2)
    lasting = InnerProducer(lab.session, timeout=10, attempt_timeout=0.1, retries=1000, retry_waits=[0.001])
    assert (await lasting.start_send("T", b"x", "A\x01b", queue=QUEUE)).queue == QUEUE
    lab.a.answers.extend([SILENT] * 100)
    brief = InnerProducer(lab.session, timeout=0.3, attempt_timeout=0.1, retries=1000, retry_waits=[0.001])
    with pytest.raises(CallTimeout):
        await brief.start_send("T", b"x", "A\x01b", queue=QUEUE)
    assert 3 <= len(lab.a.sends) - 3 <= 4


async def test_what_may_not_be_retried_fails_at_once(lab: Lab) -> None:
    lab.a.answers.append(13)
    producer = InnerProducer(lab.session, retries=9)
    with pytest.raises(BrokerRefused, match="13"):
        await producer.start_send("T", b"x", "A\x01b", queue=QUEUE)
    await producer.finish(1)
