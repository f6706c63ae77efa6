"""How sends leave and end: what is written, which answers end which sends, what is tried again, and in which order."""

from __future__ import annotations

import asyncio
import socket
import threading
import zlib
from collections.abc import AsyncIterator, Sequence
from copy import copy
from typing import Any, cast

import pytest

from eruca.client import Hook, Message, MessageQueue, Producer, SendResult, SendStatus
from eruca.client.errors import (
    BadAnswer,
    BadConfig,
    BadMessage,
    BrokerRefused,
    CallTimeout,
    ClientError,
    StateError,
    UsageError,
)
from eruca.client.message import AFTER_ID
from eruca.client.producing.packer import pack
from eruca.client.producing.send import Send
from eruca.client.producing.sender import Sender
from eruca.client.selectors import by_hash
from eruca.protocol import frame
from eruca.protocol.headers.send import SendReply
from tests.client.producing.conftest import Pair
from tests.support.scripted import SILENT, Scripted

ID = "7F00000100002A9F000000000001E240"
SECOND = MessageQueue("T", "broker-a", 2)
APACHE = (
    b'{"code":0,"extFields":{"queueId":"1","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"7F00000100002A9F000000000001E240","queueOffset":"7"},"flag":1,"language":"JAVA","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":399}'
)
STORED = SendReply(msg_id=ID, queue_id=1, queue_offset=7)
WHERE = MessageQueue("T", "broker-a", 1), 7, ID, None
ANSWERS: list[tuple[int, SendReply | None, str | None, tuple[object, ...]]] = [
    (0, STORED, None, (SendStatus.SEND_OK, *WHERE)),
    (
        0,
        SendReply(msg_id=ID, queue_id=0, queue_offset=2**40, transaction_id="7F0000010001"),
        None,
        (SendStatus.SEND_OK, MessageQueue("T", "broker-a", 0), 2**40, ID, "7F0000010001"),
    ),
    (10, STORED, "flush timeout", (SendStatus.FLUSH_DISK_TIMEOUT, *WHERE)),
    (11, STORED, None, (SendStatus.SLAVE_NOT_AVAILABLE, *WHERE)),
    (12, STORED, None, (SendStatus.FLUSH_SLAVE_TIMEOUT, *WHERE)),
    (0, None, None, (BadAnswer,)),
    (999, None, "[A_NEW_REASON]no", (BrokerRefused,)),
    (13, None, "the message is illegal", (BrokerRefused,)),
]


class Seen(Hook):
    """Sees every send."""

    def __init__(self) -> None:
        self.results: list[SendResult | None] = []

    def after_send(self, context: Any) -> None:
        self.results.append(context.result)


async def outcome(send: asyncio.Future[SendResult]) -> tuple[object, ...]:
    try:
        result = await asyncio.wait_for(send, 10)
    except ClientError as error:
        return (type(error),)
    return result.status, result.queue, result.offset, result.offset_message_id, result.transaction_id


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize("number", range(len(ANSWERS)))
@pytest.mark.parametrize("broken", [False, True], ids=["whole", "in two reads"])
@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "with a hook"])
async def test_a_send_ends_by_its_answer(pair: Pair, number: int, broken: bool, hooked: bool) -> None:
    if hooked:
        pair.producer.add_hook(Seen())
    line = pair.line()
    code, reply, remark, expected = ANSWERS[number]
    send = pair.producer.start_send(Message("T", b"hello"))
    await asyncio.sleep(0)  # it leaves at the end of this turn
    ((head, _),) = line.requests()
    answer = frame.encode(pair.connection.serialization, code, head.opaque, frame.RESPONSE_FLAG, reply, 0, remark)
    at = len(answer) // 2 if broken else 0
    for part in (answer[:at], answer[at:]):
        if part:
            line.answers(part)
    assert await outcome(send) == expected
    assert len(pair.connection.calls) == 0 and pair.producer.in_flight == 0


async def test_the_answer_of_apache_is_read_whatever_the_order_of_its_fields(pair: Pair) -> None:
    line = pair.line()
    send = pair.producer.start_send(Message("T", b"hello"))
    await asyncio.sleep(0)
    ((head, _),) = line.requests()
    header = APACHE % head.opaque
    line.answers((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
    assert await outcome(send) == (SendStatus.SEND_OK, *WHERE)


async def test_answers_of_one_read_go_to_their_sends_in_any_order(pair: Pair) -> None:
    line = pair.line()
    sends = [pair.producer.start_send(Message("T", b"%d" % number)) for number in range(5)]
    await asyncio.sleep(0)
    opaques = {int(body): head.opaque for head, body in line.requests()}
    line.answers(
        b"".join(
            frame.encode(
                pair.connection.serialization,
                13 if number == 3 else 0,
                opaques[number],
                frame.RESPONSE_FLAG,
                None if number == 3 else SendReply(msg_id=ID, queue_id=1, queue_offset=number),
            )
            for number in (4, 0, 3, 1)
        )
    )
    assert [(await sends[number]).offset for number in (0, 1, 4)] == [0, 1, 4]
    with pytest.raises(BrokerRefused):
        await sends[3]
    assert not sends[2].done() and len(pair.connection.calls) == 1
    sends[2].cancel()


# ---------------------------------------------------------------------- order


async def test_what_was_started_first_leaves_first_whatever_it_is(pair: Pair) -> None:
    """Plain, compressed, flagged, one-way and batches, to one queue."""
    producer = pair.producer
    sends = [producer.start_send(Message("T", b"0"), queue=SECOND)]
    sends += [producer.start_send(Message("T", b"z" * 5000), queue=SECOND)]
    sends += [producer.start_send(Message("T", b"1"), queue=SECOND)]
    sends += [producer.start_send(Message("T", b"2", flag=1), queue=SECOND)]
    sends += [producer.start_send(Message("T", b"3"), queue=SECOND)]
    await producer.send_oneway(Message("T", b"one-way"), queue=SECOND)
    sends += [producer.start_send(Message("T", b"last"), queue=SECOND)]
    batch = await producer.send_batch([Message("T", b"in a batch")], queue=SECOND)
    await asyncio.gather(*sends)
    assert batch.queue == SECOND
    came = [body for body in pair.broker.bodies[1:] if len(body) < 10]
    assert came == [b"0", b"1", b"2", b"3", b"one-way", b"last"]
    assert [number for number, body in enumerate(pair.broker.bodies) if len(body) >= 10] == [2, 8]


@pytest.mark.parametrize("known", [False, True], ids=["no route yet", "no connection yet"])
@pytest.mark.parametrize("by", ["queue", "key", "turn"])
async def test_nothing_overtakes_what_waits_for_its_route_or_connection(known: bool, by: str) -> None:
    """Some begin in each turn of the loop in which the first ones get through."""
    async with Scripted() as server:
        server.knows("T", server, queues=1 if by == "turn" else 4)
        async with Producer("g", nameserver=server.address) as producer:
            if known:
                await producer.session.directory.route_to_send("T", 4)
            places: dict[str, dict[str, Any]] = {
                "queue": {"queue": SECOND},
                "key": {"ordered_by": "order-7"},
                "turn": {},
            }
            where, sends = places[by], list[asyncio.Future[SendResult]]()
            while len(sends) < 50 or not sends[0].done():
                sends.append(producer.start_send(Message("T", b"%d" % len(sends)), **where))
                await asyncio.sleep(0)
            await asyncio.gather(*sends)
        assert server.bodies == [b"%d" % number for number in range(len(sends))]


@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "with a hook"])
async def test_a_large_body_is_compressed_in_a_thread_and_leaves_in_its_order(pair: Pair, hooked: bool) -> None:
    producer = pair.producer
    if hooked:
        producer.add_hook(Seen())
    large = b"z" * (1 << 20)
    sends = [producer.start_send(Message("T", b"1"), queue=SECOND)]
    sends += [producer.start_send(Message("T", large, flag=7), queue=SECOND) for _ in range(2)]
    sends += [producer.start_send(Message("T", b"2"), queue=SECOND), producer.start_send(Message("T", large))]
    cancelled = producer.start_send(Message("T", large), queue=SECOND)
    batch = asyncio.ensure_future(producer.send_batch([Message("T", b"in a batch")], queue=SECOND))
    cancelled.cancel()
    await producer.flush()
    assert all(send.done() and send.exception() is None for send in sends)
    await batch
    assert any(thread.name.startswith("eruca-compression") for thread in threading.enumerate())
    sizes = [len(body) for body in pair.broker.bodies[1:]]
    assert (
        sizes[0] == sizes[3] == 1
        and {sizes[1], sizes[2], sizes[4]} == {len(zlib.compress(large, 5))}
        and len(sizes) == 6
    )
    assert [header.flag for header in pair.broker.sends[1:]] == [0, 7, 7, 0, 0, 0]
    assert {header.sys_flag for header in pair.broker.sends[1:]} == {0, 0x301} and producer.in_flight == 0


async def test_a_stop_waits_for_what_is_compressed(pair: Pair) -> None:
    async with Producer("other", nameserver=pair.names.address) as producer:
        send = producer.start_send(Message("T", b"z" * (1 << 20)))
    assert send.result().queue.topic == "T"


async def test_a_compression_that_fails_fails_its_send_alone(pair: Pair) -> None:
    def out_of_memory(body: bytes) -> tuple[bytes, int]:
        raise MemoryError

    sender = Sender(pair.producer.session, "g")
    large, small = (Send(sender, sender.topic("T"), asyncio.Future(), b"x" * size, AFTER_ID, 3.0) for size in (9, 1))
    pack(sender, large, out_of_memory)
    sender.append(large)
    sender.append(small)
    with pytest.raises(MemoryError):
        await large.future
    assert (await small.future).status is SendStatus.SEND_OK
    assert len(sender.accumulator) == 0


async def test_the_oneway_sends_of_one_turn_leave_together_until_they_are_many(pair: Pair) -> None:
    await pair.producer.send(Message("T", b"the first one"), queue=SECOND)
    line = pair.line()
    for number in range(100):
        await pair.producer.send_oneway(Message("T", b"%d" % number), queue=SECOND)
    assert not line.written
    await asyncio.sleep(0)
    assert len(line.written) == 1 and [body for _, body in line.requests()] == [b"%d" % each for each in range(100)]
    for _ in range(200):
        await pair.producer.send_oneway(Message("T", b"x" * 1000), queue=SECOND)
    assert len(line.requests()) > 150, "nobody waited, and yet most of them have left"


async def test_the_sends_of_one_turn_leave_in_one_write(pair: Pair) -> None:
    line = pair.line()
    sends = [pair.producer.start_send(Message("T", b"%d" % number)) for number in range(100)]
    assert not line.written
    await asyncio.sleep(0)
    assert len(line.written) == 1 and [body for _, body in line.requests()] == [b"%d" % each for each in range(100)]
    for send in sends:
        send.cancel()


async def test_equal_arguments_meet_in_one_queue_and_turns_go_on_between(pair: Pair) -> None:
    orders = [pair.producer.start_send(Message("T", b"x"), selector=by_hash, arg="order-7") for _ in range(3)]
    others = [pair.producer.start_send(Message("T", b"x")) for _ in range(4)]
    assert len({result.queue for result in await asyncio.gather(*orders)}) == 1
    numbers = [result.queue.queue_id for result in await asyncio.gather(*others)]
    assert numbers == [(numbers[0] + step) % 4 for step in range(4)]


@pytest.mark.parametrize("key", ["order-7", "grün", "", 7, -(2**40)])
async def test_ordered_by_is_the_queue_of_the_hash_in_every_kind_of_send(pair: Pair, key: str | int) -> None:
    producer, message = pair.producer, Message("T", b"x")
    expected = (await producer.send(message, selector=by_hash, arg=key)).queue
    results = [
        await producer.send(message, ordered_by=key),
        await producer.start_send(message, ordered_by=key),
        await producer.send_batch([message, message], ordered_by=key),
        await producer.send_batch([message, message], selector=by_hash, arg=key),
    ]
    await producer.send_oneway(message, ordered_by=key)
    await producer.send_oneway(message, ordered_by=key, timeout=30)
    with pytest.raises(CallTimeout, match="wait reply message timeout"):
        await producer.request(message, ordered_by=key, timeout=0.1)
    assert {result.queue for result in results} == {expected}
    assert {header.queue_id for header in pair.broker.sends[1:]} == {expected.queue_id}
    assert len(pair.broker.sends) == 1 + 1 + len(results) + 3


def test_ordered_by_is_what_java_chooses() -> None:
    """ "order-7".hashCode() is -1207111304, "grün".hashCode() is 3185949 in Java."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(8)]
    chosen = [by_hash(queues, Message("T", b"x"), key).queue_id for key in ("order-7", "grün")]
    assert chosen == [1207111304 % 8, 3185949 % 8]


async def test_a_batch_has_a_list_of_ids(pair: Pair) -> None:
    result = await pair.producer.send_batch([Message("T", b"1"), Message("T", b"2")])
    assert ",".join(result.message_ids) == result.message_id and len(result.message_ids) == 2
    single = await pair.producer.send(Message("T", b"1"))
    assert single.message_ids == [single.message_id] and single.offset_message_ids == [single.offset_message_id]


async def test_a_producer_needs_no_group(pair: Pair) -> None:
    async with Producer(nameserver=pair.names.address) as producer:
        await producer.send(Message("T", b"x"))
        assert producer.group == pair.broker.sends[-1].producer_group == "DEFAULT_PRODUCER"
        assert repr(producer) == "<Producer DEFAULT_PRODUCER>"


# ---------------------------------------------------------------------- what is wrong


def raises(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    raise KeyError("no such customer")


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"selector": raises}, KeyError, "no such customer"),
    ({"selector": lambda queues, message, arg: None}, UsageError, "select message queue return null"),
    ({"selector": lambda *what: MessageQueue("U", "broker-a", 0)}, UsageError, "topic not equal"),
    ({"selector": 7}, UsageError, "a function is expected"),
    ({"queue": "broker-a:2"}, UsageError, "a MessageQueue is expected"),
    ({"queue": MessageQueue("U", "broker-a", 0)}, BadMessage, "topic not equal"),
    ({"queue": SECOND, "selector": by_hash}, UsageError, "not both"),
    ({"arg": "order-7"}, UsageError, "arg is for a selector"),
    ({"selector": by_hash}, UsageError, "by_hash needs an argument"),
    ({"ordered_by": True}, UsageError, "ordered_by is of type bool"),
    ({"ordered_by": "a", "selector": by_hash}, UsageError, "only one of them"),
]


@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "with a hook"])
@pytest.mark.parametrize(("chosen", "error", "text"), WRONG)
async def test_a_choice_that_fails_is_raised_and_nothing_is_sent(
    pair: Pair, hooked: bool, chosen: dict[str, Any], error: type[Exception], text: str
) -> None:
    if hooked:
        pair.producer.add_hook(Seen())
    with pytest.raises(error, match=text):
        await pair.producer.send(Message("T", b"x"), **chosen)
    assert pair.broker.bodies == [b"first"] and pair.producer.in_flight == 0


async def test_a_selector_that_fails_for_a_topic_whose_route_is_not_known(pair: Pair) -> None:
    pair.names.knows("T2", pair.broker)
    with pytest.raises(KeyError, match="no such customer"):
        await pair.producer.send(Message("T2", b"x"), selector=raises)
    assert pair.broker.bodies == [b"first"] and pair.producer.in_flight == 0


def cancelled(*what: object) -> MessageQueue:
    raise asyncio.CancelledError


@pytest.mark.parametrize("topic", ["T", "T2"])
async def test_a_selector_that_something_cancelled_fails_its_send_alone(pair: Pair, topic: str) -> None:
    pair.names.knows("T2", pair.broker)
    others = [pair.producer.start_send(Message(topic, b"y"))]
    with pytest.raises(UsageError, match="was cancelled by what it called"):
        async with asyncio.timeout(5):
            await pair.producer.send(Message(topic, b"x"), selector=cancelled)
    others += [pair.producer.start_send(Message(topic, b"y"))]
    await asyncio.gather(*others)
    assert pair.broker.bodies == [b"first", b"y", b"y"] and pair.producer.in_flight == 0


class Cancelled(Hook):
    """Asks something that was cancelled for its result."""

    def before_send(self, context: Any) -> None:
        raise asyncio.CancelledError

    after_send = before_send


async def test_a_hook_that_something_cancelled_keeps_no_send_from_its_end(pair: Pair) -> None:
    pair.producer.add_hook(Cancelled())
    async with asyncio.timeout(5):
        await asyncio.gather(*(pair.producer.start_send(Message("T", b"%d" % number)) for number in range(20)))
        await pair.producer.send_oneway(Message("T", b"20"))
    assert pair.producer.in_flight == 0 and pair.connection in pair.producer.session.greeted


async def test_a_stop_ends_what_still_waits_for_a_route() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        producer = Producer("g", nameserver=f"127.0.0.1:{silent.getsockname()[1]}", send_timeout=0.01)
        await producer.start()
        sends: list[asyncio.Future[Any]] = [producer.start_send(Message("T", b"x"), timeout=60)]
        sends += [asyncio.ensure_future(producer.send_batch([Message("T", b"x")], timeout=60))]
        await asyncio.sleep(0)
        await producer.stop()
        for send in sends:
            with pytest.raises(StateError, match="stopped while the send was under way"):
                async with asyncio.timeout(5):
                    await send


async def test_a_nameserver_that_never_answers_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with Producer("g", nameserver=address, send_timeout=0.2) as producer:
            with pytest.raises(CallTimeout, match=rf"no nameserver of {address} answered in time: check that mqnames"):
                await producer.send(Message("T", b"x"))


class Standing(asyncio.SelectorEventLoop):
    """A loop that stands still when the test says so: its time goes on, and nothing is done meanwhile."""

    stood = 0.0

    def time(self) -> float:
        return super().time() + self.stood


@pytest.mark.parametrize("known", [False, True], ids=["no route yet", "no connection yet"])
def test_a_loop_that_stood_still_takes_no_time_from_sends_that_wait_to_leave(known: bool) -> None:
    """As in a program that computes in its event loop, or on a machine that is too busy to run it."""

    async def work(loop: Standing) -> None:
        async with Scripted() as server:
            server.knows("T", server)
            async with Producer("g", nameserver=server.address, send_timeout=5.0) as producer:
                if known:
                    await producer.session.directory.route_to_send("T", 4)
                sends = [producer.start_send(Message("T", b"%d" % number)) for number in range(20)]
                await asyncio.sleep(0)
                loop.stood += 60
                results = await asyncio.gather(*sends)
        assert [result.offset for result in results] == [*range(20)]

    with asyncio.Runner(loop_factory=Standing) as runner:
        runner.run(work(cast(Standing, runner.get_loop())))


async def test_what_is_wrong_is_raised_and_not_sent(pair: Pair) -> None:
    numbers: list[dict[str, Any]] = [{"delay_level": 99}, {"flag": 1 << 31}, {"flag": "7"}]
    for wrong in (
        *(Message("T", b"x", **number) for number in numbers),
        Message("T", b""),
        Message("T", b"x", tags="a\x01"),
    ):
        with pytest.raises(BadMessage):
            await pair.producer.send(wrong)
        with pytest.raises(BadMessage):
            await pair.producer.send_batch([Message("T", b"good"), wrong])
    with pytest.raises(BadMessage, match="size over max value"):
        await pair.producer.send_batch([Message("T", b"x" * 3_000_000)] * 2)
    with pytest.raises(BadMessage, match="should be the same"):
        await pair.producer.send_batch([Message("T", b"1"), Message("T2", b"2")])
    with pytest.raises(BadMessage, match="a list of messages is expected"):
        await pair.producer.send_batch(7)  # type: ignore[arg-type]
    assert len(pair.broker.sends) == 1
    await pair.producer.send(Message("T", b"x"))
    await pair.producer.stop()
    with pytest.raises(StateError):
        pair.producer.start_send(Message("T", b"x"))


async def test_a_request_that_fits_no_frame_fails_alone(pair: Pair) -> None:
    async with Producer(
        "large", nameserver=pair.names.address, max_message_size=1 << 25, compress_from=1 << 25
    ) as producer:
        sends = [producer.start_send(Message("T", body)) for body in (b"x", b"x" * (17 << 20), b"y")]
        with pytest.raises(ClientError, match="too long to send"):
            await sends[1]
        await asyncio.gather(sends[0], sends[2])
        assert producer.in_flight == 0


@pytest.mark.parametrize("where", ["tags", "keys"])
async def test_what_utf_8_cannot_write_is_raised_at_the_call(pair: Pair, where: str) -> None:
    with pytest.raises(BadMessage, match="half of a surrogate pair"):
        pair.producer.start_send(Message("T", b"x", **{where: "\ud83d"}))  # type: ignore[arg-type]
    with pytest.raises(BadConfig, match=r"timeout=\[1\] is not allowed"):
        pair.producer.start_send(Message("T", b"x"), timeout=[1])  # type: ignore[arg-type]
    assert pair.producer.in_flight == 0


# ---------------------------------------------------------------------- attempts


async def test_after_a_refusal_another_broker_is_asked(pair: Pair) -> None:
    async with Scripted("broker-b") as other:
        pair.names.knows("T", pair.broker, other, queues=1)
        await pair.producer.session.directory.refresh("T")
        for _ in range(2):
            await pair.producer.send(Message("T", b"x"))
        pair.broker.answers.extend([1] * 10)
        results = await asyncio.gather(*(pair.producer.send(Message("T", b"%d" % number)) for number in range(4)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        assert sorted(other.bodies[-4:]) == [b"0", b"1", b"2", b"3"]
        await pair.broker.stop()
        results = await asyncio.gather(*(pair.producer.send(Message("T", b"x")) for number in range(4)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_another_attempt_carries_the_same_id_and_time(pair: Pair) -> None:
    pair.broker.answers.append(1)
    result = await pair.producer.send(Message("T", b"x", tags="A"))
    first, second = pair.broker.sends[1:]
    assert first.properties == second.properties and result.message_id in first.properties
    assert first.born_timestamp == second.born_timestamp


async def test_a_chosen_queue_is_tried_once(pair: Pair) -> None:
    pair.broker.answers.extend([1, 13])
    for chosen in ({"queue": SECOND}, {"selector": lambda queues, message, arg: queues[0]}):
        with pytest.raises(BrokerRefused):
            await pair.producer.send(Message("T", b"x"), **chosen)
    assert len(pair.broker.sends) == 1 + 2


async def test_a_queue_that_the_route_does_not_name_is_asked(pair: Pair) -> None:
    hidden = MessageQueue("T", "broker-a", 9)
    results = [await pair.producer.send(Message("T", b"x"), queue=hidden)]
    results += [await pair.producer.send_batch([Message("T", b"x")], queue=hidden)]
    results += await asyncio.gather(*(pair.producer.send(Message("T", b"x"), queue=hidden) for _ in range(3)))
    assert [result.queue for result in results] == [hidden] * 5
    numbers = {result.queue.queue_id for result in [await pair.producer.send(Message("T", b"x")) for _ in range(8)]}
    assert numbers == {0, 1, 2, 3}


async def test_silence_ends_in_time_and_a_cancelled_send_frees_its_place(pair: Pair) -> None:
    pair.broker.answers.extend([SILENT] * 2)
    given_up, silent = (pair.producer.start_send(Message("T", b"x"), timeout=0.2) for _ in range(2))
    given_up.cancel()
    with pytest.raises(CallTimeout, match="sendDefaultImpl call timeout"):
        await silent
    assert pair.producer.in_flight == 0


async def test_a_send_that_is_cancelled_in_its_turn_is_not_sent(pair: Pair) -> None:
    sends = [pair.producer.start_send(Message("T", b"%d" % number)) for number in range(4)]
    sends[1].cancel()
    sends[3].cancel()
    await asyncio.gather(sends[0], sends[2])
    assert pair.broker.bodies[1:] == [b"0", b"2"] and pair.producer.in_flight == 0


async def test_a_broker_that_goes_in_the_turn_of_a_send(pair: Pair) -> None:
    async with Scripted("broker-b") as other:
        sends = [pair.producer.start_send(Message("T", b"%d" % number)) for number in range(4)]
        pair.names.knows("T", other)
        pair.connection.connection_lost(None)
        await pair.broker.stop()
        results = await asyncio.gather(*sends)
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    assert sorted(other.bodies) == [b"0", b"1", b"2", b"3"]


async def test_a_hook_sees_sends_from_when_it_is_added(pair: Pair) -> None:
    await pair.producer.send(Message("T", b"x"))
    hook = Seen()
    pair.producer.add_hook(hook)
    result = await pair.producer.send(Message("T", b"x"))
    assert hook.results == [result]


async def test_a_route_that_changes_counts_at_once(pair: Pair) -> None:
    async with Scripted("broker-b") as other:
        pair.names.knows("T", other)
        await pair.producer.session.directory.refresh("T")
        results = [await pair.producer.send(Message("T", b"x")) for _ in range(3)]
        assert {result.queue for result in results} == {MessageQueue("T", "broker-b", 0)}


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x" * 4096),
        Message("T", b"x", flag=7),
        Message("T", b"x", delay_level=3),
        Message("T", b"x", delay=5),
        Message("T", bytearray(b"x")),  # type: ignore[arg-type]
        Message("T2", b"x"),
    ],
    ids=["compressed", "flag", "level", "delay", "type", "new topic"],
)
async def test_messages_of_every_kind_are_sent(pair: Pair, message: Message) -> None:
    pair.names.knows("T2", pair.broker)
    assert (await pair.producer.send(copy(message))).status is SendStatus.SEND_OK
    assert pair.broker.sends[-1].topic == message.topic and pair.broker.sends[-1].flag == message.flag


# ---------------------------------------------------------------------- latency faults


@pytest.fixture
async def two() -> AsyncIterator[tuple[Producer, Scripted, Scripted]]:
    """A producer with fault tolerance, at broker-a and broker-b, which have a queue each."""
    async with Scripted("names") as names, Scripted("broker-a") as broker, Scripted("broker-b") as other:
        names.knows("T", broker, other)
        async with Producer("g", nameserver=names.address, fault_tolerance=True) as producer:
            for _ in range(2):
                await producer.send(Message("T", b"first"))
            yield producer, broker, other


async def brokers_of(producer: Producer, count: int) -> set[str]:
    results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(count)))
    results += [await producer.send_batch([Message("T", b"x")]) for _ in range(2)]
    return {result.queue.broker_name for result in results}


async def test_a_broker_that_fell_silent_is_passed_over(two: tuple[Producer, Scripted, Scripted]) -> None:
    producer, broker, _ = two
    broker.answers.append(SILENT)
    with pytest.raises(CallTimeout):
        for _ in range(2):
            await producer.send(Message("T", b"x"), timeout=0.2)
    assert await brokers_of(producer, 4) == {"broker-b"}


async def test_sends_to_a_chosen_queue_say_nothing_of_their_brokers(two: tuple[Producer, Scripted, Scripted]) -> None:
    producer, broker, _ = two
    broker.answers.append(SILENT)
    with pytest.raises(CallTimeout):
        await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 0), timeout=0.2)
    assert await brokers_of(producer, 4) == {"broker-a", "broker-b"}


async def test_a_late_answer_counts_as_its_latency(two: tuple[Producer, Scripted, Scripted]) -> None:
    producer, broker, _ = two
    broker.delay = 0.6
    results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(2)))
    assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
    broker.delay = 0.0
    assert await brokers_of(producer, 4) == {"broker-b"}
