"""Ends of transactions (37) and requests to ask again (323), while another broker of the set lacks what they wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.broker.elected import Group
from tests.support import half_messages
from tests.support.desk import Desk
from tests.support.half_messages import COMMIT, RESUME, ROLLBACK, half
from tests.support.peers import Answered

SEND, GET_END = 310, 30
Asking = Callable[[Desk, Answered], Awaitable[Answered]]


async def asks_again(one: Desk, sent: Answered) -> Answered:
    """Have the half message checked again."""
    return await one.ask(RESUME, {"msgId": sent.fields["msgId"]})


async def commits(one: Desk, sent: Answered) -> Answered:
    return await half_messages.end(one, half_messages.place(sent), COMMIT)


async def rolls_back(one: Desk, sent: Answered) -> Answered:
    return await half_messages.end(one, half_messages.place(sent), ROLLBACK)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("asking", [asks_again, commits, rolls_back])
async def test_what_is_asked_of_a_transaction_is_answered_when_all_of_the_set_have_it(
    group: Group, asking: Asking, times: int
) -> None:
    """Also when it is asked a second time: the other broker may be the next master."""
    one, two = await group.start(1), await group.start(2, sync_flush=True)
    assert await group.led({1, 2}) is one
    one.topic("T", 1)
    sent = await one.ask(SEND, half("K"), b"half")
    assert sent.code == 0
    with two.disk.held():
        asked = [asyncio.ensure_future(asking(one, sent)) for _ in range(times)]
        later = asyncio.create_task(one.ask(GET_END, {"topic": "T", "queueId": "0"}))
        assert (await later).code == 0
        assert [each.done() for each in asked] == [False] * times, "answered before what came later"
    assert [each.code for each in await asyncio.gather(*asked)] == [0] * times
