"""Message traces: their text, how they are collected, and what brokers hold of them in the end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from eruca.client import (
    Later,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
    trace,
)
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import BadName, ClientError
from eruca.client.message import check_message, text_of
from eruca.client.trace import Collector, Trace
from eruca.protocol.record import Record
from tests.client.conftest import Lab, Seen, eventually


async def traces(lab: Lab, topic: str = "RMQ_SYS_TRACE_TOPIC") -> list[tuple[Record, list[list[str]]]]:
    """The messages of traces, each with the fields of its records."""
    found = []
    for queue in await lab.puller.fetch_queues(topic):
        for record in (await lab.puller.pull(queue, 0)).records:
            text = ReceivedMessage(record, queue).body.decode()
            assert text.endswith("\x02")
            found.append((record, [line.split("\x01") for line in text[:-1].split("\x02")]))
    return found


async def test_a_sent_message(lab: Lab) -> None:
    async with Producer("p", nameserver=lab.address, trace=True) as producer:
        sent = await producer.send(Message("T", b"body", tags="a", keys=["k1", "k2"]))
        address = await producer.session.master("broker-a")
    [(record, [fields])] = await traces(lab)
    began, cost = int(fields.pop(1)), int(fields.pop(9))
    assert fields == [
        *("Pub", "DefaultRegion", "p", "T", sent.message_id, "a", "k1 k2"),
        *(address, "4", "0", sent.offset_message_id, "true"),
    ]
    assert 0 <= cost < 60_000 and began > 1_700_000_000_000
    assert set(record.keys) == {sent.message_id, "k1", "k2"} and record.tags is None


async def test_a_batch_and_what_has_no_tags_and_keys(lab: Lab) -> None:
    async with Producer("p", nameserver=lab.address, trace="MyTraces") as producer:
        sent = await producer.send_batch([Message("T", b"1"), Message("T", b"22", keys="k")])
        await producer.send_oneway(Message("T", b"nobody knows"))
    [(record, lines)] = await traces(lab, "MyTraces")
    assert [(line[5], line[6], line[7], line[9]) for line in lines] == [
        (message_id, "null", keys, size)
        for message_id, keys, size in zip(sent.message_id.split(","), ("null", "k"), ("1", "2"), strict=True)
    ]
    assert set(record.keys) == {*sent.message_id.split(","), "k"}


async def test_a_consumed_message(lab: Lab) -> None:
    async def listener(message: ReceivedMessage) -> Later | None:
        return Later(delay_level=18) if message.body == b"later" else None

    ok = await lab.producer.send(Message("T", b"ok", keys="k"))
    later = await lab.producer.send(Message("T", b"later"))
    consumer = PushConsumer("g", listener, nameserver=lab.address, trace=True).subscribe("T")
    async with consumer:
        await eventually(lambda: engine_of(consumer).stats.consumed + engine_of(consumer).stats.failed == 2)
    lines = [line for _, part in await traces(lab) for line in part]
    before = {line[5]: line for line in lines if line[0] == "SubBefore"}
    after = {line[2]: line for line in lines if line[0] == "SubAfter"}
    assert len(lines) == 4
    assert before[ok.message_id][2:4] == ["null", "g"] and before[ok.message_id][6:] == ["0", "k"]
    for message_id, success, code, keys in (
        (ok.message_id, "true", "0", "k"),
        (later.message_id, "false", "4", "null"),
    ):
        assert after[message_id][1] == before[message_id][4] and len(after[message_id][1]) == 32
        assert after[message_id][4:7] == [success, keys, code] and after[message_id][8] == "g"


async def test_a_transaction(lab: Lab) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async with TransactionProducer("p", check, nameserver=lab.address, trace=True) as producer:
        done = await producer.send_in_transaction(
            Message("T", b"x", tags="a", keys="k"), lambda _, __: TransactionState.ROLLBACK
        )
    [(_, [pub, end])] = await traces(lab)
    assert (pub[0], pub[11]) == ("Pub", "1")
    assert end[0] == "EndTransaction"
    assert end[2:8] == ["DefaultRegion", "p", "T", done.transaction_id, "a", "k"]
    assert end[9:] == ["2", done.transaction_id, "ROLLBACK_MESSAGE", "false"]


async def test_traces_of_threads_and_of_the_loop_end_up_together(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *[b"x"] * 40)
    async with PushConsumer("g", seen.function, nameserver=lab.address, trace=True).subscribe("T"):
        await seen.reaches(40)
    lines = [line for _, part in await traces(lab) for line in part]
    assert len([line for line in lines if line[0] == "SubBefore"]) == 40
    assert len([line for line in lines if line[0] == "SubAfter"]) == 40


async def test_a_trace_topic_that_cannot_be_is_refused(lab: Lab) -> None:
    with pytest.raises(BadName, match="illegal characters"):
        Producer("p", nameserver=lab.address, trace="a topic")


class Sink:
    """Takes the messages of a collector; each send ends when ``answer`` says so."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.under_way: list[asyncio.Future[Any]] = []

    def send(self, message: Message) -> asyncio.Future[Any]:
        self.messages.append(message)
        self.under_way.append(asyncio.get_running_loop().create_future())
        return self.under_way[-1]

    def answer(self) -> None:
        for each in self.under_way:
            if not each.done():
                each.set_result(None)


async def test_much_leaves_at_once_and_little_after_a_while() -> None:
    sink = Sink()
    collector = Collector("T", sink.send, send_after=0.01)
    for number in range(3):
        collector.append(Trace("x" * 60_000, (f"id{number}", "shared")))
    await eventually(lambda: len(sink.messages) == 2)
    assert [len(message.body) for message in sink.messages] == [120_000, 60_000]
    assert [message.keys for message in sink.messages] == ["id0 shared id1", "id2 shared"]


async def test_keys_never_exceed_what_a_broker_takes() -> None:
    sink = Sink()
    collector = Collector("T", sink.send)
    for number in range(2000):
        collector.append(Trace("x\x02", (f"{number:032X}",)))
    await eventually(lambda: len(sink.messages) == 2)
    for message in sink.messages:
        check_message(message, trace.MAX_MESSAGE_SIZE)
        assert len(text_of(message, "0" * 32)) < 32767


async def test_long_keys_share_no_message_that_they_do_not_fit_in() -> None:
    sink = Sink()
    collector = Collector("T", sink.send)
    for number in range(4):
        collector.append(Trace("x\x02", (f"{number:032X}", f"{number}" * 20_000)))
    await eventually(lambda: len(sink.messages) == 4)
    for message in sink.messages:
        check_message(message, trace.MAX_MESSAGE_SIZE)


async def test_a_thread_may_tell_more_while_the_rest_leaves() -> None:
    left = 3

    def send(message: Message) -> asyncio.Future[Any]:
        nonlocal left
        if left := left - 1:
            collector.append(Trace("x\x02", ("k",)))
        raise ClientError("away")

    collector = Collector("T", send)
    collector.append(Trace("x\x02", ("k",)))
    await collector.drain()
    assert (left, collector._lost) == (0, 3)


async def test_what_cannot_be_sent_is_lost_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()
    collector = Collector("T", sink.send, most_waiting=5, most_sends=1)
    for _ in range(9):
        collector.append(Trace("x\x02", ("k",)))
    assert "1 message traces for T are lost: too many wait" in caplog.text
    drained = asyncio.create_task(collector.drain())
    await eventually(lambda: len(sink.messages) == 1)
    sink.under_way[0].set_exception(ClientError("away"))
    await drained
    assert caplog.text.count("are lost") == 1 and collector._lost == 9


async def test_a_thread_that_outlives_the_loop_does_no_harm() -> None:
    def make() -> Collector:
        async def inside() -> Collector:
            return Collector("T", Sink().send)

        return asyncio.run(inside())

    made: list[Collector] = []
    thread = threading.Thread(target=lambda: made.append(make()))
    thread.start()
    await asyncio.to_thread(thread.join)
    made[0].append(Trace("x\x02", ("k",)))
