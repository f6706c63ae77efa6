"""Allocation strategies: every queue has one owner, the same in every member's view."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.client.assign import (
    Strategy,
    averagely,
    by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    near_machine_room,
    sort_clients,
)
from eruca.client.consuming.rebalance import plan_change
from eruca.client.errors import UsageError
from eruca.protocol.queues import MessageQueue

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "allocation" / "allocations.tsv"
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


def room(name: str) -> str:
    """The room in the names of the golden file: before "@" of brokers, before "-" of clients."""
    return name.replace("@", "-").split("-")[0]


def near(inner: Strategy) -> Strategy:
    return near_machine_room(inner, lambda queue: room(queue.broker_name), room)


STRATEGIES: dict[str, Strategy] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": by_circle,
    "CONSISTENT_HASH": consistent_hash,
    "CONSISTENT_HASH 3": functools.partial(consistent_hash, virtual_nodes=3),
    "MACHINE_ROOM r1,r3,": by_machine_room(["r1", "r3", ""]),
    "MACHINE_ROOM_NEARBY-AVG": near(averagely),
    "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE": near(by_circle),
    "MACHINE_ROOM_NEARBY-CONSISTENT_HASH": near(consistent_hash),
    "CONFIG broker-b:0,broker-b:1": by_config([MessageQueue("T", "broker-b", 0), MessageQueue("T", "broker-b", 1)]),
}


def queues_of(text: str) -> list[MessageQueue]:
    pairs = (each.rpartition(":") for each in text.split(",") if each)
    return [MessageQueue("T", broker, int(number)) for broker, _, number in pairs]


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_answers_are_javas(name: str) -> None:
    """What Apache's classes of 4.9.7 said, captured by tests/golden/allocation/Capture.java."""
    cases = [line.split("\t") for line in GOLDEN.read_text().splitlines()]
    asked = [case[1:] for case in cases if case[0] == name]
    assert asked
    for queues, clients, client, answer in asked:
        members = clients.split(",")
        assert queues_of(queues) == sorted(queues_of(queues)) and members == sort_clients(members)
        assert STRATEGIES[name](client, queues_of(queues), members) == queues_of(answer), (queues, clients, client)


def test_every_strategy_of_the_golden_file_is_compared() -> None:
    assert {line.split("\t")[0] for line in GOLDEN.read_text().splitlines()} == STRATEGIES.keys()


@settings(deadline=None, max_examples=25)
@given(queues=st.integers(1, 40), clients=st.integers(1, 8))
def test_consistent_hash_gives_each_queue_to_one_and_moves_few(queues: int, clients: int) -> None:
    all_queues = [MessageQueue("T", "a", number) for number in range(queues)]
    names = [f"c{number:02}" for number in range(clients)]
    owner = {queue: name for name in names for queue in consistent_hash(name, all_queues, names)}
    assert len(owner) == sum(len(consistent_hash(name, all_queues, names)) for name in names) == queues
    more = [*names, "new"]
    for name in names:
        assert set(consistent_hash(name, all_queues, more)) <= {queue for queue in all_queues if owner[queue] == name}


def test_an_empty_room_is_told() -> None:
    strategy = near_machine_room(averagely, lambda queue: "", room)
    with pytest.raises(UsageError, match=r"The machine room of MessageQueue \[topic=T.* is empty"):
        strategy("c1", QUEUES, CLIENTS)


def test_queues_of_other_topics_are_not_taken() -> None:
    """A fixed list has the queues of all topics; each topic takes its own."""
    other = MessageQueue("U", "a", 0)
    change = plan_change("c1", ["c1"], QUEUES[:3], [QUEUES[2]], by_config([QUEUES[0], other]))
    assert change.take == [QUEUES[0]] and change.give_up == [QUEUES[2]]


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


def test_a_strategy_that_returns_nothing_is_told() -> None:
    nothing: Any = lambda client, queues, clients: None  # noqa: E731
    with pytest.raises(UsageError, match="The strategy returned NoneType: a list of queues is expected"):
        plan_change("c1", ["c1"], QUEUES[:4], [], nothing)
