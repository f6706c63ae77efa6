"""Subscriptions: built as FilterAPI of RocketMQ 4.9.7 builds them (captured by
tests/golden/fastjson/Capture.java), and asked whether messages pass."""

import json
from pathlib import Path

import pytest

from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.message import java_hash
from eruca.protocol.subscription import SQL92, build_subscription, check_tags, passes_tag

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
    ("expression", "tag", "hashed", "kept"),
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
def test_who_gets_a_message(expression: str, tag: str | None, hashed: bool, kept: bool) -> None:
    """The broker looks at hashes where there are some, the client at the tags themselves."""
    subscription = build_subscription("T", expression, version=0)
    assert (not subscription.code_set or (java_hash(tag) if tag else 0) in subscription.code_set) is hashed
    assert passes_tag(subscription, tag) is kept


def test_a_class_filter_leaves_nothing_out_at_the_client() -> None:
    assert passes_tag(SubscriptionData(tags_set={"a"}, class_filter_mode=True), "b")


@pytest.mark.parametrize("expression", [None, "", "*", "new", "new || paid", " new||paid ", "new ||", "a b", "a.b/c"])
def test_tags_that_mean_what_they_seem_to(expression: str | None) -> None:
    check_tags(expression)


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("new.*", "'new.*' is no pattern: name each tag, 'TagA || TagB', or use '*' alone for all."),
        ("new || *", "'new || *' is no pattern: name each tag, 'TagA || TagB', or use '*' alone for all."),
        ("new|paid", "'new|paid' is one tag: tags are joined by two bars, 'new || paid'."),
        ("new, paid", "'new, paid' is one tag: tags are joined by two bars, 'new || paid'."),
        ("new || paid,sent", "'new || paid,sent' is one tag: tags are joined by two bars, 'new || paid || sent'."),
        ("new ||| paid", "'new ||| paid' is one tag: tags are joined by two bars, 'new || paid'."),
        ("amount > 5", "'amount > 5' is a condition, no tags: it needs the type SQL92."),
        ("new or paid", "'new or paid' is a condition, no tags: it needs the type SQL92."),
        ("TAGS IN ('new', 'paid')", "'TAGS IN ('new', 'paid')' is a condition, no tags: it needs the type SQL92."),
    ],
)
def test_tags_that_would_be_one_tag_that_no_message_has(expression: str, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:
        check_tags(expression)
    assert str(raised.value) == sentence
