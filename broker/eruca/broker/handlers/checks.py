"""What many requests must pass: names, topics that exist, a broker that may be changed.

Each check raises Refused with the code and words of 4.9.7 (TopicValidator, AdminBrokerProcessor).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from eruca.broker.broker import Broker
from eruca.protocol import names
from eruca.protocol.bodies import TopicConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.remoting import Call

audit_log = structlog.get_logger("eruca.broker.audit")


def audit(call: Call[Any], action: str, **what: object) -> None:
    """Leave a line for a change that an operator made."""
    audit_log.info(action, remote=call.connection.remote, **what)


async def new_topic_saved(broker: Broker) -> None:
    """Wait until a topic that was made for a message is on disk, where one was."""
    try:
        await broker.topics.saved()
    except OSError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the new topic could not be saved: {error.strerror}; see to the broker's disk"
        ) from None


def legal_topic(topic: str) -> None:
    """A name that a topic may have."""
    fault = names.topic_fault(topic)
    if fault is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, fault)


def legal_group(group: str) -> None:
    """A name that a group may have."""
    fault = names.group_fault(group)
    if fault is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, fault)


def changeable_topic(broker: Broker, topic: str) -> None:
    """A topic that operators may create, change and delete, at a broker where they may."""
    changeable(broker)
    legal_topic(topic)
    if broker.topics.is_system(topic):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")


def changeable(broker: Broker) -> None:
    """A broker whose topics and groups may be changed: not a slave."""
    if broker.config.is_slave:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
        )


def known_topic(broker: Broker, topic: str) -> TopicConfig:
    """A topic that is there; its settings."""
    config = broker.topics.get(topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return config


@contextmanager
def persisting(what: str) -> Iterator[None]:
    """Around the saving of a change: one that cannot be brought to the disk is refused."""
    try:
        yield
    except OSError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{what} holds until the broker stops, but cannot be written to its disk: {error.strerror}; "
            "free or repair the disk and repeat it",
        ) from error
