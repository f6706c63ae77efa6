"""Held pulls: how long, how many, and how they end."""

from __future__ import annotations

import asyncio

from eruca.broker.services.holds import LONGEST, SHORT, WOKEN_AT_ONCE, Holds


async def test_a_hold_is_never_longer_than_a_minute() -> None:
    holds = Holds()
    hold = holds.enter("T", 0, "c", 2**62 / 1000)
    assert hold is not None and 0 < hold.rest <= LONGEST == 60
    holds.close()


async def test_there_is_room_for_so_many_in_all_and_of_one_connection() -> None:
    holds = Holds(most=3, most_of_one=2)
    first, second = (holds.enter("T", number, "c", 30) for number in range(2))
    assert first is not None and second is not None
    assert holds.full("c") and holds.enter("T", 2, "c", 30) is None
    assert holds.enter("T", 0, "d", 30) is not None
    assert holds.full("e") and holds.enter("T", 0, "e", 30) is None
    second.end()
    assert not holds.full("c") and holds.enter("T", 2, "c", 30) is not None
    holds.close()
    assert len(holds) == 0 and not holds.full("c")


async def test_long_subscriptions_have_bounds_of_their_own() -> None:
    holds = Holds(most_text=1000, most_text_of_one=600)
    first = holds.enter("T", 0, "c", 30, text=SHORT + 200)
    assert first is not None and holds.full("c", SHORT + 1) and not holds.full("c", SHORT)
    for owner in ("d", "e"):
        assert (holds.enter("T", 0, owner, 30, text=SHORT + 200) is None) == (owner == "e")
    assert holds.enter("T", 0, "e", 30, text=SHORT) is not None
    first.end()
    assert not holds.full("c", SHORT + 200) and not holds.full("e", SHORT + 200)
    holds.close()


async def test_pulls_of_one_queue_are_woken_a_few_at_a_time() -> None:
    holds = Holds()
    many = 10 * WOKEN_AT_ONCE
    for number in range(many):
        holds.enter("T", 0, number, 30)
    other = holds.enter("T", 1, "c", 30)
    holds.arrived("T", 0, 1, [0])
    left = [len(holds)]
    while left[-1] > 1:
        await asyncio.sleep(0)
        left.append(len(holds))
    assert max(before - after for before, after in zip([many + 1, *left], left, strict=False)) == WOKEN_AT_ONCE
    assert other is not None and other.rest > 0
    holds.close()
