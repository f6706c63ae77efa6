"""The short way of sends differs from the ordinary one in time only: same bytes, same results, same errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from copy import copy
from typing import Any

import pytest

from eruca.client import ClientSettings, Hook, Message, MessageQueue, Producer, SendResult, SendStatus
from eruca.client.errors import BadMessage, BrokerRefused, CallTimeout, ClientError, StateError
from eruca.client.network import identity
from eruca.client.network.identity import UniqueKeys
from eruca.client.producing import quick
from eruca.client.producing.batch import encode_messages, encode_ordinary
from eruca.client.producing.quick import QuickSend
from eruca.protocol import frame
from eruca.protocol.headers.send import SendReply
from eruca.remoting import Connection
from tests.support.scripted import SILENT, Scripted

ID = "7F00000100002A9F000000000001E240"
NOW = 1_763_767_000.123


class Lab:
    """A producer whose ways are counted, its broker, and the connection between them."""

    def __init__(self, names: Scripted, broker: Scripted, producer: Producer) -> None:
        self.names, self.broker, self.producer = names, broker, producer
        self.short = 0
        self.real: asyncio.Transport | None = None
        self._quick = producer._quick
        assert self._quick is not None
        self._quick.start = self._counted(self._quick.start)  # type: ignore[method-assign]
        self._quick.start_batch = self._counted(self._quick.start_batch)  # type: ignore[method-assign]
        self._quick.ordinary = self._discounted(self._quick.ordinary)  # type: ignore[method-assign]

    def _counted(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: object) -> Any:
            future = start(*args)
            self.short += future is not None
            return future

        return counted

    def _discounted(self, ordinary: Callable[..., Any]) -> Callable[..., Any]:
        def discounted(send: QuickSend) -> Any:
            self.short -= send.queue is None
            return ordinary(send)

        return discounted

    def choose(self, way: str) -> None:
        """Let the sends that follow take this way; both begin alike."""
        self.producer._quick = self._quick if way == "short" else None
        self.producer._turns["T"].last = 0
        self.connection._opaque = 1000
        identity.unique_keys()._counter = 0

    @property
    def connection(self) -> Connection:
        connection = self.producer.session.ready(self.broker.address)
        assert connection is not None
        return connection

    async def sends_to_nobody(self) -> list[bytes]:
        """From now on what is sent comes to this list in place of the broker."""
        sent: list[bytes] = []
        self.real = self.connection._transport
        self.connection._transport = Nobody(sent)  # type: ignore[assignment]
        return sent


class Nobody:
    """A transport that only notes what it is given."""

    def __init__(self, sent: list[bytes]) -> None:
        self.write = sent.append

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        return None


@pytest.fixture(params=["JSON", "ROCKETMQ"])
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("T", broker, queues=4)
        settings = ClientSettings(nameserver=names.address, header=request.param)
        async with Producer("g", settings=settings, send_timeout=30) as producer:
            await producer.send(Message("T", b"first"))
            lab = Lab(names, broker, producer)
            yield lab
            if lab.real is not None:
                lab.real.abort()


MESSAGES = [
    Message("T", b"hello"),
    Message("T", b"x" * 4095),
    Message("T", b"hello", tags="A", keys=["k1", "k2"]),
    Message("T", b"hello", properties={"city": 'Zürich "😀"', "n": "1"}, wait_store=False),
]


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still."""
    monkeypatch.setattr(quick, "time", lambda: NOW)
    monkeypatch.setattr(time, "time", lambda: NOW)


@pytest.mark.usefixtures("still")
async def test_both_ways_send_the_same_bytes(lab: Lab) -> None:
    sent = await lab.sends_to_nobody()
    wrote = {}
    for way in ("short", "ordinary"):
        sent.clear()
        lab.choose(way)
        under_way = [lab.producer.start_send(message) for message in MESSAGES * 2]
        under_way += [asyncio.ensure_future(lab.producer.send_batch(batch)) for batch in (MESSAGES[:3], MESSAGES[3:])]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        wrote[way] = b"".join(sent)
        for each in under_way:
            each.cancel()
        lab.connection.calls.end()
    assert wrote["short"] == wrote["ordinary"] and wrote["short"].count(b"hello") == 6 + 3
    assert lab.short == len(MESSAGES) * 2 + 2


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
async def test_both_ways_end_alike_by_the_same_answer(lab: Lab, number: int, broken: bool) -> None:
    await lab.sends_to_nobody()
    connection = lab.connection
    if number < len(ANSWERS):
        code, reply, remark = ANSWERS[number]
        answer = frame.encode(connection.serialization, code, 1001, frame.RESPONSE_FLAG, reply, 0, remark)
    else:
        answer = (len(APACHE) + 4).to_bytes(4, "big") + len(APACHE).to_bytes(4, "big") + APACHE
    ended = []
    for way in ("short", "ordinary"):
        lab.choose(way)
        send = lab.producer.start_send(Message("T", b"hello"))
        await asyncio.sleep(0)  # it leaves at the end of this turn
        at = len(answer) // 2 if broken else 0
        for part in (answer[:at], answer[at:]):
            if part:
                connection.data_received(part)
        ended.append(await outcome(send))
        assert len(connection.calls) == 0 and lab.producer.window.take(1)
        lab.producer.window.leave(1)
    assert ended[0] == ended[1]
    assert lab.short == 1


async def test_answers_of_one_read_go_to_their_sends_in_any_order(lab: Lab) -> None:
    await lab.sends_to_nobody()
    lab.choose("short")
    sends = [lab.producer.start_send(Message("T", b"%d" % number)) for number in range(5)]
    await asyncio.sleep(0)
    answers = {
        number: frame.encode(
            *(lab.connection.serialization, 2 if number == 3 else 0, 1001 + number, 1),
            None if number == 3 else SendReply(msg_id=ID, queue_id=1, queue_offset=number),
        )
        for number in (4, 0, 3, 1)
    }
    lab.connection.data_received(b"".join(answers.values()))
    assert [(await sends[number]).offset for number in (0, 1, 4)] == [0, 1, 4]
    with pytest.raises(BrokerRefused):
        await sends[3]
    assert not sends[2].done() and len(lab.connection.calls) == 1
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
async def test_what_is_not_ordinary_takes_the_ordinary_way(lab: Lab, message: Message) -> None:
    lab.names.knows("T2", lab.broker)
    assert (await lab.producer.send(copy(message))).status is SendStatus.SEND_OK
    assert lab.short == 0
    await lab.producer.send(Message(message.topic, b"plain"))
    assert lab.short == 1


async def test_what_is_wrong_is_told_and_not_sent(lab: Lab) -> None:
    for wrong in (Message("T", b""), Message("T", b"x", tags="a\x01"), Message("T", b"x", delay_level=99)):
        with pytest.raises(BadMessage):
            await lab.producer.send(wrong)
        with pytest.raises(BadMessage):
            await lab.producer.send_batch([Message("T", b"good"), wrong])
    with pytest.raises(BadMessage, match="size over max value"):
        await lab.producer.send_batch([Message("T", b"x" * 3_000_000)] * 2)
    with pytest.raises(BadMessage, match="should be the same"):
        await lab.producer.send_batch([Message("T", b"1"), Message("T2", b"2")])
    assert lab.short == 0 and len(lab.broker.sends) == 1
    await lab.producer.send(Message("T", b"x"))
    await lab.producer.stop()
    with pytest.raises(StateError):
        lab.producer.start_send(Message("T", b"x"))


async def test_after_a_refusal_another_broker_is_asked(lab: Lab) -> None:
    async with Scripted("broker-b") as other:
        lab.names.knows("T", lab.broker, other, queues=1)
        await lab.producer.session.directory.refresh("T")
        for _ in range(2):
            await lab.producer.send(Message("T", b"x"))
        before = lab.short
        lab.broker.answers.extend([1] * 10)
        results = await asyncio.gather(*(lab.producer.send(Message("T", b"%d" % number)) for number in range(4)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        assert lab.short - before == 4 and sorted(other.bodies[-4:]) == [b"0", b"1", b"2", b"3"]
        await lab.broker.stop()
        results = await asyncio.gather(*(lab.producer.send(Message("T", b"x")) for number in range(4)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_silence_ends_in_time_and_a_cancelled_send_frees_its_place(lab: Lab) -> None:
    lab.broker.answers.extend([SILENT] * 2)
    given_up, silent = (lab.producer.start_send(Message("T", b"x"), timeout=0.2) for _ in range(2))
    given_up.cancel()
    with pytest.raises(CallTimeout, match="sendDefaultImpl call timeout"):
        await silent
    assert lab.short == 2 and lab.producer.window._count == 0


async def test_a_send_that_is_cancelled_in_its_turn_is_not_sent(lab: Lab) -> None:
    sends = [lab.producer.start_send(Message("T", b"%d" % number)) for number in range(4)]
    sends[1].cancel()
    sends[3].cancel()
    await asyncio.gather(sends[0], sends[2])
    assert lab.broker.bodies[1:] == [b"0", b"2"] and lab.producer.window._count == 0


async def test_a_broker_that_goes_in_the_turn_of_a_send(lab: Lab) -> None:
    async with Scripted("broker-b") as other:
        sends = [lab.producer.start_send(Message("T", b"%d" % number)) for number in range(4)]
        lab.names.knows("T", other)
        lab.connection.connection_lost(None)
        await lab.broker.stop()
        results = await asyncio.gather(*sends)
    assert {result.queue.broker_name for result in results} == {"broker-b"} and lab.short == 0
    assert sorted(other.bodies) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("where", ["tags", "keys"])
async def test_what_utf_8_cannot_write_is_told_at_the_call(lab: Lab, where: str) -> None:
    with pytest.raises(BadMessage, match="half of a surrogate pair"):
        lab.producer.start_send(Message("T", b"x", **{where: "\ud83d"}))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lab.producer.start_send(Message("T", b"x"), timeout=[1])  # type: ignore[arg-type]
    assert lab.producer.window._count == 0


async def test_no_more_than_the_bound_go_the_short_way(lab: Lab) -> None:
    async with Producer("g2", nameserver=lab.names.address, max_in_flight=2) as producer:
        await producer.send(Message("T", b"first"))
        counted = Lab(lab.names, lab.broker, producer)
        sends = [producer.start_send(Message("T", b"%02d" % number)) for number in range(20)]
        assert counted.short == 2
        await asyncio.gather(*sends)
    assert lab.broker.bodies[-20:] == [b"%02d" % number for number in range(20)]


async def test_a_hook_sees_sends_from_when_it_is_added(lab: Lab) -> None:
    class Seeing(Hook):
        def __init__(self) -> None:
            self.results: list[SendResult | None] = []

        def after_send(self, context: Any) -> None:
            self.results.append(context.result)

    await lab.producer.send(Message("T", b"x"))
    hook = Seeing()
    lab.producer.add_hook(hook)
    result = await lab.producer.send(Message("T", b"x"))
    assert hook.results == [result] and lab.short == 1


async def test_a_route_that_changes_counts_at_once(lab: Lab) -> None:
    async with Scripted("broker-b") as other:
        lab.names.knows("T", other)
        await lab.producer.session.directory.refresh("T")
        results = [await lab.producer.send(Message("T", b"x")) for _ in range(3)]
        assert {result.queue for result in results} == {MessageQueue("T", "broker-b", 0)}
        assert lab.short == 2  # the first one connects


@pytest.mark.parametrize(
    "settings", [{"namespace": "ns"}, {"header": "MSGPACK"}], ids=lambda settings: next(iter(settings))
)
async def test_connections_that_change_each_header_have_no_short_way(settings: dict[str, Any]) -> None:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("ns%T" if "namespace" in settings else "T", broker)
        async with Producer("g", settings=ClientSettings(nameserver=names.address, **settings)) as producer:
            await producer.send(Message("T", b"first"))
            counted = Lab(names, broker, producer)
            await producer.send(Message("T", b"second"))
            assert counted.short == 0 and broker.bodies == [b"first", b"second"]
