"""Whatever ends producers send, each way to take them answers and stores the same.

A property over whole connections: half messages and their ends in JSON, binary and msgpack headers, right and wrong,
mixed and cut into reads anywhere, given to three brokers. One commits by the native step, one by its counterpart in
Python, one by the plain handler alone. ``test_bounds`` has what no broker gives to the native step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise, product
from math import inf
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from eruca.broker.handlers import TABLES
from eruca.broker.handlers.fast_path import fast_path
from eruca.broker.services.commits import Commits, End
from eruca.broker.services.given_up import OP
from eruca.broker.services.halves import HALF
from eruca.protocol import frame
from eruca.protocol.headers.send import EndTransaction, SendMessageV2
from eruca.protocol.record import decode_records
from eruca.remoting import Connection, Router
from tests.broker.test_native_reads import Wire, mostly
from tests.support.desk import START, Desk
from tests.support.half_messages import COMMIT, ROLLBACK, UNKNOWN
from tests.support.native import using
from tests.support.programme import ENOUGH, LONG, SEED, amount
from tests.support.stores import index_contents, queue_units

KINDS = [frame.JSON, frame.ROCKETMQ, frame.MSGPACK]
PLAIN = [
    "KEYS\x01order-1\x02UNIQ_KEY\x017F0000010A2B18B4AAC2123456780001\x02TAGS\x01TagA",
    "KEYS\x01订单 k2\x02UNIQ_KEY\x01AC11\x02TAGS\x01标签",
    "UNIQ_KEY\x01AC12\x02颜色\x01蓝 😀",
]
ODD = [
    *("TIMER_DELAY_SEC\x013", "TIMER_DELIVER_MS\x011", "DELAY\x013", "REAL_QID\x017", "CLUSTER\x01c", "a\x01"),
    *("xREAL_TOPIC\x01U", "TRANSACTION_CHECK_TIMES\x014", "CHECK_IMMUNITY_TIME_IN_SECONDS\x019", "WAIT\x01false"),
]


class HalfSend(NamedTuple):
    """A half message to send."""

    kind: int
    topic: str
    queue_id: int
    text: str
    body: bytes
    flag: int
    sys_flag: int

    def encode(self, opaque: int) -> bytes:
        ask = SendMessageV2(
            producer_group="pg",
            topic=self.topic,
            queue_id=self.queue_id,
            born_timestamp=START + opaque,
            flag=self.flag,
            properties=self.text,
            reconsume_times=0,
            sys_flag=self.sys_flag,
        )
        return frame.encode(self.kind, 310, opaque, 0, ask, len(self.body), language="JAVA") + self.body


class EndSend(NamedTuple):
    """The end of a transaction to send, perhaps a wrong one."""

    kind: int
    back: int
    """Which half message is meant: 0 is the one after that of the end before."""
    decision: int
    group: str
    wrong: tuple[int, int]
    """By how much its offsets differ from the right ones."""
    flag: int

    def encode(self, opaque: int, place: tuple[int, int]) -> bytes:
        offset, physical_offset = place
        ask = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=offset + self.wrong[0],
            commit_log_offset=physical_offset + self.wrong[1],
            commit_or_rollback=self.decision,
            msg_id="AC11",
            transaction_id="标",
        )
        return frame.encode(self.kind, 37, opaque, self.flag, ask, 0, language="JAVA")


class Round(NamedTuple):
    """Half messages, then ends of which many come together, perhaps with half messages between them."""

    halves: list[HalfSend]
    ends: list[EndSend | HalfSend]
    cuts: list[int]


texts = st.tuples(mostly(PLAIN, ODD), mostly(["PGROUP\x01pg"], ["PGROUP\x01组", "PGROUP\x01", "x\x01y"])).map(
    lambda parts: "\x02".join(["TRAN_MSG\x01true", *parts])
)
halves = st.builds(
    HalfSend,
    st.sampled_from(KINDS),
    mostly(["T", "U"], ["标题", "%RETRY%g"]),
    mostly([0, 1], [1]),
    texts,
    mostly([b"", b"body", bytes(300)], [bytes(90_000)]),
    mostly([0], [5, -1]),
    mostly([4], [5, 0x704]),
)
ends = st.builds(
    EndSend,
    st.sampled_from(KINDS),
    mostly([0], [1, 2, 40]),
    mostly([COMMIT, COMMIT, COMMIT, COMMIT, COMMIT, ROLLBACK], [UNKNOWN, 7]),
    mostly(["pg"], ["", "组", "pg2"]),
    mostly([(0, 0)], [(1, 0), (0, 1), (-1, -1), (2**40, 0), (0, 2**40)]),
    mostly([0], [frame.ONEWAY_FLAG, 1, 4]),
)
rounds = st.builds(
    Round,
    st.lists(halves, min_size=12, max_size=24),
    st.lists(st.one_of(*[ends] * 8, halves), min_size=12, max_size=40),
    st.lists(st.integers(0, 6000), max_size=2),
)


def introduction() -> Round:
    """Transactions in each queue, after which a broker knows the forms of the half messages and the queues."""
    sends: list[HalfSend] = []
    for topic, queue_id, kind in product("TU", range(2), KINDS):
        sends += [HalfSend(kind, topic, queue_id, f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02{PLAIN[1]}", b"body", 0, 4)] * 3
    return Round(sends, [EndSend(frame.JSON, 0, COMMIT, "pg", (0, 0), 0) for _ in sends], [])


class PlainOnly(Commits):
    """Leaves each commit to ``Halves.decide``."""

    def commit(self, ends: Iterable[End]) -> int:
        return 0


class Counted(Commits):
    """Counts what it commits."""

    count = 0

    def commit(self, ends: Iterable[End]) -> int:
        done = super().commit(ends)
        self.count += done
        return done


async def outcome(folder: Path, work: list[Round], commits: type[Commits]) -> tuple[int, list[object]]:
    """How many transactions went the fast way; what a new broker answered, and what it holds then."""
    desk = Desk(folder)
    desk.config.store.mapped_file_size_consume_queue = 20 * 500
    desk.config.store.max_hash_slot_num = 512
    desk.config.store.max_index_num = 4096
    async with desk:
        broker = desk.broker
        broker.listen_on(10911)
        for topic in ("T", "U", "标题", "%RETRY%g", HALF):
            desk.topic(topic, queues=2)
        await broker.topics.saved()
        broker.loop_monitor.stop()
        broker.loop_monitor.overdue = inf  # this test lets nothing else on the loop
        broker.commits = commits(broker.halves, broker.store)
        connection = Connection(Router(broker, TABLES, fast_path=fast_path(broker)))
        wire = Wire(connection.connection_lost)
        connection.connection_made(wire)
        opaque = ended = 0
        for one in [introduction(), *work]:
            desk.now += 700
            for sends in (one.halves, one.ends):
                data = b""
                places = half_places(folder)
                for each in sends:
                    opaque += 1
                    if isinstance(each, HalfSend):
                        data += each.encode(opaque)
                    else:
                        data += each.encode(opaque, places[(ended - each.back) % len(places)])
                        ended += 1
                for begin, end in pairwise([0, *sorted(min(cut, len(data)) for cut in one.cuts), len(data)]):
                    connection.data_received(data[begin:end])
                    await asyncio.sleep(0)
                    while connection.tasks:
                        await asyncio.wait(connection.tasks)
                        await asyncio.sleep(0)
        broker.store.drain()
        figures = broker.store.figures()
        counted = [broker.statistics.puts(topic, n).tally for topic in ("T", "U", HALF, OP) for n in range(2)]
        undecided = broker.halves.undecided
        ends = figures.max_offset, broker.store.max_offset(HALF, 0), broker.store.max_offset(OP, 0)
        memory = [undecided.items(), undecided.progress(*ends[1:]), counted, figures.puts, figures.put_bytes, ends]
        connection.close()
        await asyncio.sleep(0)
        done = broker.commits.count if isinstance(broker.commits, Counted) else 0
    store = folder / "store"
    return done, [wire.written, *memory, log_of(folder), queue_units(store), index_contents(store)]


def log_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((folder / "store" / "commitlog").iterdir()))


def half_places(folder: Path) -> list[tuple[int, int]]:
    """Offsets in the half queue and in the log of all half messages so far, in their order."""
    places = []
    for file in sorted((folder / "store" / "commitlog").iterdir()):
        data = file.read_bytes()
        at = 0
        while data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
            size = int.from_bytes(data[at : at + 4], "big")
            (record,) = decode_records(data[at : at + size])
            if record.topic == HALF:
                places.append((record.queue_offset, record.physical_offset))
            at += size
    return places


@ENOUGH
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
def test_each_way_answers_and_stores_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    committed: list[int] = []

    @seed(SEED)
    @settings(max_examples=amount(12, 300), phases=list(Phase) if LONG else [Phase.generate])
    @given(st.lists(rounds, min_size=3, max_size=6))
    def compare(work: list[Round]) -> None:
        natively, ours = asyncio.run(outcome(tmp_path_factory.mktemp("native"), work, Counted))
        with using(c=False):
            purely, pure = asyncio.run(outcome(tmp_path_factory.mktemp("pure"), work, Counted))
            _, plain = asyncio.run(outcome(tmp_path_factory.mktemp("plain"), work, PlainOnly))
        for each, python, theirs in zip(ours, pure, plain, strict=True):  # in turn, for a message that can be read
            assert each == python == theirs
        assert natively == purely
        committed.append(natively)

    compare()
    assert sum(committed) > 60 * len(committed)  # else this compares little: 30 are the introduction's
