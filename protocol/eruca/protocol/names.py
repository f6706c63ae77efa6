"""Names of topics, groups and message properties.

Owns which names are legal, the error texts for illegal ones, the names derived from a group, the
system topics and the property keys. Pure; knows neither sockets nor files.
Facts: TopicValidator, MixAll and MessageConst in 4.9.7.
"""

from __future__ import annotations

import re
from typing import Final

TOPIC_MAX_LENGTH: Final = 127
GROUP_MAX_LENGTH: Final = 255
NAME_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
ILLEGAL: Final = re.compile(r"[^%|a-zA-Z0-9_-]")
"""A character that no topic and no group has."""

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
REPLY_TOPIC_SUFFIX: Final = "REPLY_TOPIC"

DEFAULT_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""The topic of waiting messages with a delay of their own (TimerMessageStore in 5.3.3)."""

SYSTEM_TOPICS: Final = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""The nine fixed system topics; a cluster adds its own name and those of its brokers."""

NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        TIMER_TOPIC,
    }
)
"""Topics that reject sends of clients (code 16)."""

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
"""The built-in subscription groups of every broker."""

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
MSG_TYPE: Final = "MSG_TYPE"
CLUSTER: Final = "CLUSTER"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_ORIGIN: Final = "TIMER_ORIGIN"
"""Eruca's own: identifies the waiting record of a delivered copy."""
TIMER_WISHES: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""The properties for a delay of the message's own (5.x), in order of precedence."""

RESERVED_PROPERTIES: Final = frozenset(
    {
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QUEUE_ID,
        TRANSACTION_PREPARED,
        PRODUCER_GROUP,
        MIN_OFFSET,
        MAX_OFFSET,
        "BUYER_ID",
        ORIGIN_MESSAGE_ID,
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        RECONSUME_TIME,
        MSG_REGION,
        TRACE_ON,
        UNIQ_KEY,
        "EXTEND_UNIQ_INFO",
        MAX_RECONSUME_TIMES,
        CONSUME_START_TIME,
        INSTANCE_ID,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        ARRIVE_TIME,
        PUSH_REPLY_TIME,
        MSG_TYPE,
        CLUSTER,
    }
)
"""Names that a user property must not have (MessageConst.STRING_HASH_SET in 4.9.7)."""

OWN_PROPERTIES: Final = RESERVED_PROPERTIES | {
    *(TRAN_PREPARED_QUEUE_OFFSET, TRANSACTION_CHECK_TIMES),
    *(TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_OUT_MS, TIMER_ROLL_TIMES, TIMER_ORIGIN),
}
"""Names that clients and brokers write, beside those also the ones that a user may write too."""


def is_legal(name: str) -> bool:
    """Whether every character of ``name`` is allowed in a topic or group and the name is not empty."""
    return _LEGAL.match(name) is not None


def topic_fault(topic: str) -> str | None:
    """RocketMQ's error text for an illegal topic name, None for a legal one."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if _LEGAL.match(topic) is None:
        return "The specified topic contains illegal characters, allowing only " + NAME_PATTERN
    if len(topic) > TOPIC_MAX_LENGTH:
        return "The specified topic is longer than topic max length."
    return None


def group_fault(group: str) -> str | None:
    """RocketMQ's error text for an illegal group name, None for a legal one."""
    if not group or group.isspace():
        return "the specified group is blank"
    if len(group) > GROUP_MAX_LENGTH:
        return f"the specified group is longer than group max length {GROUP_MAX_LENGTH}."
    if _LEGAL.match(group) is None:
        return f"the specified group[{group}] contains illegal characters, allowing only {NAME_PATTERN}"
    return None


def retry_topic(group: str) -> str:
    """The retry topic of ``group``."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The dead letter topic of ``group``."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """The topic of the reply messages of ``cluster``."""
    return f"{cluster}_{REPLY_TOPIC_SUFFIX}"


def is_retry_topic(topic: str) -> bool:
    """Whether ``topic`` is a retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    """Whether ``topic`` is a dead letter topic."""
    return topic.startswith(DLQ_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Whether ``topic`` is one of the fixed system topics or carries their prefix."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether ``group`` exists on every broker or is created on demand."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
