"""The native step and the Python that it stands for: the same bytes on disk and on the wire, whatever comes.

Each test gives the same to two stores or brokers, of which only one uses the native step.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.broker.services.halves import HALF
from eruca.broker.store import native
from eruca.broker.store.results import PutBatch
from eruca.protocol import frame
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.offsets import QueueOf
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.record import BatchEntry, encode_batch, host_bytes
from eruca.remoting import Connection, Router
from tests.support.desk import START, Desk
from tests.support.native import using
from tests.support.stores import HOST, Clock, bodies, index_contents, open_store, queue_units

pytestmark = pytest.mark.skipif(not native.on, reason="the native step is not compiled here, or ERUCA_PURE is set")

V6 = host_bytes("::1", 10911)
WORDS = [
    *(b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"WAIT\x01", b"CLUSTER\x01", b"\x02", b"\x01", b" ", b"k", b"TagA"),
    *(b"7F0000010A2B18B4AAC2123456780001", b"7f0000010a2b18b4aac2123456780001", "Grüße".encode(), b"\xff", b"X" * 40),
    b"polygenelubricants",  # whose hash is the one number without an absolute value
]
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(b"".join)
entries = st.lists(st.builds(BatchEntry, st.integers(-9, 9), st.binary(max_size=60), texts), max_size=9).map(
    encode_batch
)
"""Batch bodies as a client makes them."""


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """Batch bodies with some of their bytes changed, added or missing."""
    data = bytearray(draw(entries))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(data)


puts = st.tuples(
    st.sampled_from(["T", "SCHEDULE_TOPIC_XXXX", "A-topic-with-a-long-name"]),
    st.integers(0, 1),
    st.one_of(entries, torn()),
    texts,
    st.sampled_from([0, 1, 4, 8, 12, 16, 32, 48]),
    st.booleans(),
)


def stored(root: Path, work: list[tuple[str, int, bytes, bytes, int, bool]]) -> tuple[object, ...]:
    """What batches, and each of their bodies as a single message, are answered, and what lies on disk then."""
    clock = Clock()
    store = open_store(root, clock)
    answers: list[object] = []
    for topic, queue_id, data, text, sys_flag, drained in work:
        born = V6 if sys_flag & 16 else HOST
        host = V6 if sys_flag & 32 else HOST
        common: dict[str, Any] = {"sys_flag": sys_flag, "born_timestamp": 9, "born_host": born, "store_host": host}
        answers.append(
            store.appender.put_batch(topic, queue_id, data, extra_properties=text, reconsume_times=3, **common)
        )
        answers.append(store.appender.put(topic, queue_id, data, text, **common))
        clock.now += 700
        if drained:
            answers.append(store.drain())
    store.drain()
    figures = store.figures()
    store.close()
    logs = [path.read_bytes() for path in sorted((root / "commitlog").iterdir())]
    return answers, figures.puts, figures.put_bytes, logs, queue_units(root), index_contents(root)


@pytest.mark.slow
@given(st.lists(puts, max_size=12))
@settings(deadline=None, max_examples=60)
def test_a_store_holds_the_same(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, int, bytes, bytes, int, bool]]
) -> None:
    quick = stored(tmp_path_factory.mktemp("quick"), work)
    with using(c=False):
        assert stored(tmp_path_factory.mktemp("plain"), work) == quick


def test_a_batch_really_goes_the_native_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path, Clock())
    body = encode_batch([BatchEntry(1, b"a", b"KEYS\x01k"), BatchEntry(2, b"b", b"")])

    def put() -> PutBatch:
        return store.appender.put_batch("T", 0, body, born_timestamp=1, born_host=HOST, store_host=HOST)

    put()  # which made the file
    monkeypatch.setattr("eruca.broker.store.appender.Appender._batch_fault", None)
    assert put().queue_offset == 2
    store.close()


def test_a_batch_for_which_there_is_no_room_yet_goes_the_native_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is made 1 MiB at a time."""
    store = open_store(tmp_path, Clock(), mapped_file_size_commit_log=8 << 20)
    body = encode_batch([BatchEntry(0, bytes(1000), b"KEYS\x01k")] * 300)

    def put() -> PutBatch:
        return store.appender.put_batch(
            "T", 0, body, extra_properties=b"WAIT\x01true", born_timestamp=1, born_host=HOST, store_host=HOST
        )

    put()  # which made the file
    with monkeypatch.context() as patch:
        patch.setattr("eruca.broker.store.appender.Appender._batch_fault", None)
        assert [put().queue_offset for _ in range(24)] == [300 * number for number in range(1, 25)]
    put()  # which is too much for the file
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir()) == [f"{0:020d}", f"{8 << 20:020d}"]
    store.drain()
    assert len(bodies(store, "T", 0)) == 26 * 300
    store.close()


HALF_WORDS = [
    *("TRAN_MSG\x01true", "TRAN_MSG\x01true", "TRAN_MSG\x01TRUE", "PGROUP\x01pg", "UNIQ_KEY\x01k", "WAIT\x01true"),
    *("KEYS\x01订单", "TAGS\x01标签", "CHECK_IMMUNITY_TIME_IN_SECONDS\x0130", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01٣"),
    *("x\x01y", "x\x01y", "😀\x01é", "", "x", "x\x01", "CLUSTER\x01c", "DELAY\x011", "WAIT\x01false", "a\x01b\x01c"),
]


def half_text(chance: random.Random) -> str:
    """Properties of half messages, most of them plain."""
    words = ["TRAN_MSG\x01true", "PGROUP\x01pg", "KEYS\x01订单", "UNIQ_KEY\x017F00"]
    if chance.random() < 0.5:
        words = chance.choices(HALF_WORDS, k=chance.randrange(1, 7))
    return "\x02".join(words) + chance.choice(["", "\x02", "\x02\x02"])


def escaped(chance: random.Random, whole: bytes) -> bytes:
    """The frame with some characters of its JSON header written as escapes, some of those wrong."""
    header_size = int.from_bytes(whole[5:8], "big")
    header, body = whole[8 : 8 + header_size].decode(), whole[8 + header_size :]
    written = []
    for character in header:
        units = character.encode("utf-16-be")
        if character == "/" and chance.random() < 0.5:
            written.append("\\/")
        elif ord(character) > 126 and chance.random() < 0.8:
            digits = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
            if chance.random() < 0.02:
                chance.shuffle(digits)
            written += [f"\\u{each.upper() if chance.random() < 0.5 else each}" for each in digits]
        else:
            written.append(character)
    if chance.random() < 0.05:
        at = next((n for n, each in enumerate(written) if each == "\x02" or len(each) > 1), 0)
        written[at] = chance.choice(
            ["\\ud83d", "\\udc00", "\\u12", "\\x", "\\", "\\ud83d\\u0041", "\\u0000", "\x7f", "\t"]
        )
    head = "".join(written).encode()
    return (4 + len(head) + len(body)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + body


def frames(seed: int) -> list[bytes]:
    """Sends of a few forms, some of them odd, some with bytes that are wrong."""
    chance = random.Random(seed)
    made = []
    for opaque in range(chance.randrange(1, 60)):
        text = b"".join(chance.choices([*WORDS, b"WAIT\x01true", b"WAIT\x01true\x02", b"DELAY\x011", b'"', b"\\"], k=4))
        ask = SendMessageV2(
            producer_group="pg",
            topic=chance.choice(["T", "U"]),
            queue_id=chance.randrange(2),
            sys_flag=chance.choice([0, 0, 0, 1, 0x700, 4]),
            born_timestamp=START + chance.randrange(10**6),
            flag=chance.choice([0, 0, -7]),
            properties=chance.choice(
                [
                    "UNIQ_KEY\x017F0000010A2B18B4AAC2123456780001\x02WAIT\x01true",
                    'KEYS\x01订单 "1/2"\\\n\x02TAGS\x01标签\x02name\x01😀\x00\x7f',
                    text.decode("utf-8", "ignore"),
                    half_text(chance),
                ]
            ),
            reconsume_times=0,
        )
        kind = chance.choice([frame.JSON, frame.ROCKETMQ])
        body = chance.randbytes(chance.choice([0, 9, 300]))
        flag = frame.ONEWAY_FLAG if chance.random() < 0.1 else 0
        encoded = frame.encode(kind, 310, opaque * 99, flag, ask, len(body), language="JAVA") + body
        if kind == frame.JSON and chance.random() < 0.5:
            encoded = escaped(chance, encoded)
        whole = bytearray(encoded)
        if chance.random() < 0.1:
            at = chance.randrange(8, len(whole) - len(body))
            whole[at] = chance.choice([0, 1, 2, 34, 48, 92, 128, 255])
        made.append(bytes(whole))
    return made


def batches(seed: int) -> list[bytes]:
    """The same with batches among them."""
    chance = random.Random(seed)
    made = frames(seed)
    for opaque in range(chance.randrange(1, 20)):
        ask = SendMessageV2(
            producer_group="pg",
            topic=chance.choice(["T", "U"]),
            queue_id=chance.randrange(2),
            sys_flag=0,
            born_timestamp=START + chance.randrange(10**6),
            flag=0,
            properties=chance.choice(["WAIT\x01true\x02"] * 9 + ["", "DELAY\x011", "KEYS\x01é"]),
            reconsume_times=0,
            batch=True,
        )
        one = BatchEntry(chance.randrange(9), chance.randbytes(chance.randrange(90)), b"TAGS\x01TagA")
        body = bytearray(encode_batch([one] * chance.choice([1, 2, 32, 300])))
        if chance.random() < 0.1:
            body[chance.randrange(20)] ^= chance.choice([1, 128])
        kind = chance.choice([frame.JSON, frame.ROCKETMQ])
        flag = frame.ONEWAY_FLAG if chance.random() < 0.1 else 0
        whole = frame.encode(kind, 320, opaque * 99, flag, ask, len(body), language="JAVA") + body
        made.insert(chance.randrange(len(made)), whole)
    return made


One = TypeVar("One")


class Two:
    """Two brokers with the same address and clock, and a producer's connection to each, byte by byte."""

    def __init__(self, desks: list[Desk], patch: pytest.MonkeyPatch) -> None:
        self.desks = desks
        self.lines = [self._line(desk) for desk in self.desks]
        self._patch = patch

    def _in_turn(self, both: list[One]) -> Iterator[One]:
        """The one that uses the native step, then the other."""
        for one, on in zip(both, (True, False), strict=True):
            with using(c=on):
                yield one

    def _line(self, desk: Desk) -> Connection:
        broker = desk.broker
        broker.listen_on(10911)
        broker.admission.forget()
        line = Connection(desk.app._main._router)
        broker.hosts[line] = (host_bytes("10.1.2.3", 4567), 0)
        return line

    def heard(self, data: bytes) -> list[tuple[int, bytes] | str]:
        """How far each of them read, or why it did not, and what it answered."""
        heard: list[tuple[int, bytes] | str] = []
        for line in self._in_turn(self.lines):
            try:
                line._flushing = True
                used = line.process(data)
                heard.append((used, b"".join(line._out)))
            except ProtocolError as error:
                heard.append(str(error))
            line._out.clear()
        return heard

    def held(self) -> list[tuple[object, ...]]:
        """What is in the log, the queues, the index and the counters of each."""
        found: list[tuple[object, ...]] = []
        for desk in self._in_turn(self.desks):
            store = desk.broker.store
            store.drain()
            store.persist(sync=False)
            figures = store.figures()
            memory = bytes(store.commit_log.view(0, figures.max_offset) or b"")
            units = queue_units(desk.folder / "store")
            counted = [desk.broker.statistics.puts(topic, n).tally for topic in ("T", "U", HALF) for n in range(2)]
            index, halves = index_contents(desk.folder / "store"), desk.broker.halves.undecided.items()
            found.append((memory, units, index, counted, halves, figures.puts, figures.put_bytes))
        return found


@pytest.fixture
async def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    desks = []
    for name, on in (("quick", True), ("plain", False)):
        desk = Desk(tmp_path / name)
        desk.config.store.mapped_file_size_commit_log = 8 << 20
        desk.config.store.max_hash_slot_num = 5000
        desk.config.store.max_index_num = 20000
        desk.config.store.mapped_file_size_consume_queue = 20 * 500
        with using(c=on):
            await desk.start()
        desk.topic("T", queues=2)
        desk.topic("U", queues=2)
        desk.topic(HALF)
        await desk.broker.topics.saved()
        desks.append(desk)
    yield Two(desks, monkeypatch)
    for desk in desks:
        await desk.stop()


def count_ordinary(two: Two, patch: pytest.MonkeyPatch) -> list[int]:
    """How many requests take the ordinary way at each of them."""
    ordinary = [0, 0]

    def count(number: int) -> None:
        router = two.desks[number].app._main._router
        dispatch = router.dispatch

        def counted(*request: Any) -> None:
            ordinary[number] += 1
            dispatch(*request)

        patch.setattr(router, "dispatch", counted)

    count(0)
    count(1)
    return ordinary


async def test_a_broker_answers_and_stores_the_same(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = count_ordinary(two, monkeypatch)
    sent = 0
    for seed in range(300):
        stream = frames(seed)
        sent += len(stream)
        quick, plain = two.heard(b"".join(stream))
        assert quick == plain, seed
        if seed % 50 == 0:
            quick_store, plain_store = two.held()
            assert quick_store == plain_store, seed
    assert ordinary[0] < ordinary[1] * 0.8 < sent * 0.8  # else this compares little
    quick_store, plain_store = two.held()
    assert quick_store == plain_store
    assert len(two.desks[0].broker.halves.undecided) > 100


@pytest.mark.slow
async def test_batches_are_answered_and_stored_the_same(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = count_ordinary(two, monkeypatch)
    sent = 0
    for seed in range(60):
        stream = batches(seed)
        sent += len(stream)
        for at in range(0, len(stream), 4):
            quick, plain = two.heard(b"".join(stream[at : at + 4]))
            assert quick == plain, (seed, at)
        if seed % 20 == 0:
            quick_store, plain_store = two.held()
            assert quick_store == plain_store, seed
    assert ordinary[0] < ordinary[1] - sent / 20  # these batches took the native way
    quick_store, plain_store = two.held()
    assert quick_store == plain_store


async def test_frames_that_come_in_pieces(two: Two) -> None:
    for seed in range(20):
        data = b"".join(frames(seed))
        for end in range(0, len(data), 97):
            quick, plain = two.heard(data[:end])
            assert quick == plain, (seed, end)


async def test_the_native_way_is_taken(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = SendMessageV2(
        producer_group="pg", topic="T", queue_id=1, sys_flag=0, born_timestamp=START, flag=0, properties="KEYS\x01k"
    )
    for kind in (frame.JSON, frame.ROCKETMQ):
        one = frame.encode(kind, 310, 7, 0, ask, 2, language="JAVA") + b"hi"
        two.heard(one * 3)
        two.heard(one)  # dispatched, and room is there
        before = two.desks[0].broker.store.figures().puts
        with monkeypatch.context() as patch:
            patch.setattr(two.desks[0].broker.store.appender, "_clock", lambda: START + 5)
            patch.setattr(Router, "dispatch", None)
            two.lines[0]._flushing = True
            assert two.lines[0].process(one * 50) == 50 * len(one)
        assert two.desks[0].broker.store.figures().puts == before + 50


async def test_what_follows_an_ordinary_request_takes_the_native_way(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = SendMessageV2(
        producer_group="pg",
        topic="T",
        queue_id=1,
        sys_flag=0,
        born_timestamp=START,
        flag=0,
        properties="WAIT\x01true\x02",
        batch=True,
    )
    body = encode_batch([BatchEntry(0, b"a", b"")])
    batch = frame.encode(frame.JSON, 320, 7, 0, ask, len(body), language="JAVA") + body
    for _ in range(3):  # admitted, learned, and room is there
        two.heard(batch)
    ordinary = count_ordinary(two, monkeypatch)
    quick, plain = two.heard((frame.encode(frame.JSON, 30, 8, 0, QueueOf(topic="T", queue_id=1)) + batch * 5) * 2)
    assert quick == plain
    assert ordinary == [2, 12]
