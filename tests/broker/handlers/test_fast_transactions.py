"""The fast paths of half messages and commits store and answer what the plain handlers store and answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.broker.handlers import send
from eruca.broker.services import commits
from eruca.broker.services.half_records import HalfPlaces, prepared
from eruca.broker.store import native
from eruca.protocol import frame, names
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.send import EndTransaction, SendMessageV2, SendReply
from eruca.protocol.message import decode_properties, encode_properties, parse_offset_message_id
from tests.broker.handlers.test_fast_path import router
from tests.support.desk import START, Desk, hear
from tests.support.half_messages import COMMIT, HALF, OP, ROLLBACK

KINDS = pytest.mark.parametrize("kind", [frame.JSON, frame.ROCKETMQ, frame.MSGPACK], ids=["json", "binary", "msgpack"])
Place = tuple[int, int]
"""Offset in the half queue and in the commit log."""


class Line:
    """A producer that writes its frames itself, many in one go."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.kind = frame.JSON
        self._opaque = 100

    def half(self, key: str, *more: str, topic: str = "T", queue_id: int = 0) -> bytes:
        self._opaque += 1
        pairs = ["TRAN_MSG\x01true", f"UNIQ_KEY\x01{key}", "PGROUP\x01PG", "WAIT\x01true", *more]
        ask = SendMessageV2(
            producer_group="pg",
            topic=topic,
            queue_id=queue_id,
            sys_flag=4,
            born_timestamp=START + self._opaque,
            flag=3,
            properties="\x02".join(pairs),
            reconsume_times=0,
        )
        return frame.encode(self.kind, 310, self._opaque, 0, ask, len(key), language="JAVA") + key.encode()

    def end(self, place: Place, decision: int = COMMIT, flag: int = 0, group: str = "PG") -> bytes:
        self._opaque += 1
        ask = EndTransaction(
            producer_group=group,
            tran_state_table_offset=place[0],
            commit_log_offset=place[1],
            commit_or_rollback=decision,
            msg_id="AC11",
        )
        return frame.encode(self.kind, 37, self._opaque, flag, ask, 0, language="JAVA")

    async def ask(self, *frames: bytes, answers: int | None = None) -> list[frame.Head[Any]]:
        """Write them at once; the answers, by opaque."""
        self.writer.write(b"".join(frames))
        found = [await self._hear() for _ in range(len(frames) if answers is None else answers)]
        return sorted(found, key=lambda head: head.opaque)

    async def _hear(self) -> frame.Head[Any]:
        return (await asyncio.wait_for(hear(self._reader), 20))[0]

    async def send(self, *frames: bytes) -> list[Place]:
        """Send half messages; where they are."""
        answers = await self.ask(*frames)
        assert {answer.code for answer in answers} == {0}
        replies = [frame.typed(SendReply, answer) for answer in answers]
        return [(reply.queue_offset, parse_offset_message_id(reply.msg_id)[1]) for reply in replies]


@pytest.fixture
async def line(desk: Desk) -> AsyncIterator[Line]:
    """A producer whose half messages have a form that is known."""
    desk.topic("T", queues=2)
    host, _, port = desk.app.address.rpartition(":")
    line = Line(*await asyncio.open_connection(host, int(port)))
    for _ in range(3):  # which make the half topic, and its form known
        for place in await line.send(line.half("first")):
            assert (await line.ask(line.end(place, ROLLBACK)))[0].code == 0
    yield line
    line.writer.close()
    await line.writer.wait_closed()


async def test_many_halves_and_their_ends_in_one_go(desk: Desk, line: Line, dispatched: list[int]) -> None:
    count = 50
    places = await line.send(*[line.half(f"K{n:03d}", queue_id=n % 2) for n in range(count)])
    assert dispatched.count(310) <= 2 or not native.on, "one of each form is learned"
    assert [offset for offset, _ in places] == list(range(3, 3 + count))
    assert len(desk.broker.halves.undecided) == count

    answers = await line.ask(*[line.end(place) for place in places])

    assert [(answer.code, answer.remark) for answer in answers] == [(0, None)] * count
    assert len(desk.broker.halves.undecided) == 0
    for queue_id in range(2):
        real = [record for record in desk.records("T", queue_id) if record.prepared_transaction_offset]
        assert [record.body for record in real] == [b"K%03d" % n for n in range(queue_id, count, 2)]
        assert [record.prepared_transaction_offset for record in real] == [place[1] for place in places[queue_id::2]]
    ops = desk.records(OP)[3:]
    assert [(op.body, op.tags) for op in ops] == [(b"%d" % offset, "d") for offset, _ in places]
    real = sorted([*desk.records("T"), *desk.records("T", 1)], key=lambda record: record.physical_offset)
    assert [op.physical_offset for op in ops] == [record.physical_offset + record.size for record in real]


@KINDS
async def test_both_paths_store_and_answer_the_same(
    desk: Desk, line: Line, dispatched: list[int], monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    line.kind = kind
    more = ["TAGS\x01TagT", "KEYS\x01k", "CHECK_IMMUNITY_TIME_IN_SECONDS\x017"]
    (learned,) = await line.send(line.half("learn", *more))
    await line.ask(line.end(learned))
    stored, heard, kept = [], [], []
    for short in (True, False):
        if not short:
            router(desk).fast_path = None
            monkeypatch.setattr(send, "prepared", lambda text, place: None)
            monkeypatch.setattr(commits.Commits, "commit", lambda *ends: 0)
        before = len(desk.records(HALF)), len(desk.records(OP)), len(desk.records("T"))
        dispatched.clear()
        line._opaque = 1000
        (place,) = await line.send(line.half("same", *more))
        undecided = desk.broker.halves.undecided.get(place[0])
        assert undecided is not None
        (answer,) = await line.ask(line.end(place))
        kept.append(undecided._replace(physical_offset=0))
        natively = short and native.on and kind != frame.MSGPACK
        assert dispatched == ([310] if short and not natively else []) + ([] if short else [310, 37])
        heard.append((answer.code, answer.flag, answer.opaque, answer.remark, answer.language, answer.version))
        stored.append(
            [
                record._replace(queue_offset=0, physical_offset=0, prepared_transaction_offset=0)
                for topic, first in zip((HALF, OP, "T"), before, strict=True)
                for record in desk.records(topic)[first:]
                if topic != OP or record.body == b"%d" % place[0]
            ]
        )
    assert len(stored[0]) == 3
    bodies = [[record.body for record in each if record.tags != "d"] for each in stored]
    assert bodies[0] == bodies[1]
    assert [one for one in stored[0] if one.tags != "d"] == [one for one in stored[1] if one.tags != "d"]
    ops = [next(one for one in each if one.tags == "d")._replace(body=b"", body_crc=0, size=0) for each in stored]
    assert ops[0] == ops[1]
    assert heard[0] == heard[1]
    assert kept[0] == kept[1]


async def test_an_end_that_comes_twice_is_one(desk: Desk, line: Line) -> None:
    (place,) = await line.send(line.half("once"))
    answers = await line.ask(line.end(place), line.end(place), line.end(place, ROLLBACK))
    assert [answer.code for answer in answers] == [0, 0, 0]
    assert [record.body for record in desk.records("T")] == [b"once"]
    assert len(desk.records(OP)) == 4


async def test_an_end_without_an_answer(desk: Desk, line: Line) -> None:
    """As Java's producers send theirs."""
    places = await line.send(line.half("one"), line.half("two"))
    (answer,) = await line.ask(line.end(places[0], flag=frame.ONEWAY_FLAG), line.end(places[1]), answers=1)
    assert answer.code == 0
    assert [record.body for record in desk.records("T")] == [b"one", b"two"]


async def test_a_wrong_end_is_refused(desk: Desk, line: Line) -> None:
    (place,) = await line.send(line.half("kept"))
    wrong = [line.end(place, group="other"), line.end((place[0] + 1, place[1])), line.end((place[0], place[1] + 1))]
    assert [answer.code for answer in await line.ask(*wrong)] == [1, 1, 1]
    assert len(desk.broker.halves.undecided) == 1
    assert desk.records("T") == []


async def test_nobody_is_asked_about_what_was_just_committed(desk: Desk, line: Line) -> None:
    (place,) = await line.send(line.half("queue"))  # whose commit makes the real queue known
    await line.ask(line.end(place))
    first, second = [(*place, "PG") for place in await line.send(line.half("one"), line.half("two"))]
    commits = desk.broker.commits
    assert commits.commit([first, first, second]) == 1, "the second time it is decided"
    assert commits.commit([first, second]) == 0
    assert desk.broker.halves.read(first[0]) is None
    assert commits.commit([second]) == 1 and len(desk.records(OP)) == 6


async def test_without_room_for_its_op_message_no_transaction_is_committed(desk: Desk, line: Line) -> None:
    desk.broker.store.appender.retry_after = 0
    places = await line.send(line.half("one"), line.half("two"))
    desk.leave_room(350)  # for a message, and not for what closes its half message
    with desk.disk.without_room("commitlog"):
        assert [answer.code for answer in await line.ask(*map(line.end, places))] == [14, 14]
    assert (desk.records("T"), len(desk.broker.halves.undecided)) == ([], 2)
    assert [answer.code for answer in await line.ask(*map(line.end, places))] == [0, 0]
    assert [record.body for record in desk.records("T")] == [b"one", b"two"]
    assert len(desk.broker.halves.undecided) == 0


async def test_what_needs_the_plain_handler_does_not_keep_others_from_the_fast_path(
    desk: Desk, line: Line, dispatched: list[int]
) -> None:
    texts = ["a\x01b", "TIMER_DELAY_SEC\x011"] * 20
    places = await line.send(*[line.half(f"K{n:03d}", text) for n, text in enumerate(texts)])
    await line.ask(line.end(places.pop(0)))  # which makes the real queue known
    dispatched.clear()

    answers = await line.ask(*[line.end(place) for place in places])

    assert [(answer.code, answer.remark) for answer in answers] == [(0, None)] * 39
    assert dispatched == [37] * 20, "those that wait for their delay"
    assert [record.body for record in desk.records("T")] == [b"K%03d" % n for n in range(0, 40, 2)]
    assert len(desk.broker.halves.undecided) == 0


async def test_the_next_start_finds_nothing_undecided(desk: Desk, line: Line) -> None:
    places = await line.send(*[line.half(f"K{n}") for n in range(20)])
    await line.ask(*map(line.end, places[:15]))
    await desk.restart()
    assert [offset for offset, _ in desk.broker.halves.undecided.items()] == [offset for offset, _ in places[15:]]


async def test_a_broker_that_takes_no_half_messages_says_so_here_too(desk: Desk, line: Line) -> None:
    assert await line.send(line.half("last"))
    desk.config.reject_transaction_message = True
    desk.broker.reconfigured()
    (answer,) = await line.ask(line.half("none"))
    assert (answer.code, len(desk.broker.halves.undecided)) == (16, 1)


words = st.sampled_from(
    [
        *("TRAN_MSG\x01true", "TRAN_MSG\x01TRUE", "UNIQ_KEY\x01k", "PGROUP\x01PG", "WAIT\x01true", "WAIT\x01false"),
        *("KEYS\x01a b", "a\x01", "\x01b", "x", "", "CLUSTER\x01other", "DELAY\x013", "REAL_TOPIC\x01U", "ä\x01ö"),
        *("TRANSACTION_CHECK_TIMES\x014", "TRAN_PREPARED_QUEUE_OFFSET\x011", "TIMER_DELAY_MS\x015", "\ud800\x01s"),
    ]
)


@given(st.lists(words, max_size=6).map(lambda pairs: "\x02".join(["TRAN_MSG\x01true", *pairs])))
def test_properties_are_what_decoding_them_gives(text: str) -> None:
    found = prepared(text, HalfPlaces("Lab")["T", 7])
    if found is None:
        return
    values = decode_properties(text.encode())
    assert found.values == values
    assert found.wait == (values.get("WAIT", "true") == "true")
    more = {names.CLUSTER: "Lab", names.REAL_TOPIC: "T", names.REAL_QUEUE_ID: "7"}
    assert found.text == encode_properties({**values, **more})


@pytest.mark.parametrize("odd", ["DELAY\x013", "CLUSTER\x01x", "TIMER_DELAY_MS\x015", "x", "a\x01", "TRAN_MSG\x01no"])
def test_odd_properties_are_left_to_the_plain_handler(odd: str) -> None:
    place = HalfPlaces("Lab")["T", 7]
    assert prepared("TRAN_MSG\x01true\x02PGROUP\x01PG", place) is not None
    assert prepared(f"TRAN_MSG\x01true\x02{odd}", place) is None


def test_a_name_that_no_property_can_have_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        HalfPlaces("a\x01b")["T", 0]
