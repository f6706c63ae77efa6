"""The faults of tests/faults against Apache RocketMQ 4.9.7 and Eruca: `python -m tests.bench.durability`.

    FAULT ...        these only: killed, stopped, power, posix, cut, flipped; all by default. The power fails below a
                     disk that keeps its names and lengths with the next fsync, as ext4 does, or (posix) only what POSIX
                     promises
    --of SYSTEM      only apache or only eruca
    --rounds N       rounds of each fault, default 5; so many times three of the last two

Same settings, same load (a producer has one send to a queue under way: RocketMQ keeps no order among more), same
history and same faults for both; prints a row of a Markdown table for each, and the
docs (docs/durability.md) keep them. What is lost is counted, not judged: a broker that cannot be started any more loses
nothing by that count, and is counted as refused; it goes on with an empty store. A power loss stops the broker first
(SIGSTOP), so that no acknowledgement counts that came after it. Needs Java 17, Maven and, for the power losses, FUSE.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.disks import LossyDisk
from tests.support.history import History, holes, judge
from tests.support.java import LONG_LIFE
from tests.support.load import QUEUES, TOPIC, Load, read
from tests.support.lone import SMALL, LoneBroker
from tests.support.peers import Peer
from tests.support.processes import NotReady, Process
from tests.support.programme import SEED

RELEASE = "4.9.7"
MESSAGES = 3000
CREATE_TOPIC, ALL_TOPICS = 17, 21
SYNC = {"flushDiskType": "SYNC_FLUSH"}
ASYNC = {"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "100", "flushCommitLogLeastPages": "0"}


class Running(NamedTuple):
    """A broker under way."""

    process: Process
    address: str


class System:
    """How the brokers of one system are started; each store is at a folder of its own."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self._name_server = ApacheNameServer(RELEASE, home / "namesrv") if name == "apache" else None

    async def start(self, store: Path, settings: Mapping[str, str]) -> Running:
        """Raises NotReady where the broker refuses that store."""
        return await asyncio.to_thread(self._start, store, settings)

    def _start(self, store: Path, settings: Mapping[str, str]) -> Running:
        if self._name_server is None:
            eruca = LoneBroker(self.home, store, settings)
            return Running(eruca, eruca.address)
        small = {key: value for key, value in SMALL.items() if key not in ("listenPort", "brokerIP1")}
        places = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
        properties = {**small, **places, **settings}
        apache = ApacheBroker(RELEASE, self.home, self._name_server.address, properties, options=LONG_LIFE)
        return Running(apache.process, apache.address)

    def stop(self) -> None:
        if self._name_server is not None:
            self._name_server.stop()


class Book:
    """What one fault came to, over all its rounds and all stores they needed."""

    def __init__(self) -> None:
        self.rounds = 0
        self.acknowledged = 0
        self.seen: Counter[str] = Counter()
        self.slowest: dict[str, float] = {}
        self.most_lost = 0
        """Messages that one fault cost."""
        self.history = History()

    def took(self, what: str, seconds: float) -> None:
        self.slowest[what] = max(self.slowest.get(what, 0.0), seconds)

    async def look(self, address: str) -> None:
        """Compare what the broker has with all that was acknowledged since its store was new."""
        if not await has_topic(address):
            self.seen["topic gone"] += 1
            await make_topic(address)
        found = await read(address)
        lost = self.history.missing(found)
        self.seen["lost"] += len(lost)
        self.seen["lost with later ones still there"] += len(holes(self.history, found))
        self.seen["strange or out of order"] += len(judge(self.history, found, lambda told: True))
        for place in lost:
            del self.history.told[place]

    def refused(self, why: NotReady) -> None:
        """The store could not be opened again; the next one is new."""
        self.seen["starts refused"] += 1
        print(f"    refused: {str(why).splitlines()[0]} {str(why)[-200:]!r}", flush=True)
        self.renew()

    def renew(self) -> None:
        self.acknowledged += self.history.acknowledged
        self.history = History()

    def say(self, system: System, fault: str) -> None:
        self.renew()
        seen = ", ".join(f"{count} {what}" for what, count in self.seen.items() if count) or "nothing lost"
        took = "".join(f", {what} at most {seconds:.1f} s" for what, seconds in self.slowest.items())
        took += f", at most {self.most_lost} at once" if self.most_lost else ""
        print(f"| {fault} | {system.name} | {self.rounds} | {self.acknowledged:,} | {seen}{took} |", flush=True)


async def has_topic(address: str) -> bool:
    peer = await Peer().connect(address)
    try:
        return f'"{TOPIC}"'.encode() in (await peer.ask(ALL_TOPICS, within=30)).body
    finally:
        await peer.close()


async def make_topic(address: str) -> None:
    peer = await Peer().connect(address)
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    assert (await peer.ask(CREATE_TOPIC, fields, within=30)).code == 0
    await peer.close()


async def killed(system: System, rounds: int, mode: Mapping[str, str]) -> None:
    """kill -9 under load, on one store."""
    dice, book = random.Random(f"{SEED}/killed"), Book()
    store = system.home / "store"
    broker = await system.start(store, mode)
    try:
        for _ in range(rounds):
            async with Load(broker.address, book.history, under_way=1, padding=dice.randrange(400)) as load:
                await load.until(dice.randrange(1, 3000), within=60)
                broker.process.kill()
            book.rounds += 1
            begin = time.monotonic()
            try:
                broker = await system.start(store, mode)
                book.took("start", time.monotonic() - begin)
                await book.look(broker.address)
            except NotReady as why:
                book.refused(why)
                shutil.rmtree(store)
                broker = await system.start(store, mode)
    finally:
        broker.process.kill()
    book.say(system, f"kill -9, {mode['flushDiskType']}")


async def stopped(system: System, rounds: int) -> None:
    """SIGTERM under load, on one store."""
    dice, book = random.Random(f"{SEED}/stopped"), Book()
    store = system.home / "store"
    broker = await system.start(store, {})
    try:
        for _ in range(rounds):
            async with Load(broker.address, book.history, under_way=1, padding=dice.randrange(400)) as load:
                await load.until(dice.randrange(1, 1500), within=60)
                begin = time.monotonic()
                broker.process.signal(signal.SIGTERM)
                await asyncio.to_thread(broker.process.wait, 60)
                book.took("stop", time.monotonic() - begin)
            book.rounds += 1
            book.seen["needs recovery"] += (store / "abort").exists()
            broker = await system.start(store, {})
            await book.look(broker.address)
    finally:
        broker.process.kill()
    book.say(system, "SIGTERM under load")


async def power(system: System, rounds: int, mode: Mapping[str, str], how: str, *, journal: bool) -> None:
    """The power fails under load; a new store after one that cannot be opened."""
    dice, book = random.Random(f"{SEED}/power"), Book()
    with LossyDisk(system.home / "disk", journal=journal) as disk:
        stores = (disk.folder / f"store{number}" for number in range(1_000_000))
        store = next(stores)
        broker = await system.start(store, mode)
        try:
            for _ in range(rounds):
                async with Load(broker.address, book.history, under_way=1, padding=dice.randrange(300)) as load:
                    await load.until(dice.randrange(100, 1000), within=120)
                    await asyncio.to_thread(freeze, broker.process)
                    disk.tell("off", dice.randrange(1 << 30), how)
                    await asyncio.to_thread(broker.process.kill)
                disk.come_back()
                book.rounds += 1
                try:
                    broker = await system.start(store, mode)
                    await book.look(broker.address)
                except NotReady as why:
                    book.refused(why)
                    store = next(stores)
                    broker = await system.start(store, mode)
        finally:
            broker.process.kill()
    kind = "as ext4" if journal else "as POSIX"
    book.say(system, f"power loss {kind}, {mode['flushDiskType']}, unsynced data {'lost' if how == 'drop' else 'torn'}")


def freeze(process: Process) -> None:
    """Stop each of its threads."""
    process.signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")
    while any(task.read_text().rpartition(")")[2].split()[0] not in "TZ" for task in tasks.glob("*/stat")):
        time.sleep(0.001)


async def model(system: System) -> History:
    """A store of ``MESSAGES`` at least, stopped in order."""
    history = History()
    broker = await system.start(system.home / "model", {})
    async with Load(broker.address, history, producers=1) as load:
        await load.until(MESSAGES, within=120)
        await load.drained()
    await asyncio.to_thread(broker.process.stop, 60)
    return history


def copied(system: System, book: Book, history: History, number: int) -> Path:
    """A copy of the model's store to be damaged, and what is known of it; each second one was not stopped in order."""
    book.history.told, book.history.acknowledged = dict(history.told), history.acknowledged
    damaged = system.home / "damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(system.home / "model", damaged)
    if number % 2:
        (damaged / "abort").touch()
    return damaged


async def opened(system: System, book: Book, damaged: Path) -> None:
    """Start on a damaged store, read all of it, end."""
    book.rounds += 1
    try:
        broker = await system.start(damaged, {})
    except NotReady:
        book.seen["starts refused"] += 1
        return
    try:
        found = await read(broker.address, check=False) if await has_topic(broker.address) else None
    finally:
        broker.process.kill()
    if found is None:
        book.seen["topic gone"] += 1
        return
    there = places(found)
    wrong = [place for place, body in there.items() if (told := book.history.told.get(place)) and told.body != body]
    lost = book.history.told.keys() - there
    book.seen["messages with a wrong body delivered"] += len(wrong)
    book.seen["lost"] += len(lost)
    book.seen["times more than one lost"] += len(lost) > 1
    book.most_lost = max(book.most_lost, len(lost))


def places(found: Mapping[int, list[tuple[int, bytes]]]) -> dict[tuple[int, int], bytes]:
    return {(queue, offset): body for queue, messages in found.items() for offset, body in messages}


async def cut(system: System, rounds: int) -> None:
    """The log shortened somewhere in its last three records, or zeros from there on."""
    history = await model(system)
    for how in ("short", "zeros"):
        dice, book = random.Random(f"{SEED}/cut/{how}"), Book()
        for number in range(rounds):
            damaged = copied(system, book, history, number)
            log = sorted((damaged / "commitlog").iterdir())[0]
            size, used = log.stat().st_size, len(log.read_bytes().rstrip(b"\0"))
            with log.open("r+b") as file:
                file.truncate(used - dice.randrange(1, 600))
                if how == "zeros":
                    file.truncate(size)
            await opened(system, book, damaged)
        book.say(system, f"commit log cut in its last three records: {how}")


async def flipped(system: System, rounds: int) -> None:
    """One bit flipped in the used part of a file."""
    history = await model(system)
    for part in ("commitlog", "consumequeue", "config/topics.json"):
        dice, book = random.Random(f"{SEED}/flipped/{part}"), Book()
        for number in range(rounds):
            damaged = copied(system, book, history, number)
            place = damaged / part
            file = dice.choice(sorted(path for path in place.rglob("*") if path.is_file()) or [place])
            data = bytearray(file.read_bytes())
            bit = dice.randrange(len(bytes(data).rstrip(b"\0")) * 8 or 8)
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            await opened(system, book, damaged)
        book.say(system, f"one bit flipped in {part}")


async def both_modes(system: System, rounds: int) -> None:
    for mode in (ASYNC, SYNC):
        await killed(system, rounds, mode)
        shutil.rmtree(system.home / "store")


async def each_power(system: System, rounds: int, *, journal: bool) -> None:
    for mode in (SYNC, ASYNC):
        for how in ("drop", "torn"):
            await power(system, rounds, mode, how, journal=journal)
            (system.home / "disk").rmdir()


FAULTS: dict[str, Callable[[System, int], Awaitable[None]]] = {
    "killed": both_modes,
    "stopped": stopped,
    "power": partial(each_power, journal=True),
    "posix": partial(each_power, journal=False),
    "cut": lambda system, rounds: cut(system, 3 * rounds),
    "flipped": lambda system, rounds: flipped(system, 3 * rounds),
}


async def run(faults: list[str], systems: list[str], rounds: int) -> None:
    """Print the table, row by row."""
    print(f"ERUCA_SEED={SEED}\n| fault | system | rounds | acknowledged | what came of it |\n|---|---|---|---|---|")
    for fault in faults:
        for name in systems:
            with tempfile.TemporaryDirectory(prefix=f"{fault}-{name}-") as home:
                system = System(name, Path(home))
                try:
                    await FAULTS[fault](system, rounds)
                finally:
                    system.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Faults against Apache RocketMQ 4.9.7 and Eruca, side by side.")
    parser.add_argument("faults", nargs="*", default=list(FAULTS), metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--of", choices=["apache", "eruca"], help="only this system")
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    if unknown := set(wanted.faults) - FAULTS.keys():
        parser.error(f"there is no fault {', '.join(sorted(unknown))}; choose of {', '.join(FAULTS)}")
    asyncio.run(run(wanted.faults, [wanted.of] if wanted.of else ["apache", "eruca"], wanted.rounds))


if __name__ == "__main__":
    main()
