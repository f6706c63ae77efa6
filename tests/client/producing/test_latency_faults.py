"""Brokers that were slow or failed are passed over for a while; values of Java's tables."""

from __future__ import annotations

import pytest

from eruca.client import Message, MessageQueue, Producer
from eruca.client.errors import BrokerRefused, CallTimeout
from eruca.client.network.routes import Route
from eruca.client.producing.latency_faults import LatencyFaults, time_out
from eruca.client.selectors import RoundRobin
from tests.support.scripted import SILENT, Scripted

QUEUES = tuple(MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in range(2))
ROUTE = Route("T", QUEUES, QUEUES, {}, {})


def turn_at(number: int) -> RoundRobin:
    turn = RoundRobin()
    turn.last = number - 1
    return turn


@pytest.mark.parametrize(
    ("latency", "duration"),
    [
        (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 30_000), (999, 30_000), (1000, 60_000), (2000, 120_000),
        (3000, 180_000), (14_999, 180_000), (15_000, 600_000), (30_000, 600_000),
    ],
)  # fmt: skip
def test_how_long_a_broker_is_left_out(latency: int, duration: int) -> None:
    assert time_out(latency) == duration


def test_a_failure_counts_as_30_seconds_whatever_it_took() -> None:
    faults = LatencyFaults()
    faults.ended("a", 3, now=1000, failed=True)
    assert not faults.available("a", 600_999)
    assert faults.available("a", 601_000)


def test_the_next_available_queue_is_taken_and_one_step_made() -> None:
    faults, turn = LatencyFaults(), turn_at(0)
    faults.ended("a", 600, now=0, failed=False)
    assert [faults.choose(ROUTE, turn, 1).broker_name for _ in range(6)] == ["b", "b", "b", "b", "c", "c"]
    assert faults.choose(ROUTE, turn, 30_000) == MessageQueue("T", "a", 0)


def test_when_all_are_left_out_the_better_half_takes_turns() -> None:
    faults = LatencyFaults(turn=0)
    for broker, latency in (("a", 3000), ("b", 600), ("c", 2000)):
        faults.ended(broker, latency, now=0, failed=False)
    assert {faults.choose(ROUTE, turn_at(0), 1).broker_name for _ in range(4)} == {"b"}  # half of three is one
    queues = (*QUEUES, MessageQueue("T", "d", 0))
    route = Route("T", queues, queues, {}, {})
    faults.ended("d", 700, now=0, failed=False)
    assert [faults.choose(route, turn_at(0), 1).broker_name for _ in range(4)] == ["d", "b", "d", "b"]


def test_ranking_is_by_latency_then_by_the_end_of_the_time_out() -> None:
    faults = LatencyFaults(turn=0)
    faults.ended("b", 600, now=5, failed=False)
    faults.ended("a", 600, now=9, failed=False)
    faults.ended("c", 1, now=0, failed=True)
    assert faults.choose(ROUTE, turn_at(0), 10).broker_name == "c"
    faults.ended("c", 9000, now=0, failed=True)
    assert faults.choose(ROUTE, turn_at(0), 10).broker_name == "b"


def test_the_queue_of_a_broker_that_is_forced_goes_round() -> None:
    faults, turn = LatencyFaults(turn=0), turn_at(0)
    for broker in "abc":
        faults.ended(broker, 600 if broker == "b" else 3000, now=0, failed=False)
    # Each choice makes three steps, as Java's does.
    assert [faults.choose(ROUTE, turn, 1).queue_id for _ in range(4)] == [0, 1, 0, 1]


def test_a_broker_that_is_not_in_the_route_any_more_is_forgotten() -> None:
    faults = LatencyFaults(turn=0)
    faults.ended("gone", 600, now=0, failed=False)
    for broker in "abc":
        faults.ended(broker, 3000, now=0, failed=False)
    chosen = [faults.choose(ROUTE, turn_at(0), 1) for _ in range(3)]
    assert set(chosen) <= set(QUEUES)
    assert "gone" not in faults._table


# ---------------------------------------------------------------------- in the producer


async def test_a_silent_broker_costs_one_timeout() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a, b, queues=2)
        a.answers.extend([SILENT] * 100)
        async with Producer("g", nameserver=names.address, fault_tolerance=True, send_timeout=1.0) as producer:
            failures = 0
            for _ in range(20):
                try:
                    await producer.send(Message("T", b"x"))
                except CallTimeout:
                    failures += 1
            for _ in range(20):
                await producer.send(Message("T", b"x"))
        assert failures <= 1 and len(a.sends) == 1, "nobody waits for it again"
        assert len(b.sends) >= 39


async def test_refusals_count_as_failures_but_chosen_queues_are_not_passed_over() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a, b)
        a.answers.extend([13] * 100)
        queue = MessageQueue("T", "broker-a", 0)
        async with Producer("g", nameserver=names.address, fault_tolerance=True) as producer:
            with pytest.raises(BrokerRefused):
                await producer.send(Message("T", b"x"), queue=queue)
            refused = 0
            for _ in range(10):
                try:
                    await producer.send(Message("T", b"x"))
                except BrokerRefused:
                    refused += 1
            assert refused == 1  # the chosen queue's refusal taught nothing, the first other one did
            with pytest.raises(BrokerRefused):
                await producer.send(Message("T", b"x"), queue=queue)


async def test_without_it_every_other_send_meets_the_refusal() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("T", a, b)
        a.answers.extend([13] * 100)
        async with Producer("g", nameserver=names.address) as producer:
            results = []
            for _ in range(10):
                try:
                    results.append(await producer.send(Message("T", b"x")))
                except BrokerRefused:
                    continue
        assert len(results) == 5
