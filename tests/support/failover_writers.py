"""Operators, consumers and producers of a group that elects its master: their answers are promises as those to sends.

Owns the writers, and what they ask: topics made, by a send too, changed and deleted (17, 310, 215); groups made,
changed and deleted (200, 207); offsets committed with an answer (15), ever higher, and now and then reset (222); locks
for which clients contend (41, 42); delayed messages; transactions that are committed or rolled back (37). Each asks
again, of one broker after the other, until it is answered; changes and commits do so in one case of four only, as one
that is done at last hides whether the one before it was lost. Whatever was not answered at first is changed no more,
as a broker that slept may still do it: a new topic, group or client takes its place. A message whose send was not
answered is not sent again. What was answered stands in ``Promises``, which judges.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from msgspec.structs import astuple

from eruca.protocol.bodies import (
    ConsumerOffsets,
    LockBatchAnswer,
    LockBatchRequest,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from eruca.protocol.queues import MessageQueue
from tests.support import half_messages
from tests.support.failover_load import PATIENCE, Group, connected, hang_up
from tests.support.failover_promises import (
    BrokerTables,
    Promises,
    Register,
    TopicState,
    Value,
    table_differences,
)
from tests.support.half_messages import half, place
from tests.support.load import QUEUES, TOPIC, read
from tests.support.peers import Answered, Peer
from tests.support.sends import message

SEND, COMMIT_OFFSET, MAKE, ALL_TOPICS, END, LOCK, UNLOCK = 310, 15, 17, 21, 37, 41, 42
ALL_OFFSETS, MAKE_GROUP, ALL_GROUPS, DELETE_GROUP, DELETE, RESET = 43, 200, 201, 207, 215, 222
LATER = "Later"
"""The topic of delayed messages and transactions."""
NAMES = 2.5
"""Seconds more for an answer that waits until nameservers know of a topic."""
CHANGES = 8
"""The most changes of one topic or group."""
STEP = 6
"""More than an offset goes on with one commit: consumers are behind producers, and have something to commit when
nothing is acknowledged."""
PREPARED = 10
"""More half messages than are prepared before their transactions are ended."""
CONTENDERS = ("one", "other")
REST = 0.1
"""Seconds between two requests of a writer."""
RESETS = 0.05
"""Of the changes of an offset, how many are resets."""


class Said(NamedTuple):
    """An answer with code 0; ``once`` if nothing else was asked before it."""

    answer: Answered
    asked: float
    once: bool


class Change(NamedTuple):
    """A request that makes, changes or deletes a topic or a group, and what that is by it."""

    what: str
    state: Value
    code: int
    fields: dict[str, object]
    body: bytes = b""


class Writers:
    """The writers under way; they begin with broker ``master``. ``ends`` says up to which offset all of a queue of the
    topic of sends is acknowledged. Of the changes of an offset, ``resets`` are resets."""

    def __init__(
        self,
        group: Group,
        promises: Promises,
        dice: random.Random,
        ends: Callable[[int], int],
        *,
        master: int = 1,
        name: str = "broker-a",
        resets: float = RESETS,
    ) -> None:
        self._group = group
        self._promises = promises
        self._dice = dice
        self._ends = ends
        self._takes = master
        self._name = name
        self._resets = resets
        self._over = False
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        works = [self._operate("topic", self._promises.topics, _topic_change)]
        works += [self._operate("group", self._promises.groups, _group_change)]
        works += [self._wait(), self._transact(), *map(self._commit, range(QUEUES))]
        works += [self._contend(who) for who in CONTENDERS]
        self._tasks = [asyncio.create_task(work) for work in works]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    def _fresh(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    # ------------------------------------------------------------------ requests

    async def _ask(
        self,
        peers: dict[int, Peer],
        code: int,
        fields: dict[str, object],
        body: bytes = b"",
        within: float = PATIENCE,
    ) -> Answered | None:
        """One request to the broker that may be the master; None without an answer."""
        number = self._takes
        try:
            peer = await connected(peers, self._group, number)
            answer = await peer.ask(code, fields, body, within=within)
        except (OSError, EOFError, TimeoutError):
            await hang_up(peers, number)
            answer = None
        if (answer is None or answer.code) and self._takes == number:
            self._takes = number % len(self._group.numbers) + 1
        return answer

    async def _done(
        self,
        peers: dict[int, Peer],
        code: int,
        fields: dict[str, object],
        body: bytes = b"",
        within: float = PATIENCE,
        again: bool = True,
    ) -> Said | None:
        """Ask until it is answered with 0; None if the run is over before, or if it is not asked ``again``."""
        once = True
        while True:
            asked = time.monotonic()
            answer = await self._ask(peers, code, fields, body, within)
            if answer is not None and answer.code == 0:
                return Said(answer, asked, once)
            if self._over or not again:
                return None
            once = False
            await asyncio.sleep(REST)

    def _insists(self) -> bool:
        """Whether a change is asked for until it is answered; else what was answered before is not covered by it."""
        return self._dice.random() < 0.25

    async def _rest(self) -> None:
        await asyncio.sleep(self._dice.uniform(0.5, 1.5) * REST)

    # ------------------------------------------------------------------ topics and groups

    async def _operate(
        self, kind: str, registers: dict[str, Register], choose: Callable[[random.Random, str, bool], Change]
    ) -> None:
        """Make, change and delete one after the other; ``choose`` says how, by its name and whether it is there."""
        peers: dict[int, Peer] = {}
        while not self._over:
            name = self._fresh(kind)
            register = registers[name] = Register()
            for _ in range(self._dice.randrange(1, CHANGES)):
                change = choose(self._dice, name, register.answered is not None)
                if not await self._changed(peers, register, change) or self._over:
                    break
                await self._rest()
        await hang_up(peers)

    async def _changed(self, peers: dict[int, Peer], register: Register, change: Change) -> bool:
        """Make a change; whether another one may follow."""
        register.ask(change.state)
        said = await self._done(peers, change.code, change.fields, change.body, PATIENCE + NAMES, self._insists())
        if said is not None:
            register.answer(change.state, said.asked, time.monotonic(), on_disk=True)
            self._promises.answers[change.what] += 1
        return said is not None and said.once

    # ------------------------------------------------------------------ offsets

    async def _commit(self, queue: int) -> None:
        peers: dict[int, Peer] = {}
        while not self._over:
            group, offset, sound = self._fresh("commits"), 0, True
            register = self._promises.offsets[f"{TOPIC}@{group}/{queue}"] = Register()
            while sound and not self._over:
                await self._rest()
                end = self._ends(queue)
                resets = offset > 0 and self._dice.random() < self._resets
                if not resets and end <= offset:
                    continue
                step = self._dice.randrange(1, STEP)
                offset = self._dice.randrange(offset) if resets else min(offset + step, end)
                sound = await self._moved(peers, group, queue, register, offset, resets=resets)
        await hang_up(peers)

    async def _moved(
        self, peers: dict[int, Peer], group: str, queue: int, register: Register, offset: int, *, resets: bool
    ) -> bool:
        """Commit an offset, or reset it; whether it may be changed again."""
        register.ask(offset)
        if resets:
            fields: dict[str, object] = {"topic": TOPIC, "group": group, "timestamp": 0, "isForce": "true"}
            said = await self._done(peers, RESET, {**fields, "queueId": queue, "offset": offset}, again=self._insists())
        else:
            fields = {"topic": TOPIC, "consumerGroup": group, "queueId": queue, "commitOffset": offset}
            said = await self._done(peers, COMMIT_OFFSET, fields, again=self._insists())
        if said is not None:
            register.answer(offset, said.asked, time.monotonic(), on_disk=resets)
            self._promises.answers["resets" if resets else "commits"] += 1
        return said is not None and said.once

    # ------------------------------------------------------------------ locks

    async def _contend(self, who: str) -> None:
        """Get a queue, renew its lock, release it. The name is another one each time: a release that was not answered
        may still come."""
        peers: dict[int, Peer] = {}
        holds = self._promises.holds
        while not self._over:
            queue, client = self._dice.randrange(2), self._fresh(who)
            for _ in range(self._dice.randrange(1, 20)):
                if not await self._locked(peers, queue, client) or self._over:
                    break
                await self._rest()
            holds.gives_up(_lock_name(queue), client)
            await self._done(peers, UNLOCK, {}, self._lock(queue, client))
            await self._rest()
        await hang_up(peers)

    async def _locked(self, peers: dict[int, Peer], queue: int, client: str) -> bool:
        """Ask for a queue; whether the client has it."""
        holds, name = self._promises.holds, _lock_name(queue)
        said = await self._done(peers, LOCK, {}, self._lock(queue, client))
        if said is None:
            return False
        now = time.monotonic()
        if not LockBatchAnswer.decode(said.answer.body).locked:
            holds.refused(name, client, now)
            return False
        holds.granted(name, client, said.asked, now)
        self._promises.answers["locks"] += 1
        return True

    def _lock(self, queue: int, client: str) -> bytes:
        queues = [MessageQueue(TOPIC, self._name, queue)]
        return LockBatchRequest(client_id=client, consumer_group="ordered", mq_set=queues).encode()

    # ------------------------------------------------------------------ messages that come later

    async def _wait(self) -> None:
        """Send messages with the shortest delay."""
        peers: dict[int, Peer] = {}
        while not self._over:
            key = self._fresh("delayed")
            fields = message(LATER, self._dice.randrange(QUEUES), i=f"DELAY\x011\x02UNIQ_KEY\x01{key}")
            answer = await self._ask(peers, SEND, fields, key.encode())
            if answer is not None and answer.code == 0:
                self._promises.owed.add(key.encode())
                self._promises.answers["delayed"] += 1
            await self._rest()
        await hang_up(peers)

    async def _transact(self) -> None:
        """Send some half messages, and end their transactions; an end that was not answered is asked for again.

        Where nothing is confirmed ends can be asked for, too: those of messages that were prepared before.
        """
        peers: dict[int, Peer] = {}
        while not self._over:
            ready: dict[str, dict[str, object]] = {}
            for _ in range(self._dice.randrange(1, PREPARED)):
                key, queue = self._fresh("half"), self._dice.randrange(QUEUES)
                prepared = await self._ask(peers, SEND, half(key, b=LATER, e=queue), key.encode())
                if prepared is not None and prepared.code == 0:
                    ready[key] = place(prepared)
            for key, where in ready.items():
                await self._rest()
                await self._end(peers, key, where)
            await self._rest()
        await hang_up(peers)

    async def _end(self, peers: dict[int, Peer], key: str, where: dict[str, object]) -> None:
        commits = self._dice.random() < 0.8
        state = half_messages.COMMIT if commits else half_messages.ROLLBACK
        fields = {"producerGroup": "PG", "msgId": key, "fromTransactionCheck": "false"}
        if await self._done(peers, END, {**fields, "commitOrRollback": state, **where}) is not None:
            (self._promises.owed if commits else self._promises.rolled_back).add(key.encode())
            self._promises.answers["transactions"] += 1


def _topic_change(dice: random.Random, name: str, there: bool) -> Change:
    if there and dice.random() < 0.2:
        return Change("topics deleted", None, DELETE, {"topic": name})
    if not there and dice.random() < 0.3:
        fields = message(name, i="")
        return Change("topics made by a send", TopicState(4, 4, 6, "SINGLE_TAG"), SEND, fields, b"makes its topic")
    state = _any_topic(dice)
    return Change("topics set", state, MAKE, _settings(name, state))


def _group_change(dice: random.Random, name: str, there: bool) -> Change:
    if there and dice.random() < 0.2:
        return Change("groups deleted", None, DELETE_GROUP, {"groupName": name})
    config = SubscriptionGroupConfig(
        group_name=name, retry_max_times=dice.randrange(1, 99), consume_enable=dice.random() < 0.5
    )
    return Change("groups set", astuple(config), MAKE_GROUP, {}, config.encode())


def _any_topic(dice: random.Random) -> TopicState:
    return TopicState(
        dice.randrange(1, 9), dice.randrange(1, 9), dice.choice((2, 4, 6)), dice.choice(("SINGLE_TAG", "MULTI_TAG"))
    )


def _settings(name: str, state: TopicState) -> dict[str, object]:
    return {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": state.read_queues,
        "writeQueueNums": state.write_queues,
        "perm": state.perm,
        "topicFilterType": state.filter_type,
        "topicSysFlag": 0,
        "order": "false",
    }


def _lock_name(queue: int) -> str:
    return f"queue {queue}"


# ---------------------------------------------------------------------- in the end


async def tables_of(group: Group, within: float = 30.0) -> dict[int, BrokerTables]:
    """What all brokers have, when it is the same at each of them, or when the time is over."""
    until = time.monotonic() + within
    while True:
        found = {number: await _tables(group.address(number)) for number in group.numbers}
        if not table_differences(found) or time.monotonic() > until:
            return found
        await asyncio.sleep(0.1)


async def _tables(address: str) -> BrokerTables:
    peer = await Peer().connect(address)
    try:
        topics, offsets, groups = [await peer.ask(code, {}) for code in (ALL_TOPICS, ALL_OFFSETS, ALL_GROUPS)]
    finally:
        await peer.close()
    configs = TopicConfigSerializeWrapper.decode(topics.body).topic_config_table.values()
    return BrokerTables(
        {
            each.topic_name: TopicState(each.read_queue_nums, each.write_queue_nums, each.perm, each.topic_filter_type)
            for each in configs
        },
        {
            f"{key}/{queue}": offset
            for key, queues in ConsumerOffsets.decode(offsets.body).offset_table.items()
            for queue, offset in queues.items()
        },
        {
            name: astuple(config)
            for name, config in SubscriptionGroupWrapper.decode(groups.body).subscription_group_table.items()
        },
    )


async def came_later(address: str, promises: Promises, within: float = 30.0) -> list[bytes]:
    """The bodies of all delayed messages and committed transactions, when all that were acknowledged are there, or when
    the time is over."""
    until = time.monotonic() + within
    while True:
        bodies = [body for messages in (await read(address, topic=LATER)).values() for _, body in messages]
        if not promises.missing(bodies) or time.monotonic() > until:
            return bodies
        await asyncio.sleep(0.2)
