"""The mastership goes from broker to broker: under real producers with default settings no send fails, and who was the
master passes on what is still sent to it."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from eruca.client import ClientSettings, Message, Producer
from eruca.client.selectors import by_hash
from eruca.protocol.bodies import LockBatchAnswer, LockBatchRequest
from eruca.protocol.queues import MessageQueue
from tests.support.etcd import needs_etcd
from tests.support.failover_cluster import FailoverCluster, bodies
from tests.support.peers import Answered, Peer
from tests.support.sends import message

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow]

SWITCHES = 5


class Sends:
    """Senders that each wait for an answer before they go on; half of them send by a selector, in order."""

    def __init__(self, producer: Producer) -> None:
        self.bodies: list[bytes] = []
        self.faults: list[str] = []
        self.longest = 0.0
        self.over = False
        self._producer = producer

    async def go_on(self, sender: int) -> None:
        for number in itertools.count():
            if self.over:
                return
            message = Message("T", b"sender %d %d" % (sender, number))
            begun = time.monotonic()
            try:
                if sender % 2:
                    await self._producer.send(message)
                else:
                    await self._producer.send(message, selector=by_hash, arg=f"order-{sender}")
                self.bodies.append(message.body)
            except Exception as fault:  # whatever it is: it is told in the end
                self.faults.append(repr(fault))
            self.longest = max(self.longest, time.monotonic() - begun)


async def test_no_send_fails_while_the_mastership_is_handed_over_again_and_again(tmp_path: Path) -> None:
    async with FailoverCluster(tmp_path, 3) as group:
        await group.send()
        await group.all_in_set()
        pauses, master = [], 1
        async with Producer("P", settings=ClientSettings(nameserver=group.names.address)) as producer:
            sends = Sends(producer)
            running = [asyncio.create_task(sends.go_on(sender)) for sender in range(4)]
            for _ in range(SWITCHES):
                master = master % 3 + 1
                sends.longest = 0.0
                await group.hand_over(master)
                await group.all_in_set()
                pauses.append(sends.longest)
            sends.over = True
            await asyncio.gather(*running)
        assert sends.faults == []
        relayed = [await group.figure(number, "relayed") for number in group.numbers]
        (log, *others) = (await group.logs()).values()
        assert {*others} == {log}
    found = [body for body in bodies(log) if body.startswith(b"sender")]
    assert set(sends.bodies) <= set(found) and len(found) == len(set(found)), "none is lost, none is there twice"
    for sender in (0, 2):
        mine = [body for body in found if body.startswith(b"sender %d " % sender)]
        assert mine == [b"sender %d %d" % (sender, number) for number in range(len(mine))]
    assert sum(map(int, relayed)) > 0
    assert max(pauses) <= 1.0
    print(f"{len(found):,} sends, relayed {relayed}; pauses of {', '.join(f'{each:.2f}' for each in pauses)} s")


async def follows(group: FailoverCluster, number: int) -> None:
    """Wait until a broker follows the master, after it has started again where its log was to be cut off."""
    await group.all_in_set()
    async with asyncio.timeout(30):
        while True:
            with suppress(OSError, EOFError, TimeoutError):
                if await group.figure(number, "groupState") == "following":
                    return
            await group.hang_up(number)
            await asyncio.sleep(0.05)


async def test_a_master_that_slept_acknowledges_nothing_alone_and_then_passes_on_what_is_sent_to_it(
    tmp_path: Path,
) -> None:
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        asleep = group.brokers[1]
        fields = message(i="")
        peer = await Peer().connect(asleep.address)
        asleep.signal(signal.SIGSTOP)
        waiting = {b"asleep %d" % number: peer.ask(310, fields, b"asleep %d" % number) for number in range(50)}
        sending = asyncio.gather(*waiting.values(), return_exceptions=True)
        assert await group.send() == 2
        asleep.signal(signal.SIGCONT)
        answers = dict(zip(waiting, await sending, strict=True))
        await peer.close()
        codes = {body: answer.code for body, answer in answers.items() if isinstance(answer, Answered)}
        assert set(codes.values()) <= {0, 14}
        taken = [body for body, code in codes.items() if code == 0]

        await follows(group, 1)
        assert (await group.ask(1, 310, fields, b"passed on")).code == 0
        assert await group.figure(1, "relayed") != "0"
        group.kill(1)
        await group.hang_up(1)
        assert await group.send() == 2
        await group.start(1)
        await follows(group, 1)
        await group.all_in_set()
        (log, *others) = (await group.logs()).values()
        assert {*others} == {log}
    found = bodies(log)
    assert [body for body in (*group.acknowledged, *taken, b"passed on") if found.count(body) != 1] == []
    print(f"of {len(answers)} sends while it slept {len(taken)} were taken, and {len(codes)} answered")


TAKEN = range(10)
"""Queues that a client locks at the new master while the former one sleeps."""
QUEUES = range(20)
LOCK, COMMIT, MAKE, GET_TOPIC, GET_OFFSET = 41, 15, 17, 351, 14


def locking(client: str, queues: Iterable[int]) -> bytes:
    """The body of a 41."""
    wanted = [MessageQueue("T", "broker-a", queue) for queue in queues]
    return LockBatchRequest(client_id=client, consumer_group="G", mq_set=wanted).encode()


def locked(answer: Answered | BaseException) -> set[int]:
    """The queues that an answer grants."""
    if not isinstance(answer, Answered) or answer.code:
        return set()
    return {each.queue_id for each in LockBatchAnswer.decode(answer.body).locked}


async def asked_at_once(peer: Peer, first: int) -> tuple[set[int], set[int], set[int]]:
    """Ask for a lock, an offset and a topic for every other queue; those of which success was answered."""
    numbers = QUEUES[first::2]
    topic: dict[str, object] = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "defaultTopic": "TBW102"}
    offset: dict[str, object] = {"consumerGroup": "G", "topic": "T"}
    asks: list[tuple[int, dict[str, object], bytes]] = [(LOCK, {}, locking("former", [number])) for number in numbers]
    asks += [(COMMIT, {**offset, "queueId": number, "commitOffset": number + 1}, b"") for number in numbers]
    asks += [(MAKE, {**topic, "topic": f"Made{number}"}, b"") for number in numbers]
    answers = await asyncio.gather(*(peer.ask(*each, within=60) for each in asks), return_exceptions=True)
    done = [isinstance(each, Answered) and each.code == 0 for each in answers]
    count = len(numbers)
    granted = set().union(*map(locked, answers[:count]))
    committed, made = done[count : 2 * count], done[2 * count :]
    return granted, {*itertools.compress(numbers, committed)}, {*itertools.compress(numbers, made)}


async def test_what_a_master_that_slept_answers_of_locks_offsets_and_topics_is_what_the_next_one_has(
    tmp_path: Path,
) -> None:
    """Half of it was asked while it slept, the other half as soon as it woke."""
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        peers = [await Peer().connect(group.brokers[1].address) for _ in range(2)]
        group.brokers[1].signal(signal.SIGSTOP)
        asleep = asyncio.create_task(asked_at_once(peers[0], 0))
        assert await group.send() == 2
        taken: set[int] = set()
        async with asyncio.timeout(30):
            while taken != {*TAKEN}:
                taken |= locked(await group.ask(2, LOCK, {}, locking("next", TAKEN)))
        group.brokers[1].signal(signal.SIGCONT)
        awake = [await asked_at_once(peers[1], 1)]
        while not awake[-1][0] and len(awake) < 50:  # until it passes on what it is asked
            awake.append(await asked_at_once(peers[1], 1))
        answers = [await asleep, *awake]
        granted, committed, made = (set().union(*kind) for kind in zip(*answers, strict=True))
        for peer in peers:
            await peer.close()
        assert granted.isdisjoint(taken), "two have a queue"
        strange = locked(await group.ask(2, LOCK, {}, locking("stranger", QUEUES)))
        assert strange.isdisjoint(granted | taken), "a lock that was granted is free"
        for number in committed:
            asked = {"consumerGroup": "G", "topic": "T", "queueId": number}
            assert (await group.ask(2, GET_OFFSET, asked)).fields["offset"] == str(number + 1)
        for number in made:
            assert (await group.ask(2, GET_TOPIC, {"topic": f"Made{number}"})).code == 0
        await group.all_in_set()
    print(f"granted {sorted(granted)}, committed {sorted(committed)}, made {sorted(made)}, {len(awake)} rounds awake")


async def test_a_master_that_was_killed_and_is_back_passes_on_what_is_sent_to_it(tmp_path: Path) -> None:
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        group.kill(1)
        await group.hang_up(1)
        assert await group.send() == 2
        await group.start(1)
        await follows(group, 1)
        assert (await group.ask(1, 310, message(i=""), b"passed on")).code == 0
        assert await group.figure(1, "relayed") == "1"
        await group.all_in_set()
        (log, *others) = (await group.logs()).values()
        assert {*others} == {log} and bodies(log).count(b"passed on") == 1
