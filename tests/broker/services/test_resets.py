"""The rule by which an operator's reset moves a group: pure, one queue a place."""

import pytest

from eruca.broker.services.resets import QueueOffsets, plan
from eruca.protocol.errors import Refused


def test_a_forced_reset_takes_the_offset_at_the_time_forward_and_back() -> None:
    assert plan("g", [QueueOffsets(10, 4), QueueOffsets(10, 40)], force=True) == [4, 40]


def test_an_unforced_reset_only_goes_back() -> None:
    assert plan("g", [QueueOffsets(10, 4), QueueOffsets(10, 40), QueueOffsets(10, 10)], force=False) == [4, 10, 10]


def test_an_offset_found_below_zero_counts_as_zero() -> None:
    assert plan("g", [QueueOffsets(10, -1), QueueOffsets(0, -5)], force=True) == [0, 0]
    assert plan("g", [QueueOffsets(10, -1)], force=False) == [0]


def test_a_topic_without_queues_needs_nothing() -> None:
    assert plan("g", [], force=True) == []


@pytest.mark.parametrize("force", [True, False])
def test_every_queue_needs_a_committed_offset(force: bool) -> None:
    with pytest.raises(Refused) as refused:
        plan("young", [QueueOffsets(0, 4), QueueOffsets(-1, 4), QueueOffsets(-1, 4)], force=force)
    assert (refused.value.code, refused.value.remark) == (1, "THe consumer group <young> not exist")
