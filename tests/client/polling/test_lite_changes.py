"""What a lite pull consumer wants becomes another thing while it polls."""

from __future__ import annotations

import pytest

from tests.client.conftest import Lab, eventually
from tests.client.polled import bodies, fill, lite, poll


async def test_another_filter_holds_at_once(lab: Lab) -> None:
    """Also for a pull that the broker holds by the old one; what was handed out remains to be settled."""
    await fill(lab, 5, tags="A")
    async with lite(lab).subscribe("T", "A") as consumer:
        assert bodies(await consumer.poll()) == [0, 1, 2, 3, 4]
        consumer.subscribe("T", "B")
        await fill(lab, 5, start=5, tags="A")
        await fill(lab, 5, start=10, tags="B")
        await eventually(lambda: len(consumer._cache) > 0)
        assert consumer._owned is not None
        consumer._owned.store_positions()
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
        await eventually(lambda: len(consumer._cache) == 3)
        consumer.subscribe("T", "A || B")
        assert bodies(await poll(consumer, 6)) == [4, 5, 6, 7, 8, 9]
        consumer.subscribe("T", "A || B", listener=lambda *_: None)
        await consumer.commit_sync()
    assert (await lab.offsets("g", "T"))[0] == 10
