"""The short way of sends differs from the ordinary one in time only: same bytes, same results, same errors."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import Any

import pytest

from eruca.client import ClientSettings, Hook, Message, MessageQueue, Producer, SendResult, SendStatus
from eruca.client.errors import BadConfig, BadMessage, BrokerRefused, CallTimeout, ClientError, StateError
from eruca.client.network import identity
from eruca.client.network.identity import UniqueKeys
from eruca.client.producing.batch import encode_messages, encode_ordinary
from eruca.protocol import frame
from eruca.protocol.headers.send import SendReply
from tests.client.two_ways import NOW, TwoWays, bytes_of_both
from tests.support.scripted import SILENT, Scripted

ID = "7F00000100002A9F000000000001E240"


MESSAGES = [
    Message("T", b"hello"),
    Message("T", b"x" * 4095),
    Message("T", b"hello", tags="A", keys=["k1", "k2"]),
    Message("T", b"hello", properties={"city": 'Zürich "😀"', "n": "1"}, wait_store=False),
]


@pytest.mark.usefixtures("still")
async def test_both_ways_send_the_same_bytes(both: TwoWays) -> None:
    def start() -> list[asyncio.Future[SendResult]]:
        sends = [both.producer.start_send(message) for message in MESSAGES * 2]
        batches = [both.producer.send_batch(batch) for batch in (MESSAGES[:3], MESSAGES[3:])]
        return [*sends, *map(asyncio.ensure_future, batches)]

    short, ordinary = await bytes_of_both(both, start)
    assert short == ordinary and short.count(b"hello") == 6 + 3
    assert both.short == len(MESSAGES) * 2 + 2


def test_a_batch_that_is_written_quickly_is_the_batch_that_is_written_slowly() -> None:
    many = [Message("T", b"x" * (1 + number % 3)) for number in range(600)]
    tagged = [Message("T", b"x", tags="Ä"), Message("T", b"xx", tags="Ä")]
    for batch in (MESSAGES[:3], MESSAGES[:1] * 3, MESSAGES[3:], many, tagged, [*tagged, many[0]]):
        ids = identity.unique_keys().stretches(NOW, len(batch))
        written = encode_ordinary(batch, ids, 100_000)
        assert written == encode_messages(batch, ids.ids(), 100_000)
        assert encode_ordinary(batch, ids, len(written or b"") - 1) is None
    more = Message("T", b"x", wait_store=False)
    late = [Message("T", b"x", delay_level=1), Message("T", b"x", delay=1), Message("T", b"x", deliver_at=1)]
    texts = [Message("T", "x"), Message("T", bytearray(b"x"))]  # type: ignore[arg-type]
    for one in (Message("%RETRY%g", b"x"), Message("T", b""), Message("U", b"x"), more, *late, *texts):
        for tag in (None, "A"):
            batch = [Message("T", b"x"), Message("T", b"x", tags=tag), one]
            batch = [one] if one.topic.startswith("%") else batch
            assert encode_ordinary(batch, identity.unique_keys().stretches(NOW, len(batch)), 100_000) is None


def test_several_ids_are_those_that_would_have_come_one_by_one() -> None:
    one, many = UniqueKeys("192.0.2.1"), UniqueKeys("192.0.2.1")
    many._prefix = one._prefix
    for count in (1, 2, 255, 256, 257, 65_000, 1000):
        found = many.stretches(NOW, count)
        assert found.ids() == [one.next(NOW) for _ in range(count)] and found.joined() == ",".join(found.ids())


APACHE = (
    b'{"code":0,"extFields":{"queueId":"1","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"7F00000100002A9F000000000001E240","queueOffset":"7"},"flag":1,"language":"JAVA","opaque":1001,'
    b'"serializeTypeCurrentRPC":"JSON","version":399}'
)
ANSWERS: list[tuple[int, SendReply | None, str | None]] = [
    (0, SendReply(msg_id=ID, queue_id=1, queue_offset=7), None),
    (0, SendReply(msg_id=ID, queue_id=0, queue_offset=2**40, transaction_id="7F0000010001"), None),
    (0, SendReply(msg_id=f"{ID},{ID}", queue_id=1, queue_offset=7), None),
    (10, SendReply(msg_id=ID, queue_id=1, queue_offset=7), "flush timeout"),
    (11, SendReply(msg_id=ID, queue_id=1, queue_offset=7), None),
    (12, SendReply(msg_id=ID, queue_id=1, queue_offset=7), None),
    (0, None, None),
    (2, None, "[TIMEOUT_CLEAN_QUEUE]broker busy"),
    (13, None, "the message is illegal"),
]


async def outcome(send: asyncio.Future[SendResult]) -> tuple[object, ...]:
    try:
        result = await asyncio.wait_for(send, 10)
    except ClientError as error:
        return type(error), str(error)
    named = result.queue, result.offset, result.offset_message_id, result.transaction_id
    return result.status, *named, len(result.message_id)


@pytest.mark.parametrize("number", range(len(ANSWERS) + 1))
@pytest.mark.parametrize("broken", [False, True], ids=["whole", "in two reads"])
async def test_both_ways_end_alike_by_the_same_answer(both: TwoWays, number: int, broken: bool) -> None:
    await both.sends_to_nobody()
    connection = both.connection
    if number < len(ANSWERS):
        code, reply, remark = ANSWERS[number]
        answer = frame.encode(connection.serialization, code, 1001, frame.RESPONSE_FLAG, reply, 0, remark)
    else:
        answer = (len(APACHE) + 4).to_bytes(4, "big") + len(APACHE).to_bytes(4, "big") + APACHE
    ended = []
    for way in ("short", "ordinary"):
        both.choose(way)
        send = both.producer.start_send(Message("T", b"hello"))
        await asyncio.sleep(0)  # it leaves at the end of this turn
        at = len(answer) // 2 if broken else 0
        for part in (answer[:at], answer[at:]):
            if part:
                connection.data_received(part)
        ended.append(await outcome(send))
        assert len(connection.calls) == 0 and both.producer.window.take(1)
        both.producer.window.leave(1)
    assert ended[0] == ended[1]
    assert both.short == 1


async def test_answers_of_one_read_go_to_their_sends_in_any_order(both: TwoWays) -> None:
    await both.sends_to_nobody()
    both.choose("short")
    sends = [both.producer.start_send(Message("T", b"%d" % number)) for number in range(5)]
    await asyncio.sleep(0)
    answers = {
        number: frame.encode(
            *(both.connection.serialization, 2 if number == 3 else 0, 1001 + number, 1),
            None if number == 3 else SendReply(msg_id=ID, queue_id=1, queue_offset=number),
        )
        for number in (4, 0, 3, 1)
    }
    both.connection.data_received(b"".join(answers.values()))
    assert [(await sends[number]).offset for number in (0, 1, 4)] == [0, 1, 4]
    with pytest.raises(BrokerRefused):
        await sends[3]
    assert not sends[2].done() and len(both.connection.calls) == 1
    sends[2].cancel()


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
async def test_what_is_not_ordinary_takes_the_ordinary_way(both: TwoWays, message: Message) -> None:
    both.names.knows("T2", both.broker)
    assert (await both.producer.send(copy(message))).status is SendStatus.SEND_OK
    assert both.short == 0
    await both.producer.send(Message(message.topic, b"plain"))
    assert both.short == 1


async def test_what_is_wrong_is_told_and_not_sent(both: TwoWays) -> None:
    for wrong in (Message("T", b""), Message("T", b"x", tags="a\x01"), Message("T", b"x", delay_level=99)):
        with pytest.raises(BadMessage):
            await both.producer.send(wrong)
        with pytest.raises(BadMessage):
            await both.producer.send_batch([Message("T", b"good"), wrong])
    with pytest.raises(BadMessage, match="size over max value"):
        await both.producer.send_batch([Message("T", b"x" * 3_000_000)] * 2)
    with pytest.raises(BadMessage, match="should be the same"):
        await both.producer.send_batch([Message("T", b"1"), Message("T2", b"2")])
    assert both.short == 0 and len(both.broker.sends) == 1
    await both.producer.send(Message("T", b"x"))
    await both.producer.stop()
    with pytest.raises(StateError):
        both.producer.start_send(Message("T", b"x"))


async def test_after_a_refusal_another_broker_is_asked(both: TwoWays) -> None:
    async with Scripted("broker-b") as other:
        both.names.knows("T", both.broker, other, queues=1)
        await both.producer.session.directory.refresh("T")
        for _ in range(2):
            await both.producer.send(Message("T", b"x"))
        before = both.short
        both.broker.answers.extend([1] * 10)
        results = await asyncio.gather(*(both.producer.send(Message("T", b"%d" % number)) for number in range(4)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        assert both.short - before == 4 and sorted(other.bodies[-4:]) == [b"0", b"1", b"2", b"3"]
        await both.broker.stop()
        results = await asyncio.gather(*(both.producer.send(Message("T", b"x")) for number in range(4)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_silence_ends_in_time_and_a_cancelled_send_frees_its_place(both: TwoWays) -> None:
    both.broker.answers.extend([SILENT] * 2)
    given_up, silent = (both.producer.start_send(Message("T", b"x"), timeout=0.2) for _ in range(2))
    given_up.cancel()
    with pytest.raises(CallTimeout, match="sendDefaultImpl call timeout"):
        await silent
    assert both.short == 2 and both.producer.window._count == 0


async def test_a_send_that_is_cancelled_in_its_turn_is_not_sent(both: TwoWays) -> None:
    sends = [both.producer.start_send(Message("T", b"%d" % number)) for number in range(4)]
    sends[1].cancel()
    sends[3].cancel()
    await asyncio.gather(sends[0], sends[2])
    assert both.broker.bodies[1:] == [b"0", b"2"] and both.producer.window._count == 0


async def test_a_broker_that_goes_in_the_turn_of_a_send(both: TwoWays) -> None:
    async with Scripted("broker-b") as other:
        sends = [both.producer.start_send(Message("T", b"%d" % number)) for number in range(4)]
        both.names.knows("T", other)
        both.connection.connection_lost(None)
        await both.broker.stop()
        results = await asyncio.gather(*sends)
    assert {result.queue.broker_name for result in results} == {"broker-b"} and both.short == 0
    assert sorted(other.bodies) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("where", ["tags", "keys"])
async def test_what_utf_8_cannot_write_is_told_at_the_call(both: TwoWays, where: str) -> None:
    with pytest.raises(BadMessage, match="half of a surrogate pair"):
        both.producer.start_send(Message("T", b"x", **{where: "\ud83d"}))  # type: ignore[arg-type]
    with pytest.raises(BadConfig, match=r"timeout=\[1\] is not allowed"):
        both.producer.start_send(Message("T", b"x"), timeout=[1])  # type: ignore[arg-type]
    assert both.producer.window._count == 0


async def test_no_more_than_the_bound_go_the_short_way(both: TwoWays) -> None:
    async with Producer("g2", nameserver=both.names.address, max_in_flight=2) as producer:
        await producer.send(Message("T", b"first"))
        counted = TwoWays(both.names, both.broker, producer)
        sends = [producer.start_send(Message("T", b"%02d" % number)) for number in range(20)]
        assert counted.short == 2
        await asyncio.gather(*sends)
    assert both.broker.bodies[-20:] == [b"%02d" % number for number in range(20)]


async def test_a_hook_sees_sends_from_when_it_is_added(both: TwoWays) -> None:
    class Seeing(Hook):
        def __init__(self) -> None:
            self.results: list[SendResult | None] = []

        def after_send(self, context: Any) -> None:
            self.results.append(context.result)

    await both.producer.send(Message("T", b"x"))
    hook = Seeing()
    both.producer.add_hook(hook)
    result = await both.producer.send(Message("T", b"x"))
    assert hook.results == [result] and both.short == 1


async def test_a_route_that_changes_counts_at_once(both: TwoWays) -> None:
    async with Scripted("broker-b") as other:
        both.names.knows("T", other)
        await both.producer.session.directory.refresh("T")
        results = [await both.producer.send(Message("T", b"x")) for _ in range(3)]
        assert {result.queue for result in results} == {MessageQueue("T", "broker-b", 0)}
        assert both.short == 2  # the first one connects


@pytest.mark.parametrize(
    "settings", [{"namespace": "ns"}, {"header": "MSGPACK"}], ids=lambda settings: next(iter(settings))
)
async def test_connections_that_change_each_header_have_no_short_way(settings: dict[str, Any]) -> None:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("ns%T" if "namespace" in settings else "T", broker)
        async with Producer("g", settings=ClientSettings(nameserver=names.address, **settings)) as producer:
            await producer.send(Message("T", b"first"))
            counted = TwoWays(names, broker, producer)
            await producer.send(Message("T", b"second"))
            assert counted.short == 0 and broker.bodies == [b"first", b"second"]
