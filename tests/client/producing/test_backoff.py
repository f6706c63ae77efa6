"""Sends wait for brokers that are away or busy: until one is there again, or until their time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from eruca.client import Message, MessageQueue, Producer, SendStatus, TransactionProducer, TransactionState, sync
from eruca.client.errors import BadConfig, BrokerRefused, BrokerUnreachable, CallTimeout, SendFailed, StateError
from eruca.client.selectors import by_hash
from tests.client.producing.conftest import Pair
from tests.support.scripted import SILENT, Scripted

SECOND = MessageQueue("T", "broker-a", 2)
BUSY, AWAY, FLOW_CONTROL = 2, 14, 215


@pytest.fixture
async def lone() -> AsyncIterator[tuple[Scripted, Scripted]]:
    """A nameserver and the only broker of T."""
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("T", broker, queues=4)
        yield names, broker


async def until_sent_after(producer: Producer, broker: Scripted, sends: Sequence[asyncio.Future[Any]]) -> None:
    """The sends wait for the broker, which is started; they end well."""
    done, _ = await asyncio.wait(sends, timeout=0.15)
    assert not done and producer.in_flight == len(sends)
    await broker.start()
    async with asyncio.timeout(10):
        await asyncio.gather(*sends)
    assert producer.in_flight == 0


async def test_sends_of_every_kind_wait_for_a_broker_that_restarts(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with TransactionProducer("g", lambda message: None, nameserver=names.address) as producer:
        await producer.send(Message("T", b"first"))
        await broker.stop()
        works = [
            producer.send(Message("T", b"plain")),
            producer.send(Message("T", b"chosen"), queue=SECOND),
            producer.send(Message("T", b"ordered"), selector=by_hash, arg="order-7"),
            producer.send_batch([Message("T", b"1"), Message("T", b"2")]),
            producer.send_batch([Message("T", b"3")], queue=SECOND),
            producer.send(Message("T", b"delayed", delay=5)),
            producer.send(Message("T", b"z" * 5000)),
            producer.send_in_transaction(Message("T", b"half"), lambda *of: TransactionState.COMMIT),
        ]
        sends: list[asyncio.Future[Any]] = [asyncio.ensure_future(work) for work in works]
        await until_sent_after(producer, broker, sends)
        assert len(broker.sends) == 1 + len(sends)


@pytest.mark.parametrize("code", [BUSY, AWAY, FLOW_CONTROL])
@pytest.mark.parametrize("queue", [None, SECOND], ids=["any queue", "a chosen queue"])
async def test_a_busy_broker_is_asked_again_beyond_the_number_of_retries(
    pair: Pair, code: int, queue: MessageQueue | None
) -> None:
    pair.broker.answers.extend([code] * 4)
    began = asyncio.get_running_loop().time()
    assert (await pair.producer.send(Message("T", b"x"), queue=queue)).status is SendStatus.SEND_OK
    assert len(pair.broker.sends) == 1 + 5
    assert asyncio.get_running_loop().time() - began > 0.75 * (0.05 + 0.1 + 0.2 + 0.4), "each wait is longer"


async def test_many_sends_that_were_refused_together_are_tried_again_together(pair: Pair) -> None:
    pair.broker.answers.extend([BUSY] * 500)
    await asyncio.gather(*(pair.producer.start_send(Message("T", b"%d" % number)) for number in range(500)))
    assert len(pair.broker.sends) == 1 + 1000 and pair.producer.in_flight == 0


async def test_without_retries_there_is_one_attempt(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address, retries=0) as producer:
        broker.answers.append(BUSY)
        for queue in (None, SECOND):
            with pytest.raises(BrokerRefused, match="broker-a says 2"):
                await producer.send(Message("T", b"x"), queue=queue)
            broker.answers.append(BUSY)
        broker.answers.clear()
        await broker.stop()
        with pytest.raises(BrokerUnreachable):
            await producer.send(Message("T", b"x"))
    assert len(broker.sends) == 2


async def test_other_refusals_are_not_waited_for(pair: Pair) -> None:
    pair.broker.answers.extend([1] * 3)
    with pytest.raises(SendFailed, match=r"Send \[3\] times") as raised:
        await pair.producer.send(Message("T", b"x"))
    assert raised.value.seconds < 10, "it has 30 s"
    pair.broker.answers.append(1)
    with pytest.raises(BrokerRefused):
        await pair.producer.send(Message("T", b"x"), queue=SECOND)


async def test_a_send_waits_as_long_as_its_time_lasts(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address) as producer:
        await producer.send(Message("T", b"first"))
        broker.answers.extend([AWAY] * 1000)
        with pytest.raises(SendFailed, match=r"Send \[\d+\] times, .*; the last time: .*broker-a says 14") as raised:
            await producer.send(Message("T", b"x"), timeout=0.5)
        assert 0.5 <= raised.value.seconds < 5 and 2 < raised.value.attempts < 6 and raised.value.retriable
        assert producer.in_flight == 0
    async with Producer("g", nameserver=names.address, send_timeout=0.3) as producer:
        await broker.stop()
        with pytest.raises(SendFailed, match="Connection refused"):
            await producer.send(Message("T", b"x"), queue=SECOND)
        assert producer.in_flight == 0


async def test_what_waits_for_a_queue_leaves_in_its_order(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address, send_timeout=30) as producer:
        await producer.send(Message("T", b"first"))
        await broker.stop()
        sends = [producer.start_send(Message("T", b"%d" % number), queue=SECOND) for number in range(50)]
        for _ in range(150):
            await asyncio.sleep(0.001)  # some begin while others wait
            sends.append(producer.start_send(Message("T", b"%d" % len(sends)), queue=SECOND))
        await until_sent_after(producer, broker, sends)
    assert broker.bodies[1:] == [b"%d" % number for number in range(200)]


async def test_nothing_overtakes_what_waits_for_a_broker_that_is_back(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address, send_timeout=30) as producer:
        await producer.send(Message("T", b"first"))
        await broker.stop()
        sends = [producer.start_send(Message("T", b"%d" % number), queue=SECOND) for number in range(50)]
        await asyncio.wait(sends, timeout=0.1)
        await broker.start()
        while not sends[0].done():
            sends.append(producer.start_send(Message("T", b"%d" % len(sends)), queue=SECOND))
            await asyncio.sleep(0)  # some begin in each turn of the loop
        await asyncio.gather(*sends)
    assert broker.bodies[1:] == [b"%d" % number for number in range(len(sends))]


async def test_nothing_overtakes_what_waits_when_the_loop_was_late(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address, send_timeout=30, retry_backoff=0.05) as producer:
        await producer.send(Message("T", b"first"))
        await broker.stop()
        sends = [producer.start_send(Message("T", b"%d" % number), queue=SECOND) for number in range(50)]
        await asyncio.wait(sends, timeout=0.1)
        await broker.start()
        time.sleep(0.7)  # noqa: ASYNC251 (the loop is late: the broker is due meanwhile, and the sends that wait are not looked at)
        sends += [producer.start_send(Message("T", b"%d" % number), queue=SECOND) for number in range(50, 53)]
        await asyncio.gather(*sends)
    assert broker.bodies[1:] == [b"%d" % number for number in range(len(sends))]


async def test_what_follows_a_send_that_waits_for_a_busy_broker_waits_behind_it(pair: Pair) -> None:
    pair.broker.answers.extend([BUSY] * 2)
    refused = [pair.producer.start_send(Message("T", b"%d" % number), queue=SECOND) for number in range(2)]
    async with asyncio.timeout(10):
        while len(pair.broker.sends) < 1 + 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)  # the answers come
        follow = [pair.producer.start_send(Message("T", b"%d" % number), queue=SECOND) for number in range(2, 5)]
        await asyncio.gather(*refused, *follow)
    assert pair.broker.bodies[1 + 2 :] == [b"%d" % number for number in range(5)]


async def test_a_broker_that_is_away_gets_few_attempts_to_connect_however_many_wait() -> None:
    connected = 0

    def lost(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        writer.close()

    async with Scripted("names") as names, await asyncio.start_server(lost, "127.0.0.1", 0) as gone:
        names.leads("T", {"broker-a": f"127.0.0.1:{gone.sockets[0].getsockname()[1]}"})
        async with Producer("g", nameserver=names.address) as producer:
            sends = [producer.start_send(Message("T", b"x"), timeout=1.0) for _ in range(300)]
            for send in sends:
                with pytest.raises(SendFailed):
                    await send
            assert 3 <= connected <= 10 and producer.in_flight == 0
        assert len(names.asked) <= 12, "nor is the route asked for all the time"


async def test_of_two_brokers_that_are_away_the_first_one_back_gets_the_sends() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a, b, queues=2)
        async with Producer("g", nameserver=names.address, send_timeout=30) as producer:
            await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(4)))
            await a.stop()
            await b.stop()
            sends = [producer.start_send(Message("T", b"x")) for _ in range(20)]
            await until_sent_after(producer, b, sends)
            assert {(await send).queue.broker_name for send in sends} == {"broker-b"}


async def test_of_two_brokers_a_busy_one_is_passed_over() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a, b)
        async with Producer("g", nameserver=names.address) as producer:
            a.answers.extend([BUSY] * 100)
            results = [await producer.send(Message("T", b"x")) for _ in range(6)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
            result = await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-b", 0))
            assert result.queue.broker_name == "broker-b"


@pytest.mark.parametrize("tolerant", [False, True], ids=["plain", "with latency faults"])
async def test_two_busy_brokers_are_asked_in_turn_until_one_has_time(tolerant: bool) -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a, b)
        async with Producer("g", nameserver=names.address, fault_tolerance=tolerant) as producer:
            a.answers.extend([BUSY] * 4)
            b.answers.extend([BUSY] * 4)
            async with asyncio.timeout(10):
                assert (await producer.send(Message("T", b"x"), timeout=30)).status is SendStatus.SEND_OK


async def test_a_broker_that_comes_back_at_another_address(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address, send_timeout=30) as producer:
        await producer.send(Message("T", b"first"))
        await broker.stop()
        send = producer.start_send(Message("T", b"x"), queue=SECOND)
        done, _ = await asyncio.wait([send], timeout=0.15)
        assert not done and names.asked.count("T") > 1
        async with Scripted("broker-a") as moved:
            names.knows("T", moved, queues=4)
            assert (await send).queue == SECOND
            assert moved.bodies == [b"x"]


async def test_who_waits_no_more_frees_its_place(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address, max_in_flight=1, send_timeout=30) as producer:
        await producer.send(Message("T", b"first"))
        await broker.stop()
        given_up, other = (producer.start_send(Message("T", b"%d" % number)) for number in range(2))
        await asyncio.wait([given_up], timeout=0.1)
        given_up.cancel()
        await broker.start()
        await other
        assert broker.bodies == [b"first", b"1"] and producer.in_flight == 0


async def test_a_stop_ends_what_still_waits(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    producer = Producer("g", nameserver=names.address, send_timeout=0.1)
    await producer.start()
    await producer.send(Message("T", b"first"), timeout=30)
    broker.answers.append(SILENT)
    silent = producer.start_send(Message("T", b"x"), timeout=60)
    await producer.send(Message("T", b"second"), timeout=30)
    await broker.stop()
    waits = producer.start_send(Message("T", b"x"), timeout=60, queue=SECOND)
    await asyncio.wait([waits], timeout=0.1)
    await producer.stop()
    for send in (silent, waits):
        with pytest.raises(StateError, match="stopped while the send was under way"):
            async with asyncio.timeout(5):
                await send


@pytest.mark.parametrize("wrong", [0, -1, "soon"])
def test_a_wait_takes_time(wrong: object) -> None:
    with pytest.raises(BadConfig, match=r"retry_backoff=.* is not allowed"):
        Producer("g", nameserver="h:1", retry_backoff=wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- flush


async def test_flush_waits_for_what_was_started_before(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address, max_in_flight=8) as producer:
        await producer.flush()
        sends = [producer.start_send(Message("T", b"x")) for _ in range(50)]
        broker.delay = 0.01
        await producer.flush()
        assert all(send.done() for send in sends) and producer.in_flight == 0
        broker.answers.append(SILENT)
        silent, failed = producer.start_send(Message("T", b"x"), timeout=0.2), producer.start_send(Message("U", b"x"))
        await producer.flush()
        assert isinstance(silent.exception(), CallTimeout) and failed.exception() is not None
        broker.answers.append(SILENT)
        silent = producer.start_send(Message("T", b"x"), timeout=30)
        with pytest.raises(CallTimeout, match="flush was not done"):
            await producer.flush(timeout=0.05)
        later = producer.start_send(Message("T", b"x"))
        silent.cancel()
        await producer.flush()
        assert later.done()


async def test_flush_waits_for_what_waits_for_a_broker(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone
    async with Producer("g", nameserver=names.address, send_timeout=30) as producer:
        await producer.send(Message("T", b"first"))
        await broker.stop()
        sends = [producer.start_send(Message("T", b"x")) for _ in range(5)]
        flush = asyncio.ensure_future(producer.flush())
        await until_sent_after(producer, broker, sends)
        await flush


async def test_flush_of_a_blocking_producer(lone: tuple[Scripted, Scripted]) -> None:
    names, broker = lone

    def run() -> None:
        with sync.Producer("g", nameserver=names.address) as producer:
            sends = [producer.start_send(Message("T", b"x")) for _ in range(5)]
            producer.flush(timeout=30)
            assert all(send.done() for send in sends)

    await asyncio.to_thread(run)
    assert len(broker.sends) == 5
