"""The version of a subscription: brokers take one only when its version is higher than that of the former."""

from __future__ import annotations

import pytest

from eruca.client import LitePullConsumer, PushConsumer
from tests.client.conftest import member_of

NAMESERVER = "127.0.0.1:9876"
CONSUMERS = [
    PushConsumer("g", lambda messages: None, nameserver=NAMESERVER),
    LitePullConsumer("g", nameserver=NAMESERVER),
]


@pytest.mark.parametrize("consumer", CONSUMERS, ids=lambda consumer: type(consumer).__name__)
def test_each_change_has_a_higher_version_even_within_a_millisecond(consumer: PushConsumer | LitePullConsumer) -> None:
    versions = []
    for number in range(50):
        consumer.subscribe("T", f"Tag{number}")
        versions.append(member_of(consumer).subscriptions["T"].sub_version)

    assert versions == sorted(set(versions))


@pytest.mark.parametrize("consumer", CONSUMERS, ids=lambda consumer: type(consumer).__name__)
def test_a_change_counts_after_the_clock_was_set_back(consumer: PushConsumer | LitePullConsumer) -> None:
    consumer.subscribe("T", "TagA")
    subscription = member_of(consumer).subscriptions["T"]
    of_yesterday = subscription.sub_version = subscription.sub_version + 86_400_000

    consumer.subscribe("T", "TagB")

    assert member_of(consumer).subscriptions["T"].sub_version == of_yesterday + 1
