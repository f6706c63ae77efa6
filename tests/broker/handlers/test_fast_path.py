"""The fast path of sends: its forms are learned from the plain handler, it gives the same results, and leaves whatever
needs a closer look to that handler. Without the native step all of this holds for the plain handler alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from eruca.broker.config import FlushDiskType
from eruca.broker.store import native
from eruca.protocol import frame
from eruca.protocol.headers.send import SendMessageV2
from eruca.remoting import Connection, Router
from tests.support.desk import START, Desk, hear

KINDS = [frame.JSON, frame.ROCKETMQ]
needs_native = pytest.mark.skipif(not native.on, reason="the native step is not compiled here, or ERUCA_PURE is set")
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


class Line:
    """A producer's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: int) -> None:
        self._reader, self._writer, self._kind = reader, writer, kind
        self.opaque = 99

    def tell(
        self,
        text: str,
        *,
        flag: int = 0,
        topic: str = "T",
        queue_id: int = 0,
        user_flag: int = 7,
        body: bytes = b"hello",
    ) -> None:
        self.opaque += 1
        ask = SendMessageV2(
            producer_group="pg",
            topic=topic,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=START + self.opaque,
            flag=user_flag,
            properties=text,
            reconsume_times=2,
        )
        head = frame.encode(self._kind, 310, self.opaque, flag, ask, len(body), language="JAVA")
        self._writer.write(head + body)

    async def hear(self) -> frame.Head[object]:
        """The next answer."""
        head, self.last = await hear(self._reader)
        return head

    async def send(self, text: str, **more: object) -> frame.Head[object]:
        self.tell(text, **more)  # type: ignore[arg-type]
        return await self.hear()


async def line(desk: Desk, kind: int, lines: list[asyncio.StreamWriter]) -> Line:
    host, _, port = desk.app.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines.append(writer)
    return Line(reader, writer, kind)


@pytest.fixture
async def lines() -> AsyncIterator[list[asyncio.StreamWriter]]:
    opened: list[asyncio.StreamWriter] = []
    yield opened
    for writer in opened:
        writer.close()
        await writer.wait_closed()


def router(desk: Desk) -> Router[object]:
    found: Router[object] = desk.app._main._router
    return found


TEXTS = [
    "UNIQ_KEY\x01AC11\x02WAIT\x01true\x02TAGS\x01TagA",
    "UNIQ_KEY\x01AC11\x02TAGS\x01TagA\x02WAIT\x01true",
    "UNIQ_KEY\x01AC12\x02WAIT\x01false",
    "WAIT\x01true\x02",
    "KEYS\x01a b c\x02",
    "KEYS\x01Grüße, 世界",
    'KEYS\x01quo"ted',
    "KEYS\x01back\\slash\n",
    "CLUSTER\x01mine\x02KEYS\x01k",
    "DELAY\x010",
    "NOWAIT\x01true",
    "KEYS\x01k\x02WAIT\x01true\x02WAIT\x01false",
]


@pytest.mark.parametrize("kind", KINDS)
async def test_it_stores_and_answers_what_the_plain_handler_does(
    tmp_path: Path, kind: int, lines: list[asyncio.StreamWriter], dispatched: list[int]
) -> None:
    outcomes, ways = [], []
    for short in (True, False):
        desk = Desk(tmp_path / str(short))
        await desk.start()
        if not short:
            router(desk).fast_path = None
        desk.topic("T")
        producer = await line(desk, kind, lines)
        port = b"%08X" % int(desk.app.address.rpartition(":")[2])
        dispatched.clear()
        answers = []
        for text in [TEXTS[0]] * 3 + TEXTS:
            head = await producer.send(text)
            assert head.code == 0
            answers.append(producer.last.replace(port, b"<port>"))
        records = [record._replace(born_host=b"", store_host=b"") for record in desk.records()]
        outcomes.append((answers, records))
        ways.append(len(dispatched))
        assert desk.broker.statistics.spans("TOPIC_PUT_NUMS", "T") is not None
        await desk.stop()
    assert outcomes[0] == outcomes[1]
    assert ways[1] == len(TEXTS) + 3
    assert ways[0] < ways[1] or not native.on  # else this compares nothing


@needs_native
@pytest.mark.parametrize("kind", KINDS)
async def test_a_third_message_of_a_form_takes_the_fast_path(
    desk: Desk, kind: int, lines: list[asyncio.StreamWriter], dispatched: list[int]
) -> None:
    desk.topic("T")
    await desk.broker.topics.saved()
    producer = await line(desk, kind, lines)
    for _ in range(20):
        assert (await producer.send("UNIQ_KEY\x01k\x02WAIT\x01true")).code == 0
    assert dispatched == [310, 310]  # admitted by the first, learned by the second
    assert [record.queue_offset for record in desk.records()[:20]] == list(range(20))
    await producer.send("UNIQ_KEY\x01k", user_flag=8)
    assert dispatched == [310] * 3 and desk.records()[20].flag == 8


@pytest.mark.parametrize("kind", KINDS)
async def test_many_frames_of_one_read_are_answered_in_order(
    desk: Desk, kind: int, lines: list[asyncio.StreamWriter]
) -> None:
    desk.topic("T", queues=4)
    await desk.broker.topics.saved()
    producer = await line(desk, kind, lines)
    for n in range(400):
        producer.tell(f"UNIQ_KEY\x01{n}", queue_id=n % 4, body=b"%d" % n)
    opaques = [(await producer.hear()).opaque for _ in range(400)]
    assert opaques == list(range(100, 500))
    for queue in range(4):
        assert [record.body for record in desk.records(queue_id=queue)] == [b"%d" % n for n in range(queue, 400, 4)]


@needs_native
@pytest.mark.parametrize("kind", KINDS)
async def test_a_one_way_form_is_stored_without_an_answer(
    desk: Desk, kind: int, lines: list[asyncio.StreamWriter], dispatched: list[int]
) -> None:
    desk.topic("T")
    await desk.broker.topics.saved()
    producer = await line(desk, kind, lines)
    for _ in range(5):
        producer.tell("KEYS\x01k", flag=frame.ONEWAY_FLAG)
    assert (await producer.send("KEYS\x01k")).opaque == 105
    assert desk.records()[5].queue_offset == 5
    assert dispatched == [310] * 3  # the last one is of another form


async def learned(desk: Desk, lines: list[asyncio.StreamWriter]) -> Line:
    desk.topic("T", queues=2)
    producer = await line(desk, frame.JSON, lines)
    await desk.broker.topics.saved()
    for _ in range(3):
        await producer.send("KEYS\x01k", queue_id=1)
    assert len(desk.broker.admission.forms) == int(native.on)
    return producer


async def test_what_was_learned_is_forgotten_when_a_topic_changes(
    desk: Desk, lines: list[asyncio.StreamWriter]
) -> None:
    producer = await learned(desk, lines)
    desk.topic("T", queues=1)
    assert (await producer.send("KEYS\x01k", queue_id=1)).code == 1
    desk.broker.topics.remove("T")
    assert (await producer.send("KEYS\x01k", queue_id=1)).code == 0  # made anew
    assert desk.broker.topics.table["T"].write_queue_nums == 4


async def test_the_plain_handler_checks_odd_messages_of_a_known_form(
    desk: Desk, lines: list[asyncio.StreamWriter]
) -> None:
    producer = await learned(desk, lines)
    for text in ("DELAY\x013", "TRAN_MSG\x01true\x02PGROUP\x01pg"):
        await producer.send(text, queue_id=1)
    desk.broker.store.drain()
    assert desk.broker.store.max_offset("T", 1) == 3  # neither was delivered at once
    assert (await producer.send("KEYS\x01" + "k" * 32767, queue_id=1)).code == 13
    assert (await producer.send("KEYS\x01k", queue_id=1)).code == 0


async def test_a_region_that_looks_like_a_template(prepared: Prepared, lines: list[asyncio.StreamWriter]) -> None:
    def odd(desk: Desk) -> None:
        desk.config.region_id = '100%d%%"MMMM'

    desk = await prepared(odd)
    producer = await learned(desk, lines)
    fields = frame.fields_of(await producer.send("KEYS\x01k", queue_id=1))
    assert fields["MSG_REGION"] == '100%d%%"MMMM' and fields["queueOffset"] == "3"


@pytest.mark.parametrize("kind", [*KINDS, frame.MSGPACK])
async def test_a_busy_broker_is_busy_on_the_fast_path_too(
    desk: Desk, kind: int, lines: list[asyncio.StreamWriter]
) -> None:
    desk.topic("T")
    producer = await line(desk, kind, lines)
    desk.lag(1)
    assert (await producer.send("KEYS\x01k")).code == 0  # one long round is a hiccup
    desk.lag(3)
    ways = []
    for _ in range(2):
        producer.opaque = 8
        producer.tell("KEYS\x01k", flag=frame.ONEWAY_FLAG)  # is not answered
        sends = [producer.send(text) for text in ("KEYS\x01k", 'KEYS\x01"flag":0,"language":"JAVA","opaque":5,')]
        heads = [await send for send in sends]
        producer.opaque = 2**31 - 2
        heads.append(await producer.send("KEYS\x01k"))
        assert [(head.code, head.flag, head.opaque) for head in heads] == [(2, 1, 10), (2, 1, 11), (2, 1, 2**31 - 1)]
        ways.append([(frame.fields_of(head), re.sub(r"\d+ms", "", head.remark or "")) for head in heads])
        router(desk).fast_path = None
    assert ways[0] == ways[1] and all(fields and remark for fields, remark in ways[0])


async def test_quotas_hold_for_sends_that_the_fast_path_would_take(
    prepared: Prepared, lines: list[asyncio.StreamWriter]
) -> None:
    def narrow(desk: Desk) -> None:
        desk.config.quotas.quota_requests_per_second = 30

    desk = await prepared(narrow)
    desk.app.quotas.requests.now = lambda: 100.0
    producer = await learned(desk, lines)
    codes = [(await producer.send("KEYS\x01k", queue_id=1)).code for _ in range(40)]
    assert codes == sorted(codes) and set(codes) == {0, 2}


async def test_a_broker_without_memory_refuses_on_the_fast_path_too(
    desk: Desk, lines: list[asyncio.StreamWriter], dispatched: list[int]
) -> None:
    producer = await learned(desk, lines)
    desk.broker.admission.suspend("no memory")
    assert {(await producer.send("KEYS\x01k", queue_id=1)).code for _ in range(3)} == {2}
    desk.broker.admission.resume()
    assert {(await producer.send("KEYS\x01k", queue_id=1)).code for _ in range(3)} == {0}


def sync(desk: Desk) -> None:
    desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
    desk.config.send_thread_pool_queue_capacity = 500


def impatient(desk: Desk) -> None:
    sync(desk)
    desk.config.store.sync_flush_timeout = 500


@needs_native
@pytest.mark.parametrize("kind", KINDS)
async def test_under_sync_flush_the_answers_come_after_the_disk(
    prepared: Prepared,
    kind: int,
    lines: list[asyncio.StreamWriter],
    dispatched: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = await prepared(sync)
    desk.topic("T")
    await desk.broker.topics.saved()
    producer = await line(desk, kind, lines)
    flushed: list[int] = []
    send = Connection.send

    def noted(self: Connection, whole: bytes) -> None:
        flushed.append(desk.broker.store.figures().flush_behind_bytes)
        send(self, whole)

    monkeypatch.setattr(Connection, "send", noted)
    assert {(await producer.send("KEYS\x01k")).code for _ in range(10)} == {0}
    assert dispatched == [310] * 2 and flushed == [0] * 8
    for _ in range(300):
        producer.tell("KEYS\x01k")
    answered = [(await producer.hear()).opaque for _ in range(300)]
    assert sorted(answered) == list(range(110, 410)), "each once; a flush may be over before those that wait hear of it"
    assert desk.broker.waiting_sends == 0 and desk.broker.store.figures().flushes < 200


async def waiting(
    prepared: Prepared, kind: int, lines: list[asyncio.StreamWriter], prepare: Callable[[Desk], None] = sync
) -> tuple[Desk, Line]:
    desk = await prepared(prepare)
    desk.topic("T")
    await desk.broker.topics.saved()
    producer = await line(desk, kind, lines)
    for _ in range(3):
        assert (await producer.send("KEYS\x01k")).code == 0
    return desk, producer


@pytest.mark.parametrize("kind", KINDS)
async def test_a_slow_disk_is_answered_as_by_the_plain_handler(
    prepared: Prepared, kind: int, lines: list[asyncio.StreamWriter]
) -> None:
    desk, producer = await waiting(prepared, kind, lines, impatient)
    desk.disk.hold()
    assert (await producer.send("WAIT\x01false")).code == 0
    late = await producer.send("KEYS\x01k")
    assert (late.code, frame.fields_of(late)["queueOffset"]) == (10, "4")
    assert desk.broker.waiting_sends == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failing_disk_is_answered_as_by_the_plain_handler(
    prepared: Prepared, kind: int, lines: list[asyncio.StreamWriter]
) -> None:
    desk, producer = await waiting(prepared, kind, lines)
    desk.disk.broken = True
    broken = await producer.send("KEYS\x01k")
    assert (broken.code, set(frame.fields_of(broken))) == (14, {"MSG_REGION", "TRACE_ON"})


async def test_too_many_waiting_sends_are_refused_on_the_fast_path_too(
    prepared: Prepared, lines: list[asyncio.StreamWriter]
) -> None:
    desk, producer = await waiting(prepared, frame.JSON, lines)
    desk.broker.waiting_sends += 500
    assert (await producer.send("KEYS\x01k")).code == 2
    desk.broker.waiting_sends -= 500
    assert (await producer.send("KEYS\x01k")).code == 0


async def test_a_slave_learns_nothing(prepared: Prepared, lines: list[asyncio.StreamWriter]) -> None:
    def slave(desk: Desk) -> None:
        desk.config.store.broker_role = type(desk.config.store.broker_role).SLAVE
        desk.config.broker_id = 1

    desk = await prepared(slave)
    desk.topic("T")
    producer = await line(desk, frame.JSON, lines)
    assert [(await producer.send("KEYS\x01k")).code for _ in range(4)] == [14] * 4
