"""Offsets by time: the nearer neighbour, as RocketMQ finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eruca.broker.store import Store
from tests.support.stores import Clock, open_store, put

BEGIN = 1_700_000_000_000


def store_with(path: Path, times: list[int], **changes: Any) -> Store:
    clock = Clock()
    store = open_store(path, clock, **changes)
    for time in times:
        clock.now = BEGIN + time
        put(store, "T", 0, b"x")
        put(store, "Other", 0, b"x")
    store.drain()
    return store


@pytest.mark.parametrize(
    ("time", "offset"),
    [
        (-5, 0),  # before all: the first
        (0, 0),
        (100, 1),  # an exact hit
        (149, 1),  # nearer to the one before
        (150, 1),  # equally near: the one before
        (151, 2),  # nearer to the one after
        (300, 3),
        (9999, 3),  # after all: the last message, not the end
    ],
)
def test_the_nearer_neighbour(tmp_path: Path, time: int, offset: int) -> None:
    store = store_with(tmp_path, [0, 100, 200, 300])
    assert store.offset_by_time("T", 0, BEGIN + time) == offset
    store.close()


def test_of_equal_times_the_one_that_halving_meets(tmp_path: Path) -> None:
    store = store_with(tmp_path, [0, 100, 100, 100, 100, 200, 300, 400])
    assert store.offset_by_time("T", 0, BEGIN + 100) == 3
    store.close()


def test_an_empty_or_unknown_queue_gives_0(tmp_path: Path) -> None:
    store = store_with(tmp_path, [])
    assert store.offset_by_time("T", 0, BEGIN) == 0
    store.close()


def test_across_many_queue_files(tmp_path: Path) -> None:
    times = list(range(0, 5000, 50))
    store = store_with(tmp_path, times, mapped_file_size_consume_queue=140)
    store.persist()
    for time in (*times, 30, 2520, 2530):
        assert store.offset_by_time("T", 0, BEGIN + time) == round(time / 50)
    store.close()


def test_what_was_deleted_is_not_found(tmp_path: Path) -> None:
    store = store_with(tmp_path, list(range(0, 20_000, 100)))
    store.commit_log.forget_oldest(1)
    store.housekeeping.move_min_offsets()
    low = store.min_offset("T", 0)
    assert low > 0
    assert store.offset_by_time("T", 0, BEGIN) == low
    assert store.offset_by_time("T", 0, BEGIN + 15_000) == 150
    store.close()
