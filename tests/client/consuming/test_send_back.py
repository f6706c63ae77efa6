"""Messages that their broker does not take back go to the retry topic by whichever broker takes them."""

from __future__ import annotations

import pytest

from eruca.client import Later, MessageQueue, PushConsumer, ReceivedMessage, Reject
from eruca.client.consuming.last_error import last_error
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.consuming.retry_delays import RetryDelays
from eruca.client.consuming.retry_policy import RetryPolicy
from eruca.client.consuming.send_back import SendBack
from eruca.protocol.record import decode_record, encode_record
from tests.client.conftest import eventually
from tests.support.scripted import Scripted

BACK = 36
"""The request that sends a message back."""
CONFIGURATION = 26


def received() -> ReceivedMessage:
    record = encode_record(
        topic="T",
        queue_id=0,
        queue_offset=7,
        physical_offset=0,
        body=b"body",
        properties=b"UNIQ_KEY\x01ID\x02TAGS\x01a",
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=1,
        store_host=bytes(8),
        reconsume_times=0,
    )
    return ReceivedMessage(decode_record(record), MessageQueue("T", "broker-a", 0))


async def listener(message: ReceivedMessage) -> None:
    raise AssertionError("never called")


async def test_a_dead_first_broker_holds_no_message_back() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a)
        names.knows("%RETRY%g", a, b)
        async with PushConsumer("g", listener, nameserver=names.address).subscribe("T") as consumer:
            await a.stop()
            for count in range(1, 5):
                back = SendBack(consumer.session, "g", RetryPolicy(16), engine_of(consumer).stats)
                queue = ProcessQueue(MessageQueue("T", "broker-a", 0), 7)
                again: list[ReceivedMessage] = []
                back.consume_again = lambda _, message, again=again: again.append(message)
                back.start(queue, [received()], Later())
                await back.finish(10)
                assert len(b.sends) == count and not again
    header = b.sends[0]
    assert (header.topic, header.producer_group, header.reconsume_times) == ("%RETRY%g", "CLIENT_INNER_PRODUCER", 1)
    assert b.bodies == [b"body"] * 4
    assert "ORIGIN_MESSAGE_ID" in header.properties and "TAGS\x01a" in header.properties


async def test_a_broker_that_refuses_is_passed_over() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a)
        names.knows("%RETRY%g", a, b)
        a.refused_codes.add(BACK)
        a.answers.extend([1] * 10)
        async with PushConsumer("g", listener, nameserver=names.address).subscribe("T") as consumer:
            back = SendBack(consumer.session, "g", RetryPolicy(16), engine_of(consumer).stats)
            for _ in range(3):
                back.start(ProcessQueue(MessageQueue("T", "broker-a", 0), 7), [received()], Later())
            await back.finish(10)
            await eventually(lambda: len(b.sends) == 3)
            b.answers.extend([1] * 10)
            assert not await back.bury(received(), last_error(ValueError("never"))), "no broker takes it"


@pytest.mark.parametrize("code", [2, 215])
async def test_a_busy_broker_is_asked_again_until_it_has_time(code: int) -> None:
    """More often than by the number of attempts, and not at once."""
    async with Scripted("names") as names, Scripted("broker-a") as a:
        names.knows("T", a)
        names.knows("%RETRY%g", a)
        a.refused_codes.add(BACK)
        a.answers.extend([code] * 4)
        async with PushConsumer("g", listener, nameserver=names.address).subscribe("T") as consumer:
            back = SendBack(consumer.session, "g", RetryPolicy(16), engine_of(consumer).stats)
            began = consumer.session.loop.time()
            back.start(ProcessQueue(MessageQueue("T", "broker-a", 0), 7), [received()], Later())
            await back.finish(10)
            assert len(a.sends) == 5
            assert consumer.session.loop.time() - began > 0.75 * (0.05 + 0.1 + 0.2 + 0.4), "each wait is longer"


async def test_a_broker_is_asked_once_which_delays_it_knows_however_many_messages_wait() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a:
        names.knows("T", a)
        names.knows("%RETRY%g", a)
        async with PushConsumer("g", listener, nameserver=names.address).subscribe("T") as consumer:
            back = SendBack(consumer.session, "g", RetryPolicy(16), engine_of(consumer).stats)
            for _ in range(300):
                back.start(ProcessQueue(MessageQueue("T", "broker-a", 0), 7), [received()], Later(seconds=5))
            await back.finish(10)
    assert (a.configuration_asked, len(a.sends)) == (1, 300)
    assert all("TIMER_DELAY_MS\x015000" in header.properties for header in a.sends)


async def test_a_broker_that_does_not_say_which_delays_it_knows_is_asked_again_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Meanwhile RocketMQ's levels count, or what it said before."""
    queue = MessageQueue("T", "broker-a", 0)
    async with Scripted("names") as names, Scripted("broker-a") as a:
        names.knows("T", a)
        async with PushConsumer("g", listener, nameserver=names.address).subscribe("T") as consumer:
            delays = RetryDelays(consumer.session, "g", known_for=0.0, asked_again=0.0)
            a.refused_codes.add(CONFIGURATION)
            assert [(await delays.of(queue)).longest for _ in range(3)] == [0, 0, 0]
            a.refused_codes.clear()
            assert (await delays.of(queue)).longest == 100
            a.refused_codes.add(CONFIGURATION)
            assert (await delays.of(queue)).longest == 100
    assert caplog.text.count("broker-a does not say which delays it knows") == 1


async def test_what_fails_for_many_messages_is_one_line_of_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a:
        names.knows("T", a)
        names.knows("%RETRY%g", a)
        a.refused_codes.add(BACK)
        a.answers.extend([1] * 1000)
        async with PushConsumer("g", listener, nameserver=names.address).subscribe("T") as consumer:
            back = SendBack(consumer.session, "g", RetryPolicy(16), engine_of(consumer).stats)
            for _ in range(100):
                back.start(ProcessQueue(MessageQueue("T", "broker-a", 0), 7), [received()], Later())
            await back.finish(10)
    assert caplog.text.count("could not be sent back, sending it to the retry topic") == 1
    assert caplog.text.count("could not be sent to the retry topic, retrying here in") == 1


async def test_where_the_reason_cannot_travel_the_letter_is_made_without_it(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that takes no send to the retry topic makes the dead letter itself (36)."""
    async with Scripted("names") as names, Scripted("broker-a") as a:
        names.knows("T", a)
        names.knows("%RETRY%g", a)
        a.answers.extend([1] * 10)
        async with PushConsumer("g", listener, nameserver=names.address).subscribe("T") as consumer:
            back = SendBack(consumer.session, "g", RetryPolicy(16), engine_of(consumer).stats)
            assert await back.bury(received(), last_error(None, Reject("no such street")))
            assert engine_of(consumer).stats.dead == 1
    assert [header.delay_level for header in a.sent_back] == [-1]
    assert "message ID of T is a dead letter of g now (keys none, tried once): Reject: no such street" in caplog.text
