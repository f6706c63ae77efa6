"""Whatever producers write, a broker with the native step and one without it answer and store the same.

A property over whole connections: headers in JSON and binary whose properties are plain, odd, broken or huge, batches
that are torn, topics and queues that do not exist, cut into reads anywhere. ``test_native`` has the forms of a few
well-known producers; here is what none of them should send. ERUCA_TORTURE=1 takes far more examples and shrinks a
failure, ERUCA_SEED takes other ones (``tests.support.programme``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from eruca.broker.handlers import TABLES
from eruca.broker.handlers.fast_path import fast_path
from eruca.broker.services.halves import HALF
from eruca.broker.store import native
from eruca.protocol import api, frame
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.record import BatchEntry, decode_records, encode_batch
from eruca.remoting import Connection, Router
from tests.support.desk import START, Desk
from tests.support.native import using
from tests.support.programme import ENOUGH, LONG, SEED, amount
from tests.support.stores import index_contents, queue_units

pytestmark = pytest.mark.skipif(not native.on, reason="the native step is not compiled here, or ERUCA_PURE is set")

Reads = list[bytes]
"""What is read from one connection, read by read."""
One = TypeVar("One")

# ---- properties of messages

USUAL = [
    "KEYS\x01order-1\x02UNIQ_KEY\x017F0000010A2B18B4AAC2123456780001\x02TAGS\x01TagA\x02WAIT\x01true",
    "KEYS\x01订单 k2\x02UNIQ_KEY\x01AC11\x02WAIT\x01true\x02TAGS\x01标签",
    "TRAN_MSG\x01true\x02PGROUP\x01pg\x02KEYS\x01订单\x02UNIQ_KEY\x01AC12\x02WAIT\x01true",
]
NAMES = [
    *(
        "KEYS",
        "KEYS",
        "TAGS",
        "UNIQ_KEY",
        "WAIT",
        "XWAIT",
        "TRAN_MSG",
        "PGROUP",
        "DELAY",
        "CLUSTER",
        "TIMER_DELIVER_MS",
    ),
    *("TIMER_DELAY_SEC", "RETRY_TOPIC", "REAL_TOPIC", "CHECK_IMMUNITY_TIME_IN_SECONDS", "标签", "a", ""),
]
VALUES = [
    *("true", "TRUE", "true ", "false", "1", "3", "k1 k2", "  k1  k2 ", "订单 1", "k\u3000j", "é", "😀", "TagA", ""),
    *("\0", "\t\n", "\x7f", "/", "\\", '"', "\u00a0", "\u2028", "İ", "\ufeff", "\uffff", "\U0010ffff", "x" * 300),
]
GIANT = [32_000, 32_600, 32_700, 32_740, 32_767, 33_000, 65_535, 70_000]
"""Lengths of values about the 32767 bytes that properties may have."""
NO_UTF8 = [
    *(b"\xff", b"\x80", b"\xc3", b"\xe6\x96", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80"),
    *(b"\xc0\x80", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf"),  # overlong forms
    *(b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xed\xa0\xbd\xed\xb8\x80"),  # surrogates
]
CONTROLS = [b"\0", b"\1", b"\2", b"\t", b'"', b"\\"]
ESCAPES = [
    *(rb"\u0000", rb"\u0001", rb"\u0002", rb"\u00e9", rb"\u00E9", rb"\u6807", rb"\ud83d\ude00", rb"\uD83D\uDE00"),
    *(rb"\/", rb"\b", rb"\f", rb"\n", rb"\r", rb"\t", rb"\\", rb"\""),
    *(rb"\ud83d", rb"\ude00", rb"\ud83dx", rb"\ud83d\u0041", rb"\uD800\uD800"),  # half of a pair
    *(rb"\x41", rb"\'", rb"\0", rb"\v", rb"\U0041", rb"\u12", rb"\u+123", rb"\u 123"),  # not of JSON
]


def mostly(usual: list[One], odd: list[One]) -> st.SearchStrategy[One]:
    """One of the usual values, about every fortieth time an odd one."""
    side = usual * (20 * len(odd) // len(usual) + 1)  # hypothesis likes what is first and last
    return st.sampled_from([*side, *odd, *side])


pairs = st.tuples(st.sampled_from(NAMES), mostly(["\x01"], ["", "\x01\x01", "\x02"]), st.sampled_from(VALUES))
odd_texts = st.tuples(
    st.lists(pairs.map("".join), max_size=6),
    mostly(["\x02"], ["\x02\x02", "\x01"]),
    st.sampled_from(["", "\x02"]),
).map(lambda parts: parts[1].join(parts[0]) + parts[2])
giants = st.sampled_from(GIANT).map(lambda size: f"TAGS\x01a\x02big\x01{'z' * size}")
texts = st.one_of(*[st.sampled_from(USUAL)] * 20, *[odd_texts] * 10, giants, *[odd_texts] * 10)


@st.composite
def spoilt(draw: st.DrawFn, text: bytes, pieces: list[bytes]) -> bytes:
    """A text, at times with a piece or two in it that do not belong there."""
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0]))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(pieces)) + text[at:]
    return text


# ---- requests, and what is read of them

entries = st.builds(
    BatchEntry, mostly([0], [7, -1]), st.sampled_from([b"", b"body"]), texts.map(lambda text: text.encode()[:32767])
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """The body of a batch, at times torn or with bytes that are wrong."""
    body = encode_batch(draw(st.lists(entries, max_size=5)))
    body = draw(mostly([body], [draw(spoilt(body, [*NO_UTF8, *CONTROLS]))]))
    return body[: draw(mostly([len(body)], [len(body) - 1, len(body) // 2, 21]))]


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    """The request of a send; its properties stand in the header as they are, whatever they are."""
    kind = draw(st.sampled_from([frame.JSON, frame.ROCKETMQ]))
    batch = draw(st.sampled_from([False, False, False, True]))
    text = draw(mostly(["WAIT\x01true\x02"], ["", "WAIT\x01false", "DELAY\x013", "a\x01标\x02"]) if batch else texts)
    if kind == frame.JSON:
        written = json.dumps(text, ensure_ascii=draw(st.booleans()))[1:-1].encode()
        raw = draw(spoilt(written, [*NO_UTF8, *CONTROLS, *ESCAPES]))
    else:
        raw = draw(spoilt(text.encode(), [*NO_UTF8, *CONTROLS]))
    body = draw(batches() if batch else st.sampled_from([b"", b"body", bytes(300)]))
    place = b"Z" * len(raw)
    ask = SendMessageV2(
        producer_group=draw(mostly(["pg"], ["pg2", "组"])),
        topic=draw(mostly(["T"], ["U", "%RETRY%g", "x" * 127, "x" * 128, "标题", "T!", ""])),
        queue_id=draw(mostly([0, 1], [2, 99])),  # below 0 is a queue by chance
        born_timestamp=draw(mostly([START], [1, -5, 2**62])),
        flag=draw(mostly([0], [5, -1, 2**31 - 1])),
        properties=place.decode(),
        reconsume_times=draw(mostly([0], [3, -1])),
        sys_flag=draw(mostly([0], [1, 4, 8, 12, 0x10, 0x20, 0x30, 0x700, -1])),
        batch=batch,
    )
    code = api.SEND_BATCH_MESSAGE.code if draw(mostly([batch], [not batch])) else api.SEND_MESSAGE_V2.code
    opaque, flag = draw(mostly([7], [0, -1, 2**31 - 1])), draw(mostly([0], [1, 2, 3]))
    language = draw(mostly(["JAVA"], ["CPP", "PYTHON"]))
    head = frame.encode(kind, code, opaque, flag, ask, len(body), language=language)
    return (head.replace(place, raw, 1) if raw else head) + body


@st.composite
def connections(draw: st.DrawFn) -> Reads:
    """Requests over one connection, perhaps with a wrong byte, cut where the network likes."""
    data = bytearray(b"".join(draw(st.lists(sends(), min_size=4, max_size=16))))
    if draw(mostly([False], [True])):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    ends = sorted({*draw(st.lists(st.integers(0, len(data)), max_size=2)), len(data)})
    return [bytes(data[begin:end]) for begin, end in pairwise([0, *ends])]


def introduction() -> Reads:
    """Plain sends, after which a broker knows their form and has made its files."""
    made = []
    for kind, queue_id, batch in product([frame.JSON, frame.ROCKETMQ], range(2), [False, True]):
        ask = SendMessageV2(
            producer_group="pg",
            topic="T",
            queue_id=queue_id,
            born_timestamp=START,
            flag=0,
            properties="WAIT\x01true\x02" if batch else USUAL[queue_id],
            reconsume_times=0,
            sys_flag=0,
            batch=batch,
        )
        body = encode_batch([BatchEntry(0, b"body", b"KEYS\x01k")]) if batch else b"body"
        code = api.SEND_BATCH_MESSAGE.code if batch else api.SEND_MESSAGE_V2.code
        made += [frame.encode(kind, code, 7, 0, ask, len(body), language="JAVA") + body] * 3
    return made


# ---- a broker, and what it makes of that


class Wire(asyncio.Transport):
    """The other end of a connection: keeps what the broker writes."""

    def __init__(self, closed: Callable[[None], None]) -> None:
        super().__init__({"peername": ("10.1.2.3", 4567), "sockname": ("10.1.2.4", 10911)})
        self.written = b""
        self.closing = False
        self._closed = closed

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self._closed, None)

    def abort(self) -> None:
        self.close()


class Native:
    """The native step of a broker, if it has one; counts the requests that went this way."""

    def __init__(self, desk: Desk) -> None:
        self.taken = 0
        self._take = fast_path(desk.broker)

    def __call__(self, connection: Connection, data: bytes, at: int) -> int:
        end = self._take(connection, data, at) if self._take is not None else at
        while at < end:
            at += 4 + int.from_bytes(data[at : at + 4], "big")
            self.taken += 1
        return end


async def answers(desk: Desk, step: Native, reads: Reads) -> tuple[bytes, bool]:
    """What is answered to these reads of a connection, and whether the broker closed it."""
    connection = Connection(Router(desk.broker, TABLES, fast_path=step))
    wire = Wire(connection.connection_lost)
    connection.connection_made(wire)
    for read in reads:
        if not wire.closing:
            connection.data_received(read)
        for _ in range(3):  # what was put off to the end of the turn, and the replies to that
            await asyncio.sleep(0)
        while connection.tasks:  # handlers that wait for something
            await asyncio.wait(connection.tasks)
            await asyncio.sleep(0)
    refused = wire.closing
    connection.close()
    await asyncio.sleep(0)
    return wire.written, refused


async def outcome(folder: Path, work: list[Reads]) -> tuple[int, tuple[object, ...]]:
    """How many requests a new broker took natively; what it answered and stored, and what is found by the keys."""
    desk = Desk(folder)
    desk.config.auto_create_topic_enable = False
    desk.config.store.mapped_file_size_commit_log = 8 << 20
    desk.config.store.mapped_file_size_consume_queue = 20 * 500
    desk.config.store.max_hash_slot_num = 512
    desk.config.store.max_index_num = 4096
    async with desk:
        desk.broker.listen_on(10911)
        for topic in ("T", "U", "%RETRY%g", "x" * 127, HALF):
            desk.topic(topic, queues=2)
        await desk.broker.topics.saved()
        step, store = Native(desk), desk.broker.store
        heard = [await answers(desk, step, reads) for reads in [introduction(), *work]]
        store.drain()
        log = bytes(store.commit_log.view(0, store.figures().max_offset) or b"")
        keys = set()
        for record in decode_records(log):
            business_keys = record.properties.get("KEYS", "").split(" ")
            keys |= {(record.topic, key) for key in [record.properties.get("UNIQ_KEY", ""), *business_keys]}
        found = {(topic, key): store.query(topic, key, 32, 0, 2 * START).records for topic, key in sorted(keys)}
        undecided = list(desk.broker.halves.undecided.items())
    return step.taken, (heard, log, queue_units(folder / "store"), index_contents(folder / "store"), found, undecided)


@ENOUGH
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
def test_whatever_comes_is_answered_and_stored_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    taken: list[int] = []

    @seed(SEED)
    @settings(max_examples=amount(12, 300), phases=list(Phase) if LONG else [Phase.generate])  # shrinking takes minutes
    @given(st.lists(connections(), min_size=2, max_size=8))
    def compare(work: list[Reads]) -> None:
        natively, quick = asyncio.run(outcome(tmp_path_factory.mktemp("quick"), work))
        with using(c=False):
            _, plain = asyncio.run(outcome(tmp_path_factory.mktemp("plain"), work))
        for ours, theirs in zip(quick, plain, strict=True):  # one after the other, for a message that can be read
            assert ours == theirs
        taken.append(natively)

    compare()
    assert sum(taken) > 16 * len(taken)  # 14 of the introduction; else this compares little
