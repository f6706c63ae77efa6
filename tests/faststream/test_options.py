"""The options of subscribers and sends are those of Eruca's clients, by their names and types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from faststream.exceptions import SetupError

from eruca.client import LitePullConsumer, Message
from eruca.client.consuming.arguments import ConsumerKeywords
from eruca.client.errors import BadName, UsageError
from eruca.client.message import MessageKeywords
from eruca.faststream import RocketMQBroker, RocketMQPublishMessage, RocketMQRouter, TestRocketMQBroker
from eruca.faststream.options import ConsumerOptions, MessageOptions, PullOptions


def types_of(options: Any) -> dict[str, str]:
    return {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}


def test_they_are_arguments_of_the_clients() -> None:
    known = types_of(ConsumerKeywords)
    assert types_of(ConsumerOptions) == {name: known[name] for name in types_of(ConsumerOptions)}
    assert set(PullOptions.__annotations__) <= set(inspect.signature(LitePullConsumer).parameters)
    assert set(MessageOptions.__annotations__) <= set(inspect.signature(Message).parameters)
    assert set(MessageKeywords.__annotations__) - set(MessageOptions.__annotations__) <= {"properties"}


def test_what_nobody_takes_is_told_where_it_is_written() -> None:
    broker = RocketMQBroker("127.0.0.1:1", group="shop")
    declared: list[tuple[Callable[..., object], dict[str, Any], str]] = [
        (RocketMQBroker, {"nameservr": "a:1"}, "RocketMQBroker: nameservr is not known: did you mean nameserver[?]"),
        (broker.subscriber, {"max_worker": 3}, "max_worker is not known: did you mean max_workers[?]"),
        (broker.subscriber, {"expression": "new.*"}, "'new.[*]' is no pattern: name each tag"),
        (broker.subscriber, {"expression": "new,paid"}, "tags are joined by two bars, 'new [|][|] paid'"),
        (broker.subscriber, {"start_from": 1_800_000_000}, "start_from=1800000000 is not allowed: seconds[?]"),
        (broker.publisher, {"tag": "new"}, "tag is not known: did you mean tags[?]"),
        (RocketMQPublishMessage, {"tag": "new"}, "tag is not known: did you mean tags[?]"),
    ]
    for declare, options, sentence in declared:
        with pytest.raises(UsageError, match=sentence):
            declare("Orders", **options)
    assert not broker.subscribers


@pytest.mark.parametrize(
    ("topics", "options", "sentence"),
    [
        (["Orders"], {"max_workers": 0}, "^max_workers=0 is not allowed: a whole number of 1 or more is expected"),
        (["Orders"], {"max_workers": "2"}, "^max_workers='2' is not allowed: a whole number of 1 or more is expected"),
        (["Orders"], {"batch": True, "max_records": 0}, "^max_records=0 is not allowed: a whole number of 1 or more"),
        (["Orders"], {"ack_policy": "nack"}, "^ack_policy='nack' is not allowed: an AckPolicy such as AckPolicy"),
        ([["Orders", "Bills"]], {}, r"^A subscriber takes topics one by one: subscriber\('Orders', 'Bills'\)\.$"),
        ([], {}, "^A subscriber needs a topic"),
        (["a b"], {}, r"The specified topic\[a b\] contains illegal characters"),
    ],
)
def test_a_wrong_subscriber_is_refused_where_it_is_declared(
    topics: list[Any], options: dict[str, Any], sentence: str
) -> None:
    broker = RocketMQBroker("127.0.0.1:1", group="shop")
    with pytest.raises((UsageError, SetupError), match=sentence):
        broker.subscriber(*topics, **options)
    assert not broker.subscribers


def test_so_are_a_publisher_a_broker_and_a_router() -> None:
    with pytest.raises(BadName, match=r"The specified topic\[a b\] contains illegal characters"):
        RocketMQBroker().publisher("a b")
    with pytest.raises(UsageError, match=r"^graceful_timeout=-1 is not allowed: 0 or more seconds are expected"):
        RocketMQBroker(graceful_timeout=-1)
    kinds: list[Any] = [RocketMQBroker, RocketMQRouter]
    for kind in kinds:
        with pytest.raises(SetupError, match=r"^ack_policy='nack' is not allowed"):
            kind(ack_policy="nack")


def test_a_prefix_that_makes_an_illegal_topic_is_seen_in_the_topic() -> None:
    router = RocketMQRouter(prefix="shop.")
    with pytest.raises(BadName, match=r"topic\[shop\.Orders\] contains illegal characters"):
        router.subscriber("Orders")


async def test_so_is_it_at_a_send() -> None:
    broker = RocketMQBroker()
    bills = broker.publisher("Bills")
    async with TestRocketMQBroker(broker):
        sends: list[Callable[..., Any]] = [broker.publish, broker.publish_batch, broker.request, bills.publish]
        sends.append(bills.request)
        for publish in sends:
            with pytest.raises(UsageError, match=r"tag is not known: did you mean tags[?]"):
                await publish("x", topic="Bills", tag="new")
