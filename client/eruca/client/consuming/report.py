"""What a consumer tells brokers and operators about itself: the answers to 307 and 309.

Owns the form of the figures. Facts: DefaultMQPushConsumerImpl.consumerRunningInfo and consumeMessageDirectly in 4.9.7.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from eruca.client.consuming.listeners import Work, clock
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.queue_puller import Reads
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Decision
from eruca.protocol.bodies import (
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    ProcessQueueInfo,
    SubscriptionData,
)
from eruca.protocol.codes import VERSION, version_name
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record
from eruca.remoting.clock import now_ms

if TYPE_CHECKING:
    from eruca.client.consuming.concurrent import Concurrent
    from eruca.client.consuming.member import PushMember
    from eruca.client.consuming.orderly import Orderly


def consume_from_where(start: str | int) -> ConsumeFromWhere:
    """The name of where a group begins: at "first", "last", "end" or a time."""
    names = {
        "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        "end": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    }
    return names.get(str(start), ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)


def running_info(
    consumer: PushMember,
    readers: Iterable[Reads],
    nameservers: Iterable[str],
    with_stacks: bool,
    held: Callable[[MessageQueue], bool] | None = None,
) -> ConsumerRunningInfo:
    """The state of a consumer; ``with_stacks`` adds where its threads are, ``held`` says which queues are locked."""
    return ConsumerRunningInfo(
        jstack=_stacks() if with_stacks else None,
        mq_table={reader.run.queue: _queue_info(reader, held) for reader in readers},
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(nameservers),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": str(consumer.orderly).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(consumer.concurrency),
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_at),
            "consumerGroup": consumer.group,
            "messagesConsumed": str(consumer.paces.consumed),
            "messagesFailed": str(consumer.paces.failed),
        },
        status_table={topic: consumer.paces[topic].status(clock()) for topic in consumer.subscriptions},
        subscription_set=list(consumer.subscriptions.values()),
    )


def active_info(
    figures: Mapping[str, str],
    started_at: int,
    subscriptions: Iterable[SubscriptionData],
    readers: Iterable[Reads],
    nameservers: Iterable[str],
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """The state of a consumer that pulls by itself; ``figures`` are its settings under the names of Java's class."""
    return ConsumerRunningInfo(
        jstack=_stacks() if with_stacks else None,
        mq_table={reader.run.queue: _queue_info(reader) for reader in readers},
        properties={
            **figures,
            "PROP_NAMESERVER_ADDR": ";".join(nameservers),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(started_at),
        },
        subscription_set=list(subscriptions),
    )


def _queue_info(reader: Reads, held: Callable[[MessageQueue], bool] | None = None) -> ProcessQueueInfo:
    run = reader.run
    locked = held is not None and held(run.queue)
    waits = len(run) > 0
    return ProcessQueueInfo(
        cached_msg_count=len(run),
        cached_msg_min_offset=run.position if waits else 0,
        cached_msg_max_offset=run.position + run.span if waits else 0,
        cached_msg_size_in_mib=run.size >> 20,
        commit_offset=run.position if run.to_store is None else run.to_store,
        droped=run.dropped,
        last_pull_timestamp=reader.last_pull,
        last_consume_timestamp=now_ms() - int((clock() - run.consumed_at) * 1000) if run.consumed_at else 0,
        locked=locked,
        last_lock_timestamp=now_ms() if locked else 0,
    )


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(number, number)}\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    )


async def consume_directly(
    processing: Concurrent | Orderly, record: Record, broker: str
) -> ConsumeMessageDirectlyResult:
    """Let the listener have one message, outside all queues (309)."""
    queue = MessageQueue(record.topic, broker, record.queue_id)
    work = processing.work_of(ProcessQueue(queue, record.queue_offset), ReceivedMessage(record, queue))
    began = now_ms()
    await processing.runner.consume(work)
    return direct_result(work, now_ms() - began)


def direct_result(work: Work, spent: int) -> ConsumeMessageDirectlyResult:
    """How a message that was given to the listener directly ended; ``spent`` in ms."""
    result = ConsumeResult.CR_SUCCESS
    if work.error is not None:
        result = ConsumeResult.CR_THROW_EXCEPTION
    elif isinstance(work.outcome, Decision):
        result = ConsumeResult.CR_COMMIT if work.outcome is Decision.COMMIT else ConsumeResult.CR_ROLLBACK
    elif work.outcome is not None:
        result = ConsumeResult.CR_LATER
    return ConsumeMessageDirectlyResult(
        consume_result=result,
        remark=None if work.error is None else f"{type(work.error).__name__}: {work.error}",
        spent_time_mills=spent,
    )
