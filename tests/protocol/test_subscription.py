"""Subscriptions: built as FilterAPI of RocketMQ 4.9.7 builds them (captured by
tests/golden/fastjson/Capture.java), and asked whether messages pass."""

import json
from pathlib import Path

import pytest

from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.message import java_hash
from eruca.protocol.subscription import SQL92, build_subscription, passes_hash, passes_tag

GOLDEN = Path(__file__).parent.parent / "golden" / "fastjson" / "subscriptions.jsonl"
CAPTURED = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(("expression", "result"), CAPTURED)
def test_built_as_java_builds_them(expression: str | None, result: str) -> None:
    if result.startswith("refused"):
        with pytest.raises(ValueError, match="names no tag"):
            build_subscription("T1", expression, version=0)
    else:
        built = build_subscription("T1", expression, version=0)
        assert built == SubscriptionData.decode(result.encode())


def test_another_type_keeps_its_text_and_has_no_tags() -> None:
    built = build_subscription("T", "a > 5", version=7, expression_type=SQL92)
    assert built == SubscriptionData(topic="T", sub_string="a > 5", expression_type="SQL92", sub_version=7)
    with pytest.raises(ValueError, match="SQL92 needs an expression"):
        build_subscription("T", "", version=7, expression_type=SQL92)


@pytest.mark.parametrize(
    ("expression", "tag", "by_hash", "by_tag"),
    [
        ("TagA || TagB", "TagA", True, True),
        ("TagA || TagB", "TagC", False, False),
        ("TagA", None, False, False),
        ("*", "TagA", True, True),
        ("*", None, True, True),
        # "Aa" and "BB" have the same hash: only the client can tell them apart.
        ("Aa", "BB", True, False),
        # A negative hash, as the consume queue stores it.
        ("%RETRY%G1", "%RETRY%G1", True, True),
    ],
)
def test_who_gets_a_message(expression: str, tag: str | None, by_hash: bool, by_tag: bool) -> None:
    subscription = build_subscription("T", expression, version=0)
    assert passes_hash(subscription, java_hash(tag) if tag else 0) is by_hash
    assert passes_tag(subscription, tag) is by_tag


def test_only_the_low_half_of_a_tag_code_counts() -> None:
    subscription = build_subscription("T", "%RETRY%G1", version=0)
    assert passes_hash(subscription, -1978267828)
    assert passes_hash(subscription, -1978267828 & 0xFFFFFFFF)
    assert not passes_hash(subscription, 1978267828)


def test_class_filters_and_other_types_pass_the_hash_check() -> None:
    assert passes_hash(SubscriptionData(sub_string="x", class_filter_mode=True), 5)
    assert passes_hash(SubscriptionData(sub_string="a > 5", expression_type=SQL92), 5)
    assert passes_hash(SubscriptionData(), 5)
    assert passes_tag(SubscriptionData(tags_set={"a"}, class_filter_mode=True), "b")
