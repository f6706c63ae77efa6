"""Allocation strategies: every queue has one owner, the same in every member's view."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.client.assign import Strategy, averagely, by_circle, sort_clients
from eruca.client.rebalance import plan_change
from eruca.protocol.queues import MessageQueue

QUEUES = [MessageQueue("T", "a", number) for number in range(8)]
CLIENTS = ["c1", "c2", "c3"]


def numbers(queues: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in queues]


def test_averagely_gives_neighbours_and_the_first_clients_the_rest() -> None:
    # AllocateMessageQueueAveragely of 4.9.7 for 8 queues and 3 clients.
    assert numbers(averagely("c1", QUEUES, CLIENTS)) == [0, 1, 2]
    assert numbers(averagely("c2", QUEUES, CLIENTS)) == [3, 4, 5]
    assert numbers(averagely("c3", QUEUES, CLIENTS)) == [6, 7]


def test_averagely_with_fewer_queues_than_clients() -> None:
    assert numbers(averagely("c1", QUEUES[:2], CLIENTS)) == [0]
    assert numbers(averagely("c2", QUEUES[:2], CLIENTS)) == [1]
    assert averagely("c3", QUEUES[:2], CLIENTS) == []


def test_by_circle_deals_them_out() -> None:
    assert numbers(by_circle("c1", QUEUES, CLIENTS)) == [0, 3, 6]
    assert numbers(by_circle("c2", QUEUES, CLIENTS)) == [1, 4, 7]
    assert numbers(by_circle("c3", QUEUES, CLIENTS)) == [2, 5]


@pytest.mark.parametrize("strategy", [averagely, by_circle])
def test_a_client_that_the_broker_does_not_list_gets_nothing(strategy: Strategy) -> None:
    assert strategy("stranger", QUEUES, CLIENTS) == []


@pytest.mark.parametrize("strategy", [averagely, by_circle])
@given(queues=st.integers(0, 40), clients=st.integers(1, 12))
def test_every_queue_has_exactly_one_owner(strategy: Strategy, queues: int, clients: int) -> None:
    all_queues = [MessageQueue("T", "a", number) for number in range(queues)]
    names = [f"c{number:02}" for number in range(clients)]
    shares = [strategy(name, all_queues, names) for name in names]
    assert sorted(queue for share in shares for queue in share) == all_queues
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_clients_are_sorted_as_javas_strings() -> None:
    # U+FF5E sorts before U+1F600 by code point, after it by UTF-16 units.
    assert sort_clients(["\uff5e", "\U0001f600", "a"]) == ["a", "\U0001f600", "\uff5e"]


def test_a_second_member_takes_half() -> None:
    alone = plan_change("c1", ["c1"], QUEUES[:4], [], averagely)
    assert numbers(alone.take) == [0, 1, 2, 3] and alone.give_up == []
    shared = plan_change("c1", ["c2", "c1"], QUEUES[:4], QUEUES[:4], averagely)
    assert numbers(shared.give_up) == [2, 3] and shared.take == []
    other = plan_change("c2", ["c2", "c1"], QUEUES[:4], [], averagely)
    assert numbers(other.take) == [2, 3]


def test_queues_that_are_gone_are_given_up() -> None:
    change = plan_change("c1", ["c1"], QUEUES[:2], QUEUES[:4], averagely)
    assert numbers(change.give_up) == [2, 3] and change.take == []
