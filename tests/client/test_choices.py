"""Queues chosen as Java chooses them, ids, settings and names."""

from __future__ import annotations

import os
import re
import time

import pytest

from eruca.client import ClientSettings, Message, Producer, PushConsumer
from eruca.client.config import find_nameservers
from eruca.client.errors import BadConfig, BadName, NoNameserver, UsageError
from eruca.client.network.identity import UniqueKeys, client_id
from eruca.client.selectors import RoundRobin, by_hash, by_machine_room
from eruca.protocol.queues import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in "ab" for number in range(2)]
MESSAGE = Message("T", b"x")


def test_queues_are_used_in_turn() -> None:
    turn = RoundRobin()
    chosen = [turn.choose(QUEUES) for _ in range(8)]
    assert chosen[:4] == chosen[4:] and set(chosen) == set(QUEUES)


def test_a_broker_that_failed_is_passed_over_where_there_is_another() -> None:
    turn = RoundRobin()
    assert {turn.choose(QUEUES, "a").broker_name for _ in range(20)} == {"b"}
    assert turn.choose(QUEUES[:2], "a").broker_name == "a"


@pytest.mark.parametrize(
    ("arg", "size", "index"),
    [
        # Math.abs(arg.hashCode() % size), printed by Java 17
        ("order-1", 4, 2),
        ("order-1", 5, 0),
        ("grün-7", 5, 2),
        (7, 4, 3),
        (-7, 5, 2),
        (4294967296, 4, 1),
        (-5000000000, 5, 2),
    ],
)
def test_the_same_argument_meets_the_queue_that_java_takes(arg: object, size: int, index: int) -> None:
    queues = [MessageQueue("T", "a", number) for number in range(size)]
    assert by_hash(queues, MESSAGE, arg).queue_id == index


def test_only_brokers_in_the_rooms_are_chosen_in_turn() -> None:
    queues = [MessageQueue("T", broker, number) for broker in ("east@a", "north@b", "south@c") for number in (0, 1)]
    near = by_machine_room(["north", "south"])
    chosen = [near(queues, MESSAGE, None) for _ in range(8)]
    assert chosen[:4] == chosen[4:] and set(chosen) == set(queues[2:])
    with pytest.raises(UsageError, match=r"T has no queue in the machine rooms west: brokers there are named like"):
        by_machine_room(["west"])(queues, MESSAGE, None)


def elapsed(key: str) -> int:
    """The ms since the month began that a unique key of an IPv4 host holds: address 8 digits, process 4, loader 8."""
    return int(key[20:28], 16)


def test_unique_keys_say_who_and_when() -> None:
    keys = UniqueKeys("10.1.2.3")
    now = time.mktime((2026, 11, 21, 10, 0, 0, 0, 0, -1))
    first, second = keys.next(now), keys.next(now + 0.005)
    assert first[:12] == f"0A010203{os.getpid() & 0xFFFF:04X}"
    assert elapsed(first) == (20 * 24 + 10) * 3600 * 1000
    assert (elapsed(second) - elapsed(first), int(second[28:], 16) - int(first[28:], 16)) == (5, 1)


def test_unique_keys_count_a_new_month_from_its_start() -> None:
    keys = UniqueKeys("10.1.2.3")
    new_year = time.mktime((2027, 1, 1, 0, 0, 1, 0, 0, -1))
    assert elapsed(keys.next(new_year - 2)) == (31 * 24 * 3600 - 1) * 1000
    assert elapsed(keys.next(new_year)) == 1000


def test_no_two_keys_are_equal() -> None:
    keys = UniqueKeys("10.1.2.3")
    assert len({keys.next(1_700_000_000.0) for _ in range(60_000)}) == 60_000


def test_an_ipv6_address_makes_a_long_key() -> None:
    assert len(UniqueKeys("2001:db8::1").next(time.time())) == 56


def test_client_ids() -> None:
    first, second = client_id("10.1.2.3", "DEFAULT", None), client_id("10.1.2.3", "DEFAULT", None)
    assert first.startswith(f"10.1.2.3@{os.getpid()}#") and first != second
    assert client_id("10.1.2.3", "here", "unit") == "10.1.2.3@here@unit"


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        ("a:1;b:2", {}, ("a:1", "b:2")),
        ("a:1, b:2", {}, ("a:1", "b:2")),
        (["a:1", "b"], {}, ("a:1", "b:9876")),
        ("[::1]:9876", {}, ("[::1]:9876",)),
        (None, {"NAMESRV_ADDR": "n:1"}, ("n:1",)),
        (None, {"NAMESRV_ADDR": "n:1", "ROCKETMQ_NAMESRV_ADDR": "r:1"}, ("r:1",)),
    ],
)
def test_where_nameservers_are_found(
    given: str | list[str] | None, environment: dict[str, str], found: tuple[str, ...]
) -> None:
    assert find_nameservers(given, environment) == found


def test_without_a_nameserver_the_sentence_says_what_to_set() -> None:
    with pytest.raises(NoNameserver, match=r"No name server address, please set it\. .*ROCKETMQ_NAMESRV_ADDR"):
        find_nameservers(None, {})


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://x:80/y", '"host:port" is expected'),
        ("host:port", '"host:port" is expected'),
        (":9876", '"host:port" is expected'),
        ("a b:1", '"host:port" is expected'),
        ("host:99999", "a port is a number from 1 to 65535"),
        ("user@mq:9876", "leave out the account before @"),
        ("::1:9876", "an IPv6 address stands in brackets"),
    ],
)
def test_an_address_that_cannot_be_one(address: str, words: str) -> None:
    with pytest.raises(BadConfig, match=f"cannot be read: {words}"):
        find_nameservers(address, {})
    with pytest.raises(BadConfig, match=f'^NAMESRV_ADDR="{re.escape(address)}": the nameserver address'):
        find_nameservers(None, {"NAMESRV_ADDR": address})


def test_wrong_use_is_told_where_it_happens() -> None:
    with pytest.raises(BadName, match="producerGroup can not equal DEFAULT_PRODUCER, please specify another one"):
        Producer("DEFAULT_PRODUCER", nameserver="n")
    with pytest.raises(BadName, match="the specified group is blank"):
        Producer("", nameserver="n")
    with pytest.raises(BadConfig, match="send_timeout=0"):
        Producer("g", nameserver="n", send_timeout=0)
    with pytest.raises(UsageError, match="The listener is of type int"):
        PushConsumer("g", 5, nameserver="n")  # type: ignore[call-overload]
    with pytest.raises(BadConfig, match="start_from='middle' is not allowed"):
        PushConsumer("g", nameserver="n", start_from="middle")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="names no tag"):
        PushConsumer("g", nameserver="n").subscribe("T", "||")
    with pytest.raises(BadConfig, match="heartbeat_interval=0 is not allowed"):
        ClientSettings(heartbeat_interval=0)
