"""Transactions and a broker that ends in the middle: killed in every state, and with a log that lost its unsynced end.

A model of producers that know what became of each transaction plays a seeded game against one broker; at a random
moment its folder is copied, as a kill leaves it, or cut where it was not on the disk, and a second broker goes on with
the copy. Then: committed messages are seen, rolled back ones never, and what is undecided is asked about until it is.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from eruca.broker.services.commits import Commits
from eruca.broker.services.halves import Halves
from eruca.broker.store import FileSystem
from eruca.broker.store.cut import intend_cut
from eruca.broker.store.results import Put
from eruca.protocol.record import Record, decode_record
from tests.support.desk import Desk
from tests.support.peers import Peer
from tests.support.programme import LONG, SEED, TIMES

SEND, END, CHECK = 310, 37, 39
COMMIT, ROLLBACK = 8, 12
TRANSACTIONS = 12
CHECKS = 4
SEEDS = range(SEED, SEED + (int(33 * TIMES) if LONG else 25))


class Killed(Exception):
    """The broker's process ends here."""


@dataclass
class Transaction:
    """What the producer knows: ``truth`` is what became of it, ``told`` whether the broker was told by itself."""

    key: str
    truth: int
    place: dict[str, object]
    half_end: int
    told: bool = False


class Game:
    """One broker and the producers' side of all transactions."""

    def __init__(self, desk: Desk, seed: random.Random, *, flushes: float = 0.7) -> None:
        self.flushes = flushes
        self.desk = desk
        self.seed = seed
        self.deals: dict[str, Transaction] = {}
        self.questions: Counter[str] = Counter()
        """How often the producer was asked about a transaction."""
        self.producer: Peer | None = None

    async def sit_down(self, desk: Desk) -> None:
        self.desk = desk
        desk.topic("T")
        self.producer = await desk.producer("PG")

    async def send(self) -> None:
        key = f"K{len(self.deals)}"
        text = f"TRAN_MSG\x01true\x02UNIQ_KEY\x01{key}\x02PGROUP\x01PG"
        fields = {"a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 4, "g": self.desk.now, "h": 0, "i": text}
        answer = await self.desk.ask(SEND, fields, key.encode())
        assert answer.code == 0
        place = {
            "tranStateTableOffset": answer.fields["queueOffset"],
            "commitLogOffset": int(answer.fields["msgId"][16:], 16),
        }
        end = self.desk.broker.store.figures().max_offset
        self.deals[key] = Transaction(key, self.seed.choice((COMMIT, ROLLBACK)), place, end)

    async def tell(self, deal: Transaction, place: Mapping[str, object] | None = None) -> None:
        deal.told = True
        fields = {"producerGroup": "PG", "msgId": deal.key, "commitOrRollback": deal.truth, **(place or deal.place)}
        assert (await self.desk.ask(END, fields)).code == 0

    async def tell_one(self) -> None:
        open_ = [deal for deal in self.deals.values() if not deal.told or self.seed.random() < 0.1]
        if open_:
            await self.tell(self.seed.choice(open_))

    async def be_asked(self, share: float) -> set[str]:
        """A round of questions; that share of them is answered. Whom they were about."""
        assert self.producer is not None
        self.desk.now += 60_000
        before = self.desk.broker.check_backs.asked
        await self.desk.broker.check_backs.round()
        count = self.desk.broker.check_backs.asked - before
        questions = await self.producer.received(CHECK, count) if count else []
        for question in questions:
            self.questions[question.fields["transactionId"]] += 1
            if self.seed.random() < share:
                place = {name: question.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
                await self.tell(self.deals[question.fields["transactionId"]], place)
        return {question.fields["transactionId"] for question in questions}

    async def save(self) -> None:
        """What the broker does by itself now and then, a part of it."""
        broker = self.desk.broker
        broker.store.drain()
        if self.seed.random() < self.flushes:
            broker.store.flush()
        broker.halves.keep()
        broker.halves.keep()
        broker.offsets.save()

    async def play(self, steps: int) -> None:
        for _ in range(steps):
            move = self.seed.random()
            if move < 0.4 and len(self.deals) < TRANSACTIONS:
                await self.send()
            elif move < 0.75:
                await self.tell_one()
            elif move < 0.9:
                await self.be_asked(0.5)
            else:
                await self.save()
            self.desk.now += 1


def small(folder: Path) -> Desk:
    desk = Desk(folder)
    desk.config.store.mapped_file_size_consume_queue = 20 * 500
    desk.config.transaction_check_max = CHECKS
    desk.config.broker_fast_failure_enable = False  # all share these processors: waiting is not refused
    return desk


def delivered(desk: Desk) -> list[Record]:
    store = desk.broker.store
    store.drain()
    units = [store.unit("T", 0, offset) for offset in range(store.max_offset("T", 0))]
    records = [store.record(unit[0]) for unit in units if unit is not None]
    return [decode_record(record) for record in records if record is not None]


def copy_of(desk: Desk, folder: Path, *, cut_from: int | None) -> int:
    """The folder as a kill leaves it, or with an end of the log lost that was not on the disk; where the log ends."""
    figures = desk.broker.store.figures()
    shutil.copytree(desk.folder / "store", folder / "store")
    if cut_from is None:
        return figures.max_offset
    with (folder / "store" / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(cut_from)
        log.write(bytes(figures.max_offset - cut_from))
    return cut_from


async def go_on(game: Game, first: Desk, folder: Path, *, power_lost: bool, least: bool = False) -> set[str]:
    """A second broker on what is left of the first; the transactions whose half message outlived it."""
    figures = first.broker.store.figures()
    most = figures.flushed_offset if least else figures.max_offset
    cut = game.seed.randint(figures.flushed_offset, most) if power_lost else None
    end = copy_of(first, folder, cut_from=cut)
    await first.stop()
    second = small(folder)
    second.now = first.now
    await second.start()
    await game.sit_down(second)
    return {deal.key for deal in game.deals.values() if deal.half_end <= end}


async def settle(game: Game) -> set[str]:
    """Questions and answers until nothing is undecided; everybody who was asked about."""
    asked: set[str] = set()
    for _ in range(CHECKS + 2):
        asked |= await game.be_asked(1.0)
    assert game.desk.broker.halves.undecided.items() == []
    return asked


def judge(game: Game, alive: set[str], before: Counter[str], *, once: bool) -> None:
    seen = Counter(record.body.decode() for record in delivered(game.desk))
    committed = {deal.key for deal in game.deals.values() if deal.truth == COMMIT}
    assert seen.keys() <= committed, "rolled back, and seen"
    most = CHECKS - 1  # one more was counted, and died with the broker
    given_up = {key for key, count in game.questions.items() if count >= most and not game.deals[key].told}
    assert (alive & committed) - given_up <= seen.keys(), "committed, and not seen"
    if once:
        assert max(seen.values(), default=1) == 1, "seen twice, though no decision was cut in half"
    assert before.keys() - seen.keys() == set(), "seen before, and gone"


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_kill_between_two_requests(seed: int, tmp_path: Path) -> None:
    game = Game(small(tmp_path / "first"), random.Random(seed))
    first = game.desk
    await first.start()
    await game.sit_down(first)
    await game.play(game.seed.randint(5, 60))
    undecided = {half.identity[0] for _, half in first.broker.halves.undecided.items() if half.identity}
    before = Counter(record.body.decode() for record in delivered(first))

    alive = await go_on(game, first, tmp_path / "second", power_lost=False)

    found = {half.identity[0] for _, half in game.desk.broker.halves.undecided.items() if half.identity}
    assert found == undecided
    await game.play(game.seed.randint(0, 20))
    await settle(game)
    judge(game, alive, before, once=True)
    await game.desk.stop()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_kill_in_the_middle_of_an_end_or_a_question(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is in the log and its op message is not; or the copy is, and the op message of the former is not."""
    game = Game(small(tmp_path / "first"), random.Random(1000 + seed))
    first = game.desk
    await first.start()
    await game.sit_down(first)
    left = game.seed.randint(0, 8)

    def write_op(self: Halves, offset: int) -> Put:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return written(self, offset)

    written = Halves._write_op
    with monkeypatch.context() as patch:
        patch.setattr(Halves, "_write_op", write_op)
        patch.setattr(Commits, "commit", lambda self, ends: 0)  # the fast path writes both at once
        try:
            while len(game.deals) < TRANSACTIONS or left >= 0:
                await game.play(1)
        except (Killed, AssertionError):
            assert left < 0  # an end is answered with an error then, by a process that is already dead
    before = Counter(record.body.decode() for record in delivered(first))

    alive = await go_on(game, first, tmp_path / "second", power_lost=False)
    await settle(game)

    judge(game, alive, before, once=False)
    await game.desk.stop()


@pytest.mark.parametrize("seed", SEEDS)
async def test_power_that_fails(seed: int, tmp_path: Path) -> None:
    """What was published of the progress is borne out by what was on the disk."""
    game = Game(small(tmp_path / "first"), random.Random(2000 + seed), flushes=0.3)
    first = game.desk
    first.config.store.flush_interval_commit_log = first.config.store.flush_commit_log_thorough_interval = 3_600_000
    await first.start()
    await game.sit_down(first)
    await game.play(game.seed.randint(20, 60))
    await game.save()

    alive = await go_on(game, first, tmp_path / "second", power_lost=True)
    asked = await settle(game)

    judge(game, alive, Counter(), once=False)
    committed = {key for key in alive if game.deals[key].truth == COMMIT}
    assert committed <= {record.body.decode() for record in delivered(game.desk)}
    assert asked <= alive
    await game.desk.stop()


async def test_ends_that_went_with_the_power_are_asked_for_again(tmp_path: Path) -> None:
    """The end of K2, on the disk, holds up what is published of the op queue; that of K0, behind it, is not."""
    game = Game(small(tmp_path / "first"), random.Random(7))
    first = game.desk
    first.config.store.flush_interval_commit_log = first.config.store.flush_commit_log_thorough_interval = 3_600_000
    await first.start()
    await game.sit_down(first)
    for _ in range(3):
        await game.send()
    await game.tell(game.deals["K2"])
    first.broker.store.flush()
    await game.tell(game.deals["K0"])
    game.flushes = 0.0
    await game.save()

    await go_on(game, first, tmp_path / "second", power_lost=True, least=True)

    assert await settle(game) == {"K0", "K1"}
    await game.desk.stop()


async def test_ends_that_were_cut_off_are_asked_for_again(tmp_path: Path) -> None:
    """Though the progress of both queues, which says that they are done with, was published."""
    game = Game(small(tmp_path / "first"), random.Random(7), flushes=1.0)
    first = game.desk
    await first.start()
    await game.sit_down(first)
    for _ in range(3):
        await game.send()
    end = first.broker.store.figures().max_offset
    for deal in game.deals.values():
        await game.tell(deal)
    for _ in range(3):
        await game.save()
    await first.stop()
    assert b"TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS" in (first.folder / "store/config/consumerOffset.json").read_bytes()

    assert intend_cut(first.broker.store.config, end, FileSystem()) is not None
    shutil.copytree(first.folder, tmp_path / "second")
    second = small(tmp_path / "second")
    second.now = first.now
    await second.start()
    await game.sit_down(second)
    assert delivered(second) == []
    assert await settle(game) == {"K0", "K1", "K2"}
    await game.desk.stop()


@pytest.mark.parametrize(("planted", "words"), [(True, "rolled back, and seen"), (False, "committed, and not seen")])
async def test_wrong_ends_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: bool, words: str
) -> None:
    """The planted fault: every end commits, or none."""
    game = Game(small(tmp_path / "first"), random.Random(11))
    await game.desk.start()
    await game.sit_down(game.desk)
    decide = Halves.decide
    monkeypatch.setattr(Halves, "decide", lambda self, half, *, commit: decide(self, half, commit=planted))
    await game.play(60)
    await settle(game)
    with pytest.raises(AssertionError, match=words):
        judge(game, set(game.deals), Counter(), once=True)
    await game.desk.stop()
