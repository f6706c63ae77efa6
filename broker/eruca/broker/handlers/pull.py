"""Pull requests, answered at once or when messages arrive: 11 and 361 (PullMessageProcessor in 4.9.7).

Owns the order of a pull's checks, the answer to each outcome of a read, and the long poll. Invariant: a pull is
answered once; a held pull occupies nothing but its hold.
"""

from __future__ import annotations

from random import getrandbits
from time import monotonic
from typing import NamedTuple

import structlog

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import answered, readable
from eruca.broker.handlers.clients import MOST_TAGS, class_filter_refused, filter_refused
from eruca.broker.services import matchers
from eruca.broker.services.admission import FAQ
from eruca.broker.services.holds import Hold
from eruca.broker.services.role import MASTER_ID
from eruca.broker.store import NotInMemory
from eruca.broker.store.results import GetStatus, Got, Matcher
from eruca.protocol import api, names
from eruca.protocol.bodies import PERM_READ, OffsetMovedEvent, SubscriptionData, SubscriptionGroupConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullMessage, PullReply
from eruca.protocol.message import encode_properties
from eruca.protocol.queues import MessageQueue
from eruca.protocol.sql92 import Sql92Error, compile_sql
from eruca.protocol.subscription import SQL92, build_subscription, is_tag_type
from eruca.remoting import Call, Connection, Reply, Routes
from eruca.remoting.router import Result

routes: Routes[Broker] = Routes()

log = structlog.get_logger("eruca.broker")

LONGEST_SUBSCRIPTION = 256 << 10
"""Characters of the subscription in a pull."""
_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_READ = frozenset({GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})
"""The outcomes of a read whose next offset is reached by reading, not by a correction."""


class _Admitted(NamedTuple):
    """A pull that passed its checks."""

    group: SubscriptionGroupConfig
    match: Matcher


@routes.on(api.PULL_MESSAGE, api.LITE_PULL_MESSAGE)
def pull(broker: Broker, call: Call[PullMessage]) -> Result:
    """Messages of a queue from an offset on. If there is none, the pull is held as long as the client allows."""
    if monotonic() > broker.loop_monitor.overdue:
        _check_load(broker)
    admitted = _admit(broker, call)
    ask = call.header
    try:
        got = broker.store.get(ask.topic, ask.queue_id, ask.queue_offset, ask.max_msg_nums, admitted.match)
    except NotInMemory:
        return _first_of_cold(broker, call, admitted)
    return _first(broker, call, admitted, got)


async def _first_of_cold(broker: Broker, call: Call[PullMessage], admitted: _Admitted) -> Reply | None:
    since = monotonic()
    ask = call.header
    await _turn(broker, call.connection)
    try:
        got = await _read_cold(broker, ask, admitted)
    finally:
        broker.cold_pulls.release()
    took = int((monotonic() - since) * 1000)
    broker.statistics.get_took(ask.consumer_group, ask.topic, ask.queue_id, took)
    return await answered(_first(broker, call, admitted, got))


async def _read_cold(broker: Broker, ask: PullMessage, admitted: _Admitted) -> Got:
    return await broker.store.get_cold(ask.topic, ask.queue_id, ask.queue_offset, ask.max_msg_nums, admitted.match)


async def _turn(broker: Broker, connection: Connection) -> None:
    """Read from the disk, as one of the ``cold_pulls``. A peer that does not read its answers waits without a slot."""
    while True:
        await connection.room()
        await broker.cold_pulls.acquire()
        if not connection.crowded:
            return
        broker.cold_pulls.release()


def _first(broker: Broker, call: Call[PullMessage], admitted: _Admitted, got: Got) -> Result:
    """Answer the first read of a pull, or hold the pull."""
    ask = call.header
    if (
        ask.sys_flag & COMMIT_OFFSET
        and not broker.role.is_slave
        and broker.offsets.has_room(ask.consumer_group, ask.topic, ask.queue_id)
    ):
        broker.offsets.commit(ask.consumer_group, ask.topic, ask.queue_id, ask.commit_offset)
    if ask.sys_flag & SUSPEND and _code(ask, got) == ResponseCode.PULL_NOT_FOUND and _elsewhere(broker) is None:
        config = broker.config
        millis = ask.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_mills
        hold = _enter(broker, call, max(millis, 0) / 1000, admitted)
        if hold is not None:
            return _held(broker, call, hold)
        if not broker.holds.closed:
            raise _too_many_held(broker)
    return _answer(broker, call, admitted, got)


async def _held(broker: Broker, call: Call[PullMessage], hold: Hold) -> Reply:
    ask = call.header
    call.held = True
    while True:
        await hold
        await call.connection.room()
        if hold.dropped and ask.queue_offset and not broker.role.is_slave:
            return _begin_anew(call)
        call.look_again(call)
        admitted = _admit(broker, call)
        try:
            got = broker.store.get(ask.topic, ask.queue_id, ask.queue_offset, ask.max_msg_nums, admitted.match)
        except NotInMemory:
            got = await _read_cold(broker, ask, admitted)
        again = _hold_on(broker, call, admitted, got, hold)
        if again is None:
            return _answer(broker, call, admitted, got)
        ask.queue_offset = got.next_begin_offset
        hold = again


def _begin_anew(call: Call[PullMessage]) -> Reply:
    """The answer to a pull whose topic was deleted meanwhile: the queue of a new one begins at 0.

    4.9.7 holds it on, and a member that asks for its old offset then misses the first messages of the new topic.
    """
    reply = PullReply(suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0)
    return Reply(ResponseCode.PULL_OFFSET_MOVED, reply, b"", GetStatus.NO_MATCHED_LOGIC_QUEUE.name)


def _too_many_held(broker: Broker) -> Refused:
    """Clients repeat a pull at once after "not found", and 3 s later after "busy"."""
    holds = broker.holds
    return Refused(
        ResponseCode.SYSTEM_BUSY,
        f"broker busy, start flow control for a while: {holds.most_of_one} pulls of this connection are held already, "
        f"or {holds.most} in all ({len(holds)} now), or their subscriptions are too long to be kept",
    )


def _hold_on(broker: Broker, call: Call[PullMessage], admitted: _Admitted, got: Got, hold: Hold) -> Hold | None:
    """A new hold for the remaining time, if no new message passed the filter and all of them were examined."""
    ask = call.header
    if got.status is not GetStatus.NO_MATCHED_MESSAGE or not hold.rest or _elsewhere(broker) is not None:
        return None
    if got.next_begin_offset < broker.store.max_offset(ask.topic, ask.queue_id):
        return None
    return _enter(broker, call, hold.rest, admitted)


def _enter(broker: Broker, call: Call[PullMessage], seconds: float, admitted: _Admitted) -> Hold | None:
    ask = call.header
    text = len(ask.subscription or "")
    return broker.holds.enter(ask.topic, ask.queue_id, call.connection, seconds, admitted.match.codes, text)


# ---------------------------------------------------------------------- checks


def _check_load(broker: Broker) -> None:
    if broker.config.broker_fast_failure_enable and (waited := broker.late_pulls.waited()) > 0:
        raise Refused(
            ResponseCode.SYSTEM_BUSY,
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {int(waited * 1000)}ms, size of queue: {len(broker.holds)}",
        )


def _admit(broker: Broker, call: Call[PullMessage]) -> _Admitted:
    """The checks in RocketMQ's order: broker, group, topic, queue, subscription. Raises Refused."""
    ask = call.header
    readable(broker)
    if not broker.config.broker_permission & PERM_READ:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.config.broker_ip1}] pulling message is forbidden"
        )
    name = ask.consumer_group
    group = broker.groups.find(name)
    if group is None:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist, {FAQ}")
    if not group.consume_enable:
        raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
    config = broker.topics.get(ask.topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{ask.topic}] not exist, apply first please! {FAQ}")
    if not config.perm & PERM_READ:
        raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{ask.topic}] pulling message is forbidden")
    if not 0 <= ask.queue_id < config.read_queue_nums:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"queueId[{ask.queue_id}] is illegal, topic:[{ask.topic}] "
            f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[/{call.connection.remote}]",
        )
    if ask.sub_version is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "PullMessage needs the custom field <subVersion>")
    subscription = _given(ask) if ask.sys_flag & SUBSCRIPTION else _known(broker, ask, group, ask.sub_version)
    return _Admitted(group, _matcher(broker, ask, subscription))


def _given(ask: PullMessage) -> SubscriptionData:
    """The subscription in the pull itself."""
    text = ask.subscription or ""
    if len(text) > LONGEST_SUBSCRIPTION or text.count("||") >= MOST_TAGS:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: it has more than {LONGEST_SUBSCRIPTION} characters or "
            f"{MOST_TAGS} tags; subscribe to '*' and choose in the listener, or filter by a property",
        )
    try:
        return build_subscription(
            ask.topic, ask.subscription, version=ask.sub_version or 0, expression_type=ask.expression_type
        )
    except ValueError:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed") from None


def _known(broker: Broker, ask: PullMessage, config: SubscriptionGroupConfig, version: int) -> SubscriptionData:
    """The subscription from the group's heartbeats."""
    group = broker.clients.consumer(ask.consumer_group)
    if group is None:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
    if not config.consume_broadcast_enable and group.broadcasting:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the consumer group[{ask.consumer_group}] can not consume by broadcast way"
        )
    subscription = group.subscriptions.get(ask.topic)
    if subscription is None:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
    if subscription.sub_version < version:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    return subscription


def _matcher(broker: Broker, ask: PullMessage, subscription: SubscriptionData) -> Matcher:
    """The matcher for the store. Raises Refused for filters that this broker does not evaluate."""
    if subscription.class_filter_mode:
        raise class_filter_refused()
    if is_tag_type(subscription.expression_type):
        match = matchers.by_tags(subscription)
    else:
        match = _by_expression(broker, ask, subscription)
    if broker.config.filter_support_retry and ask.topic.startswith(names.RETRY_PREFIX):
        return matchers.of_retry_topic(ask.topic, match, broker.filters.get)
    return match


def _by_expression(broker: Broker, ask: PullMessage, subscription: SubscriptionData) -> Matcher:
    """The matcher of the pull's expression, or of the registered one.

    An expression that is wrong is refused (23), as a check of it is (46): 4.9.7 lets every message pass it.
    """
    given = ask.sys_flag & SUBSCRIPTION
    known = None if given else broker.filters.get(ask.topic, ask.consumer_group)
    if not given and known is None:
        raise Refused(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )
    if known is not None and known.data.client_version < (ask.sub_version or 0):
        raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
    if not broker.config.enable_property_filter or subscription.expression_type != SQL92:
        raise filter_refused(subscription.expression_type)
    if known is not None:
        return matchers.by_expression(known.expression)
    try:
        return matchers.by_expression(compile_sql(subscription.sub_string or ""))
    except Sql92Error as error:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


# ---------------------------------------------------------------------- answers


def _code(ask: PullMessage, got: Got) -> ResponseCode:
    code = _CODES.get(got.status)
    if code is None:  # no such queue, or an empty one
        code = ResponseCode.PULL_OFFSET_MOVED if ask.queue_offset else ResponseCode.PULL_NOT_FOUND
    return code


def _answer(broker: Broker, call: Call[PullMessage], admitted: _Admitted, got: Got) -> Reply:
    ask = call.header
    code = _code(ask, got)
    reply = PullReply(
        suggest_which_broker_id=_suggestion(broker, admitted.group, got),
        next_begin_offset=_next(broker, ask, got),
        min_offset=got.min_offset,
        max_offset=got.max_offset,
    )
    if got.status is GetStatus.FOUND:
        key = ask.consumer_group, ask.topic, ask.queue_id
        broker.statistics.got(*key, got.message_count, got.size, got.next_begin_offset)
        return Reply(0, reply, got.buffers, "FOUND")
    master = _elsewhere(broker)
    if master is not None:
        reply.suggest_which_broker_id, reply.next_begin_offset = master, ask.queue_offset
        if got.status in _READ:
            reply.next_begin_offset = got.next_begin_offset
        return Reply(ResponseCode.PULL_RETRY_IMMEDIATELY, reply, b"", got.status.name)
    if code == ResponseCode.PULL_OFFSET_MOVED:
        code = _offset_moved(broker, ask, admitted.group, got, reply)
    return Reply(code, reply, b"", got.status.name)


def _elsewhere(broker: Broker) -> int | None:
    """The number of the master of the group, where this broker cannot follow it, as its disk fails or hangs.

    Clients whose route is old know that broker as a slave, by this number: what is new is there. With a newer route
    they ask who has the next number in its place, or else the master. Where that is this broker, about every other
    answer names the master of their route.
    """
    part = broker.group_part
    if part is None or part.group is None or not part.disk_failed:
        return None
    if part.leader() is None:
        return None
    master = part.group.master_broker_id
    return MASTER_ID if master + 1 == part.broker_id and getrandbits(1) else master


def _next(broker: Broker, ask: PullMessage, got: Got) -> int:
    """The next offset. A slave corrects no offset, since it may lag behind its master (offsetCheckInSlave)."""
    corrects = not broker.role.is_slave or broker.config.store.offset_check_in_slave
    return got.next_begin_offset if corrects or got.status in _READ else ask.queue_offset


def _suggestion(broker: Broker, group: SubscriptionGroupConfig, got: Got) -> int:
    if not broker.config.slave_read_enable:
        return 0
    return group.which_broker_when_consume_slowly if got.suggest_slow else group.broker_id


def _offset_moved(
    broker: Broker, ask: PullMessage, group: SubscriptionGroupConfig, got: Got, reply: PullReply
) -> ResponseCode:
    """A group's offset is out of range: a master reports it, but not with each pull; a slave corrects nothing."""
    if broker.role.is_slave and not broker.config.store.offset_check_in_slave:
        reply.suggest_which_broker_id = group.broker_id
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if broker.moved_offsets.is_due(ask.consumer_group, ask.topic, ask.queue_id, broker.monotonic()):
        _report_moved(broker, ask, got)
    return ResponseCode.PULL_OFFSET_MOVED


def _report_moved(broker: Broker, ask: PullMessage, got: Got) -> None:
    """Log a corrected offset, and store an OFFSET_MOVED_EVENT."""
    log.warning(
        "offset_moved",
        group=ask.consumer_group,
        topic=ask.topic,
        queue_id=ask.queue_id,
        asked=ask.queue_offset,
        new=got.next_begin_offset,
    )
    moved = OffsetMovedEvent(
        consumer_group=ask.consumer_group,
        message_queue=MessageQueue(ask.topic, broker.name, ask.queue_id),
        offset_new=got.next_begin_offset,
        offset_request=ask.queue_offset,
    )
    broker.store.appender.put(
        names.OFFSET_MOVED_EVENT,
        0,
        moved.encode(),
        encode_properties({names.KEYS: ask.consumer_group, names.TAGS: ask.consumer_group, names.DELAY: "0"}),
        born_timestamp=broker.clock(),
        born_host=broker.store_host,
        store_host=broker.store_host,
        sys_flag=broker.store_host_bits,
    )
