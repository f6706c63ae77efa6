"""The native step is given bytes that lie about lengths: it writes nothing beside the room that it has, and takes
nothing from beside what it was given. That it reads nothing there either, a checked build shows (CONTRIBUTING.md)."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from eruca.broker.store import native
from eruca.broker.store.consume_queue import UNIT_FORM
from eruca.broker.store.layout import CommitForm, SendForm, SendHosts, Tip
from eruca.protocol import frame
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.record import BatchEntry, encode_batch, encode_record
from eruca.protocol.templates import binary_send_key, json_send_key, reply_template, template_of
from tests.support.native import STEPS, Step
from tests.support.stores import HOST

step_in_c: Any = native

compiled = pytest.mark.skipif(not native.on, reason="the native step is not compiled here, or ERUCA_PURE is set")

FUZZ_SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
FUZZ_SEED = os.environ.get("FUZZ_SEED")
"""The beginning of a run that failed, to see it again."""
GUARD = b"\xa5" * 64
EXTREMES = [0, 1, 21, 22, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]


class Queue:
    """What the native step looks at of a queue."""

    def __init__(self, topic: str = "T") -> None:
        self.topic, self.queue_id, self.next_offset = topic, 0, 9
        self.topic_tail = bytes((len(topic.encode()),)) + topic.encode()
        self.tail, self.tail_start, self.arrived, self.index_prefix = bytearray(), 9, list[int](), 84 * 31 + 35


class Room:
    """Memory with a guard at either end."""

    def __init__(self, size: int) -> None:
        self.whole = bytearray(GUARD + bytes(size) + GUARD)
        self.inside = memoryview(self.whole)[len(GUARD) : len(GUARD) + size]

    @property
    def is_guarded(self) -> bool:
        return self.whole.startswith(GUARD) and self.whole.endswith(GUARD)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """With a length that is not true, a byte that differs, or without its end."""
    changed = bytearray(data)
    at = chance.randrange(max(len(changed) - 3, 1))
    kind = chance.randrange(4)
    if kind == 0:
        changed[at : at + 4] = struct.pack(">I", chance.choice([*EXTREMES, len(data), len(data) - at]))
    elif kind == 1:
        changed[at : at + 1] = chance.randbytes(1)
    elif kind == 2:
        del changed[at:]
    return bytes(changed)


def text(chance: random.Random) -> bytes:
    return b"".join(chance.choices([b"TAGS\x01", b"KEYS\x01", b"WAIT\x01true", b"\x02", b" ", b"k", b"X" * 40], k=5))


def odd_text(chance: random.Random) -> str:
    """Properties of a message or a half message, some of them beyond ASCII."""
    half = ["TRAN_MSG\x01true", "UNIQ_KEY\x01键", "PGROUP\x01pg", "CHECK_IMMUNITY_TIME_IN_SECONDS\x019"]
    words = ["KEYS\x01世界", 'q\x01"\\\n😀', "x" * chance.randrange(1, 9) + "\x01y", "TAGS\x01é\x7f\x02"]
    chance.shuffle(words)
    return "\x02".join(half + words) if chance.random() < 0.4 else text(chance).decode() + "\x02".join(words)


def batch_of(chance: random.Random) -> bytes:
    return encode_batch([BatchEntry(0, chance.randbytes(chance.randrange(99)), text(chance)) for _ in range(5)])


def one_send(chance: random.Random, forms: dict[bytes, SendForm]) -> bytes:
    """A frame of a form that is in ``forms`` then."""
    kind, is_batch = chance.choice([frame.JSON, frame.ROCKETMQ]), chance.random() < 0.5
    ask = SendMessageV2(
        producer_group="pg",
        topic="T",
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000 + chance.randrange(999),
        flag=0,
        properties="WAIT\x01true\x02" if is_batch else odd_text(chance),
        reconsume_times=0,
        batch=is_batch,
    )
    body = batch_of(chance) if is_batch else chance.randbytes(chance.randrange(200))
    body = damaged(chance, body) if chance.random() < 0.3 else body
    head = frame.encode(
        kind, 320 if is_batch else 310, chance.choice([1, 2**31 - 1]), 0, ask, len(body), language="JAVA"
    )
    template = template_of(kind, head[8:], "g", "i")
    assert template is not None
    extra = b"WAIT\x01true\x02" if is_batch else b""
    reply = reply_template(kind, HOST.hex().upper(), SendReply(msg_id="", queue_id=0, queue_offset=0))
    assert reply is not None
    key = binary_send_key(head[8:]) if kind else json_send_key(head[8:])
    forms[key] = SendForm(template, ("T", 0), 0, 0, 0, False, reply, extra, extra, ("HALF", 0), b"\x02CLUSTER\x01C")
    return head + body


def sends_and_what_follows(chance: random.Random, times: int) -> tuple[int, int]:
    """Hands sends over; returns how many messages were written and how many of them were half messages."""
    written = halves = 0
    for _ in range(times):
        forms: dict[bytes, SendForm] = {}
        data = b"".join(one_send(chance, forms) for _ in range(4))
        data = damaged(chance, data) if chance.random() < 0.6 else data
        size = chance.choice([100, 700, 6000])
        room, queue, half_queue, pending = Room(size), Queue(), Queue(), list[Any]()
        queues: dict[Any, Any] = {("T", 0): queue, ("HALF", 0): half_queue}
        tip = Tip(queues, pending, room.inside, 0, 1000, 1000 + size, 1, 4000, 4000)  # type: ignore[arg-type]
        hosts = SendHosts(HOST, 0, HOST, b"CLUSTER\x01C")
        _, _, end, _, sent = step_in_c.sends(data, 0, forms, tip, hosts, 99)
        assert room.is_guarded and end <= 1000 + size and not any(room.inside[end - 1000 :])
        written += len(pending)
        followed = native.follow(pending, 0, set(), ())
        assert len(queue.tail + half_queue.tail) == 20 * followed
        assert len(queue.arrived + half_queue.arrived) == followed
        assert len(sent) == half_queue.next_offset - 9
        halves += len(sent)
        assert all(0 <= value < 2**31 for value, _, _ in native.keys(pending))
    return written, halves


@compiled
@pytest.mark.parametrize("seed", range(3))
def test_sends_and_what_follows_of_them(seed: int) -> None:
    written, halves = sends_and_what_follows(random.Random(seed), 300)
    assert written > 300 and halves > 5


def entries_of_an_index_file(step: Step, chance: random.Random, slots: int) -> None:
    """Puts entries into files with room for them, and beside those."""
    at = 40 + 4 * slots
    for there in range(1, 5):
        entries = [(chance.randrange(2**31), 9, chance.randrange(2**40)) for _ in range(chance.randrange(1, 9))]
        room = Room(at + 20 * (there + len(entries)))
        assert 1 <= step.put_entries(room.inside, slots, at, there, 0, entries) <= slots
        for other in (
            (slots, at, there + 1),
            (slots, at, 2**62),
            (slots, at, -1),
            (slots, at - 1, 0),
            (slots, 2**62, 0),
        ):
            with pytest.raises(ValueError, match="do not fit"):
                step.put_entries(room.inside, *other, 0, entries)
        for many in (0, -1, 2**61):
            with pytest.raises(ValueError, match="do not fit"):
                step.put_entries(room.inside, many, at, there, 0, entries)
        assert room.is_guarded


@pytest.mark.parametrize("slots", [1, 7])
def test_entries_of_an_index_file(step: Step, slots: int) -> None:
    entries_of_an_index_file(step, random.Random(slots), slots)


def batches(step: Step, chance: random.Random, times: int) -> int:
    """Hands batches over; returns how many were written."""
    written = 0
    for _ in range(times):
        room, data = Room(900), batch_of(chance)
        data = damaged(chance, data) if chance.random() < 0.7 else data
        at, size = chance.choice(
            [*[(0, 900)] * 8, (0, 300), (899, 1), (900, 0), (901, 0), (0, 901), (-1, 9), (0, 2**62)]
        )
        found = step.batch(Queue(), data, b"WAIT\x01true", room.inside, at, 0, size, 4000, 0, 1, HOST, HOST, 0, 1)
        assert room.is_guarded and (found is None or 0 <= at <= at + size <= 900)
        written += found is not None
    return written


@pytest.mark.parametrize("seed", range(3))
def test_batches(step: Step, seed: int) -> None:
    assert batches(step, random.Random(seed), 700) > 20


def half_record(chance: random.Random, queue_offset: int, position: int) -> bytes:
    """A half message, now and then an odd or a damaged one."""
    real = chance.choice(["T"] * 30 + ["标", "U", "T\x01", ""])
    number = chance.choice(["0"] * 40 + ["00", "7", "", "٠", "-1", "1234567890"])
    between = chance.choice([""] * 30 + ["TIMER_DELAY_MS\x015\x02", "REAL_TOPIC\x01x\x02"])
    properties = f"{odd_text(chance)}\x02{between}REAL_TOPIC\x01{real}\x02REAL_QID\x01{number}".encode()
    born, store = chance.choice([8, 8, 20]), chance.choice([8, 8, 20])
    record = encode_record(
        topic=chance.choice(["HALF"] * 40 + ["HALT", "标"]),
        queue_id=0,
        queue_offset=queue_offset,
        physical_offset=position,
        body=chance.randbytes(chance.choice([0, 9, 300])),
        properties=properties + chance.choice([b""] * 40 + [b"\xff", b"\x02"]),
        flag=chance.choice([0, -7]),
        sys_flag=chance.choice([0, 4, 0x705]) | (0x10 if born > 8 else 0) | (0x20 if store > 8 else 0),
        born_timestamp=1,
        born_host=bytes(born),
        store_timestamp=2,
        store_host=bytes(store),
        reconsume_times=chance.choice([0, -1]),
    )
    return damaged(chance, record) if chance.random() < 0.05 else record


def commits(step: Step, chance: random.Random) -> tuple[object, int]:
    """What an implementation makes of commits, and how many those are."""
    base, size = 10**6, chance.choice([700, 4000, 9000])
    room, pending = Room(size), list[Any]()
    half_queue, op_queue, real = Queue("HALF"), Queue("OP"), [Queue(), Queue("标"), Queue("U")]
    places, at = [], 0
    for queue_offset in range(chance.randrange(1, 9)):
        record = half_record(chance, queue_offset, base + at)
        if at + len(record) > size:
            break
        room.inside[at : at + len(record)] = record
        places.append((queue_offset, base + at, len(record)))
        at += len(record)
    if chance.random() < 0.2:
        wrong = [
            (0, base, 2**62),
            (0, base, -1),
            (0, base + at, 91),
            (-1, base - 1, 91),
            (0, 2**62, 2**62),
            (1, base, 91),
        ]
        places.insert(chance.randrange(len(places) + 1), chance.choice(wrong))
    limit = chance.choice([base + size] * 5 + [base + at, base + (at + size) // 2])
    host = chance.choice([bytes(8), bytes(8), bytes(20)])
    tip = Tip(
        {(queue.topic, 0): queue for queue in real},  # type: ignore[misc]
        pending,
        room.inside,  # type: ignore[arg-type]
        at,
        base + at,
        limit,
        5,
        chance.choice([4000, 100]),
        chance.choice([4000, 400]),
    )
    flags = 0x30 if len(host) > 8 else 0
    form = CommitForm(half_queue, op_queue, b"TAGS\x01d", flags, 4, host, host)  # type: ignore[arg-type]
    low = chance.choice([0] * 9 + [base + 1, base + at])
    found = step.commits(places, low, tip, form)
    assert room.is_guarded and not any(room.inside[found[1] - base :])
    requests = [(queue.topic, *rest) for queue, *rest in pending]
    nexts = [queue.next_offset for queue in (*real, op_queue, half_queue)]
    return (found, bytes(room.whole), requests, nexts), found[0]


def test_commits() -> None:
    committed = 0
    for seed in range(3000):
        outcomes = [commits(step, random.Random(seed)) for step in STEPS]
        assert outcomes[0] == outcomes[-1], seed
        committed += outcomes[0][1]
    assert committed > 1000


@compiled
def test_commits_into_no_room() -> None:
    half = half_record(random.Random(8), 0, 0)
    for at, position, limit in (
        (-1, 500, 600),
        (901, 2000, 2001),
        (500, 499, 600),
        (800, 800, 2**62),
        (2**62, 2**62, 0),
    ):
        room, queue = Room(900), Queue()
        room.inside[: len(half)] = half
        queues: dict[Any, Any] = {("T", 0): queue}
        tip = Tip(queues, [], room.inside, at, position, limit, 5, 4000, 4000)  # type: ignore[arg-type]
        form = CommitForm(Queue("HALF"), Queue("OP"), b"TAGS\x01d", 0, 4, HOST, HOST)  # type: ignore[arg-type]
        assert step_in_c.commits([(0, 0, len(half))], 0, tip, form) == (0, position)
        assert room.is_guarded and queue.next_offset == 9


@compiled
def test_a_commit_that_fails_leaves_nothing() -> None:
    """What was written before it in the same call is taken back."""
    half, room, queue, op_queue, pending = half_record(random.Random(8), 0, 0), Room(9000), Queue(), Queue("OP"), [7]
    room.inside[: len(half)] = half
    tip = Tip({("T", 0): queue}, pending, room.inside, 900, 900, 9000, 5, 4000, 4000)  # type: ignore[arg-type,dict-item]
    form = CommitForm(Queue("HALF"), op_queue, b"TAGS\x01d", 0, 4, HOST, HOST)  # type: ignore[arg-type]
    place = 0, 0, len(half)
    assert step_in_c.commits([place], 0, tip, form)[0] == 1
    pending[1:], queue.next_offset, op_queue.next_offset = [], 9, 9
    for odd in ("x", (1, 2), ("a", "b", "c"), (2**70, 0, 0)):
        with pytest.raises((TypeError, OverflowError)):
            step_in_c.commits([place, odd], 0, tip, form)
        assert (pending, queue.next_offset, op_queue.next_offset) == ([7], 9, 9)


def units_that_point_beside_the_log(step: Step, chance: random.Random, file: Path, times: int) -> int:
    """Asks for the messages of units; returns how many were found."""
    start, log = 10**12, chance.randbytes(40_000)
    file.write_bytes(log)
    fd = os.open(file, os.O_RDONLY)
    taken = 0
    for _ in range(times):
        units, place = b"", start
        for _ in range(chance.choice([1, 5, 600])):
            size = chance.choice([100, 91, 1, 3000]) if chance.random() < 0.99 else chance.choice([0, -1, 2**31 - 1])
            if place + size > start + len(log) and chance.random() < 0.97:
                place = start + chance.randrange(20_000)
            units += UNIT_FORM.pack(place, size, chance.randrange(3))
            place += max(size, 0) + chance.choice([0, 0, 50, 4096, 4097])
        codes = chance.choice([None, struct.pack(">q", 1), struct.pack(">qq", 1, 2), b""])
        wanted = [unit for unit in UNIT_FORM.iter_unpack(units) if codes is None or struct.pack(">q", unit[2]) in codes]
        limits = units, codes, chance.choice([1, 32, 1024]), chance.choice([1, 5000, 1 << 20])
        for found in (
            step.take(*limits, memoryview(log), start, start, start + len(log)),
            step.fetch(*limits, fd, start, start, start + len(log), True, b"T", 0, 0, 0),
        ):
            if found is not None:
                buffers, count, _, size = found
                assert size == sum(map(len, buffers))
                assert b"".join(buffers) == b"".join(
                    log[at - start : at - start + size] for at, size, _ in wanted[:count]
                )
                taken += count
    os.close(fd)
    return taken


@pytest.mark.parametrize("seed", range(3))
def test_units_that_point_beside_the_log(step: Step, seed: int, tmp_path: Path) -> None:
    assert units_that_point_beside_the_log(step, random.Random(seed), tmp_path / "log", 700) > 500


@compiled
@pytest.mark.skipif(not FUZZ_SECONDS, reason="runs for as long as FUZZ_SECONDS says")
@pytest.mark.timeout(FUZZ_SECONDS + 60)
def test_input_that_differs_each_time(tmp_path: Path) -> None:
    """All of the above, from a beginning that no run had before, until the time is over."""
    begin = random.SystemRandom().randrange(2**40) if FUZZ_SEED is None else int(FUZZ_SEED)
    end = time.monotonic() + FUZZ_SECONDS
    rounds = 0
    print(f"FUZZ_SEED={begin}", flush=True)
    while time.monotonic() < end:
        chance = random.Random(begin + rounds)
        sends_and_what_follows(chance, 60)
        entries_of_an_index_file(step_in_c, chance, chance.randrange(1, 9))
        batches(step_in_c, chance, 60)
        for _ in range(60):
            commits(step_in_c, chance)
        units_that_point_beside_the_log(step_in_c, chance, tmp_path / "log", 30)
        rounds += 1
    assert rounds
    print(f"{rounds} rounds in {FUZZ_SECONDS:g} s")
