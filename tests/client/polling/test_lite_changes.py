"""What a lite pull consumer wants becomes another thing while it polls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from eruca.client import MessageQueue
from eruca.client.errors import BrokerRefused, StateError
from eruca.client.polling.lite_pull_consumer import membership_of
from tests.client.conftest import Lab, eventually
from tests.client.polled import ONE, QUEUES, bodies, fill, lite, poll, waiting


async def test_another_filter_holds_at_once(lab: Lab) -> None:
    """Also for a pull that the broker holds by the old one; what was handed out remains to be settled."""
    await fill(lab, 5, tags="A")
    async with lite(lab).subscribe("T", "A") as consumer:
        assert bodies(await consumer.poll()) == [0, 1, 2, 3, 4]
        consumer.subscribe("T", "B")
        await fill(lab, 5, start=5, tags="A")
        await fill(lab, 5, start=10, tags="B")
        await eventually(lambda: waiting(consumer) > 0)
        rebalance = membership_of(consumer).rebalance
        assert rebalance is not None
        rebalance.store_positions()
        await lab.stores("g", "T", [0, 0, 0, 0])  # nobody asked for more yet
        assert bodies(await poll(consumer, 5)) == [10, 11, 12, 13, 14]
        await consumer.commit_sync()
    assert (await lab.offsets("g", "T"))[0] == 15


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_what_waits_is_chosen_anew(lab: Lab, auto_commit: bool) -> None:
    for number in range(10):
        await fill(lab, 1, start=number, tags="AB"[number % 2])
    async with lite(lab, auto_commit=auto_commit, pull_batch_size=1).subscribe("T", "A") as consumer:
        assert bodies(await poll(consumer, 2)) == [0, 2]
        await consumer.commit_sync()
        await eventually(lambda: waiting(consumer) == 3)
        consumer.subscribe("T", "A || B")
        assert bodies(await poll(consumer, 6)) == [4, 5, 6, 7, 8, 9]
        consumer.subscribe("T", "A || B", listener=lambda *_: None)
        await consumer.commit_sync()
    assert (await lab.offsets("g", "T"))[0] == 10


# ---------------------------------------------------------------------- commits by hand


async def test_a_part_that_is_committed_stays_so_until_more_is_asked_for(lab: Lab) -> None:
    """With auto-commit, too: neither its timer nor a stop says that the rest is consumed."""
    await fill(lab, 10)
    async with lite(lab).subscribe("T") as consumer:
        await poll(consumer, 10)
        await consumer.commit_sync({ONE: 3})
        assert await consumer.committed(ONE) == 3
    assert (await lab.offsets("g", "T"))[0] == 3
    async with lite(lab).subscribe("T") as consumer:
        assert bodies(await poll(consumer, 7)) == [3, 4, 5, 6, 7, 8, 9]
        await consumer.commit_sync({ONE: 5})
        await consumer.poll(0)
    assert (await lab.offsets("g", "T"))[0] == 10


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_an_offset_of_a_queue_that_was_just_assigned_is_stored(lab: Lab, auto_commit: bool) -> None:
    await fill(lab, 10)
    async with lite(lab, auto_commit=auto_commit) as consumer:
        consumer.assign([ONE])
        await consumer.commit_sync({ONE: 4})
        assert (await lab.offsets("g", "T"))[0] == 4
        rebalance = membership_of(consumer).rebalance
        assert rebalance is not None
        readers = rebalance.readers
        await eventually(lambda: ONE in readers)
        await consumer.commit_sync({ONE: 5})
    assert (await lab.offsets("g", "T"))[0] == 5


async def test_a_seek_does_not_undo_what_was_committed_by_hand(lab: Lab) -> None:
    await fill(lab, 10)
    async with lite(lab, auto_commit=False).subscribe("T") as consumer:
        await poll(consumer, 10)
        await consumer.commit_sync({ONE: 4}, persist=False)
        await consumer.seek(ONE, 8)
        assert await consumer.committed(ONE) == 4
        assert bodies(await poll(consumer, 2)) == [8, 9]
    assert (await lab.offsets("g", "T"))[0] == 4


async def test_a_seek_after_a_reset_holds(lab: Lab) -> None:
    """The reset has not begun its run yet, as a rebalance is under way; its offset does not come back later."""
    await fill(lab, 20)
    async with lite(lab).subscribe("T") as consumer:
        await poll(consumer, 20)
        rebalance = membership_of(consumer).rebalance
        assert rebalance is not None
        turn = rebalance.turn
        async with turn:
            rebalance.wake()
            await eventually(lambda: "waiters:1" in repr(turn))  # the next round, and no other comes before it is over
            seeking = asyncio.create_task(consumer.seek(ONE, 15))
            await eventually(lambda: "waiters:2" in repr(turn))
            membership_of(consumer).reset("T", {ONE: 2})
        await seeking
        assert bodies(await poll(consumer, 5)) == [15, 16, 17, 18, 19]
        await consumer.commit_sync()
    assert (await lab.offsets("g", "T"))[0] == 20


# ---------------------------------------------------------------------- listeners, and the end


async def test_a_listener_hears_of_shares_one_after_the_other(lab: Lab) -> None:
    await fill(lab, 1)
    heard: list[int] = []
    second = threading.Event()

    def listener(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        if len(mine) == 4 and not heard:
            second.wait(10)
        heard.append(len(mine))

    async with lite(lab).subscribe("T", listener=listener) as first, lite(lab).subscribe("T") as other:
        await eventually(lambda: len(first.assignment()) == len(other.assignment()) == 2)
        assert heard == []
        second.set()
        await eventually(lambda: heard == [4, 2])


async def test_a_stop_that_is_cancelled_leaves_the_group_all_the_same(lab: Lab) -> None:
    await fill(lab, 5)
    consumer = lite(lab).subscribe("T")
    await consumer.start()
    await poll(consumer, 5)
    await consumer.poll(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await consumer.stop()
    await consumer.stop()
    await nobody_is_there(lab)
    assert (await lab.offsets("g", "T"))[0] == 5


async def test_a_stop_while_it_starts_wins(lab: Lab) -> None:
    await fill(lab, 1)
    stopping: list[asyncio.Task[None]] = []

    def strategy(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> Sequence[MessageQueue]:
        stopping.append(asyncio.ensure_future(consumer.stop()))
        return queues

    consumer = lite(lab, strategy=strategy).subscribe("T")
    await consumer.start()
    await stopping[0]
    assert not consumer.is_running and "Rebalance.run" not in repr(asyncio.all_tasks())
    await nobody_is_there(lab)


async def test_another_thread_changes_nothing(lab: Lab) -> None:
    await fill(lab, 1)
    async with lite(lab).subscribe("T") as consumer:
        for change in (partial(consumer.subscribe, "U"), partial(consumer.unsubscribe, "T")):
            with pytest.raises(StateError, match=r"in threads use eruca\.client\.sync"):
                await asyncio.to_thread(change)
        assert set(membership_of(consumer).subscriptions) == {"T"}


async def test_a_listener_may_stop_its_consumer(lab: Lab) -> None:
    await fill(lab, 1)
    consumer = lite(lab)

    async def listener(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        await consumer.stop()

    await consumer.subscribe("T", listener=listener).start()
    await eventually(lambda: not consumer.is_running)
    async with asyncio.timeout(10):
        await consumer.stop()
    await nobody_is_there(lab)


async def test_a_pause_ends_when_the_queue_goes_to_another_member(lab: Lab) -> None:
    for queue in QUEUES:
        await fill(lab, 1, queue)
    async with lite(lab).subscribe("T") as consumer:
        await poll(consumer, 4)
        await consumer.commit_sync()
        consumer.pause(QUEUES)
        async with lite(lab).subscribe("T") as other:
            await eventually(lambda: len(consumer.assignment()) == len(other.assignment()) == 2)
            kept, given = sorted(consumer.assignment()), sorted(other.assignment())
        await eventually(lambda: len(consumer.assignment()) == 4)
        await fill(lab, 1, given[0], start=7)
        assert bodies(await poll(consumer, 1)) == [7]
        await fill(lab, 1, kept[0], start=8)
        assert bodies(await poll(consumer, 1)) == [8], "by the pull that the broker held"
        await fill(lab, 1, kept[0], start=9)
        assert bodies(await consumer.poll(0.3)) == [], "still paused"
        consumer.resume(kept)
        assert bodies(await poll(consumer, 1)) == [9]


async def nobody_is_there(lab: Lab) -> None:
    with pytest.raises(BrokerRefused, match="no consumer for this group, g"):
        await lab.puller.session.members("g", "T")
