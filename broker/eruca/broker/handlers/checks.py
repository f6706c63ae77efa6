"""Checks that many requests share: legal names, existing topics, a broker that accepts changes.

Each check raises Refused with the code and the text of 4.9.7 (TopicValidator, AdminBrokerProcessor).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from eruca.broker.broker import Broker
from eruca.broker.services.failover.relay import NOT_THE_MASTER
from eruca.broker.store.results import Durability
from eruca.protocol import names
from eruca.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.remoting import Reply
from eruca.remoting.descriptors import is_exhausted, reason
from eruca.remoting.router import Result

CLIENT_ID_MAX_LENGTH = 255
"""Characters; Apache has no limit, and a client has about 40."""


async def new_topic_saved(broker: Broker) -> None:
    """Wait until the topic that a message created, if any, is on disk."""
    try:
        await broker.topics.saved()
    except OSError as error:
        advice = "" if is_exhausted(error) else "; see to the broker's disk"
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the new topic could not be saved: {reason(error)}{advice}") from None


def legal_topic(topic: str) -> None:
    """Refuse an illegal topic name."""
    fault = names.topic_fault(topic)
    if fault is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, fault)


def legal_group(group: str) -> None:
    """Refuse an illegal group name."""
    fault = names.group_fault(group)
    if fault is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, fault)


def legal_client_id(client_id: str) -> None:
    """Refuse a client id that is longer than any client makes."""
    if len(client_id) > CLIENT_ID_MAX_LENGTH:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the client id has {len(client_id)} characters, at most {CLIENT_ID_MAX_LENGTH} are allowed; "
            "shorten the instance name or the unit name",
        )


def need_room_for_offset(broker: Broker, group: str, topic: str, queue_id: int) -> None:
    """Refuse the offset of another queue where there are as many as may be."""
    if not broker.offsets.has_room(group, topic, queue_id):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{broker.offsets.count} offsets are committed at this broker, {broker.offsets.most} may be: "
            "delete groups and topics that nobody uses",
        )


def within_bounds(config: TopicConfig | SubscriptionGroupConfig) -> None:
    """Refuse settings with a number of queues that no topic may have."""
    try:
        config.check_queues()
    except ProtocolError as fault:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(fault)) from None


def changeable_topic(broker: Broker, topic: str) -> int:
    """Refuse a change of a topic by operators: on a slave, of an illegal name, of a system topic; the epoch else."""
    epoch = changeable(broker)
    legal_topic(topic)
    if broker.topics.is_system(topic):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")
    return epoch


def readable(broker: Broker) -> None:
    """Refuse reads as long as a broker that was started does not know whether the group has all of its log."""
    if broker.confirmation is not None and broker.confirmation.doubtful:
        raise Refused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "this broker was started, and does not know yet which messages of its log the group has: ask another one, "
            "or try again",
        )


def knows_offsets(broker: Broker) -> None:
    """Refuse the offset of a group as long as a broker that was started has none but those of its former life."""
    readable(broker)
    part = broker.group_part
    if broker.role.elected and broker.role.is_slave and (part is None or not part.member.has_tables):
        raise Refused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "this broker was started, and has not got the offsets of its master yet: ask another one, or try again",
        )


def leads_surely(broker: Broker) -> int:
    """Refuse where the group has another master, or may have elected one meanwhile, which would answer otherwise.

    Returns the epoch in which this broker leads, 0 outside of a group: what is changed now is confirmed in it, or not
    at all.
    """
    if broker.role.elected and broker.role.is_slave:
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_THE_MASTER)
    epoch = broker.role.epoch
    if epoch and not broker.registration.is_sure():
        raise _unsure()
    still_leads(broker, epoch)
    return epoch


def still_leads(broker: Broker, epoch: int) -> None:
    """Refuse to go on with a change if this broker does not lead in the epoch any more in which it began with it."""
    if broker.tables is not None and broker.tables.epoch != epoch:
        raise _unsure()


def _unsure() -> Refused:
    return Refused(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "this broker does not know whether it still is the master of its group: try again",
    )


def changeable(broker: Broker) -> int:
    """Refuse a change of topics or groups on a slave, and on a master that is not sure to be one; the epoch else."""
    epoch = leads_surely(broker)
    if broker.role.is_slave:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
        )
    return epoch


async def answered(result: Result) -> Reply | None:
    """What a handler answers, now or later."""
    return result if result is None or isinstance(result, Reply) else await result


def confirmed(broker: Broker, epoch: int, reply: Reply) -> Result:
    """The reply to a change of tables that was made in that epoch, when all of the syncStateSet have it.

    A broker of no group that elects its master answers at once.
    """
    waiting = broker.tables.confirmed(epoch) if broker.tables is not None else None
    return reply if waiting is None else _when_confirmed(waiting, reply)


async def all_confirmed(broker: Broker, epoch: int, *, on_disk: bool = False) -> None:
    """Wait for that; with ``on_disk`` offsets are on the disks there."""
    waiting = broker.tables.confirmed(epoch, on_disk=on_disk) if broker.tables is not None else None
    if waiting is not None:
        await _when_confirmed(waiting, Reply())


async def _when_confirmed(waiting: Awaitable[Durability], reply: Reply) -> Reply:
    if await waiting is not Durability.DURABLE:
        raise Refused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "the other brokers of the group have not confirmed the change in time, it may be lost: do it again",
        )
    return reply


def known_topic(broker: Broker, topic: str) -> TopicConfig:
    """The settings of a topic; refuses an unknown one."""
    config = broker.topics.get(topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return config


@contextmanager
def persisting(what: str) -> Iterator[None]:
    """Context of a save: refuses the request if the file cannot be written."""
    try:
        yield
    except OSError as error:
        advice = "" if is_exhausted(error) else "; free or repair the disk and repeat it"
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{what} holds until the broker stops, but cannot be written to its disk: {reason(error)}{advice}",
        ) from error
