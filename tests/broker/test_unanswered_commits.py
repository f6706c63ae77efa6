"""Offsets that are committed without an answer: the brokers of a group have them within a second.

Each commit is made just after a heartbeat, which took the last one along, and so has the longest way. What the machine
takes away meanwhile does not count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.broker.elected import Group
from tests.broker.services.replication.pairs import until
from tests.support.desk import Desk
from tests.support.peers import Peer
from tests.support.sends import message
from tests.support.stopwatch import Stopwatch

SEND, PULL, COMMIT = 310, 11, 15
Committing = Callable[[Peer, int], Awaitable[None]]
WITHIN = 1.0
"""Seconds that docs/replication.md promises."""


async def by_a_pull(peer: Peer, offset: int) -> None:
    """Let a pull commit an offset along the way."""
    fields = {
        **{"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "5"},
        **{"commitOffset": offset, "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"},
    }
    assert (await peer.ask(PULL, fields)).code == 0


async def one_way(peer: Peer, offset: int) -> None:
    """Commit an offset by a request that wants no answer, as Java's consumers do."""
    peer.tell(COMMIT, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": offset})


@pytest.mark.parametrize("commit", [by_a_pull, one_way])
async def test_a_commit_without_an_answer_is_on_all_of_the_set_within_a_second(
    group: Group, commit: Committing
) -> None:
    one, two, three = [await group.start(number) for number in (1, 2, 3)]
    assert await group.led({1, 2, 3}) is one
    one.topic("T", 1)
    assert (await one.ask(SEND, message(), b"x")).code == 0
    took = [await _arrives(commit, one, offset, two, three) for offset in (1, 2, 3)]
    print(took)
    assert max(took) <= WITHIN


async def _arrives(commit: Committing, one: Desk, offset: int, *others: Desk) -> float:
    """For how long the other brokers lacked what was committed, in seconds."""

    def known_by(*desks: Desk) -> bool:
        return all(desk.broker.offsets.query("G", "T", 0) == offset for desk in desks)

    await commit(one.operator, offset)
    await until(lambda: known_by(one))
    with Stopwatch() as watch:
        await until(lambda: known_by(*others))
    return watch.seconds
