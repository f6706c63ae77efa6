"""Pieces come out in the order in which they came, and cost little more than their bytes."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from eruca.remoting.pieces import Pieces


def test_they_come_out_in_their_order() -> None:
    chance = random.Random(20261123)
    pieces = Pieces()
    for _ in range(30):
        sizes = chance.choices([1, 7, 500, 16_384, 70_000, 1_000_000, 3_000_000], k=chance.randrange(9))
        came = [chance.randbytes(size) for size in sizes]
        for each in came:
            pieces.add(each)
        assert pieces.size == sum(map(len, came))
        assert pieces.take() == b"".join(came)
        assert (pieces.size, pieces.take()) == (0, b"")


@pytest.mark.parametrize("size", [1, 100, 16_000, 300_000])
def test_they_cost_little_more_than_their_bytes_and_give_them_back(size: int) -> None:
    tracemalloc.start()
    try:
        pieces = [Pieces() for _ in range(20)]
        for _ in range(min(2_000_000 // size, 40_000)):  # bytes one by one: a pointer to each would be over the limit
            for each in pieces:
                each.add(bytes(size))
        taken = sum(each.size for each in pieces)
        assert tracemalloc.get_traced_memory()[0] <= taken + (4 << 20)
        for each in pieces:
            each.clear()
        assert tracemalloc.get_traced_memory()[0] <= 1 << 20
    finally:
        tracemalloc.stop()
