"""Which names are legal, in RocketMQ's words, and the names that follow from others."""

import pytest

from eruca.protocol import names


@pytest.mark.parametrize("topic", ["T", "a-b_C9", "%RETRY%g", "ns%topic", "a|b", "t" * 127])
def test_legal_topics(topic: str) -> None:
    assert names.topic_fault(topic) is None


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("../x", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("t" * 128, "The specified topic is longer than topic max length."),
    ],
)
def test_illegal_topics(topic: str, text: str) -> None:
    assert names.topic_fault(topic) == text


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("", "the specified group is blank"),
        ("g" * 256, "the specified group is longer than group max length 255."),
        ("é", "the specified group[é] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("g" * 255, None),
    ],
)
def test_groups(group: str, text: str | None) -> None:
    assert names.group_fault(group) == text


def test_names_that_follow_from_a_group() -> None:
    assert names.retry_topic("G") == "%RETRY%G" and names.is_retry_topic("%RETRY%G")
    assert names.dead_letter_topic("G") == "%DLQ%G" and names.is_dead_letter_topic("%DLQ%G")
    assert names.reply_topic("C") == "C_REPLY_TOPIC"


def test_system_names() -> None:
    assert all(names.is_system_topic(name) for name in ("TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_TRACE_DATA_x"))
    assert not names.is_system_topic("Orders")
    assert names.is_system_group("TOOLS_CONSUMER") and names.is_system_group("CID_RMQ_SYS_TRANS")
    assert not names.is_system_group("G")


def test_a_user_may_set_the_immunity_time_but_not_a_tag() -> None:
    assert names.TAGS in names.RESERVED_PROPERTIES
    assert names.CHECK_IMMUNITY_TIME_IN_SECONDS not in names.RESERVED_PROPERTIES
