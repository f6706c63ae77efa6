"""What a plan needs to know of a cluster: its queues, their bounds, and offsets by time and by group.

Owns the questions to nameservers and brokers, and what options mean in terms of offsets. Every function is a coroutine
on the link's loop and takes the consumer to ask with. Knows nothing of Spark.

Times: a broker's search by time answers with the nearer neighbour, so what it says is refined by the store times of
the messages themselves. They rise within a queue as long as the broker's clock does not step back.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from eruca.client import MessageQueue, PullConsumer, PullStatus
from eruca.client.errors import BrokerRefused, ClientError, NameserverUnreachable, TopicNotFound
from eruca.protocol import api, names
from eruca.protocol.bodies import (
    PERM_READ,
    PERM_WRITE,
    CheckClientRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicList,
)
from eruca.protocol.headers.topics import CreateTopic
from eruca.protocol.subscription import SQL92, build_subscription
from eruca.spark_connector import replicas
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import Options
from eruca.spark_connector.positions import EARLIEST, LATEST, Positions, Range
from eruca.spark_connector.pushdown import NEVER, Wanted

T = TypeVar("T")
log = logging.getLogger("eruca.spark")

WAITS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further attempt at what a broker did not answer or was too busy for: time enough to restart."""
LONG_ENOUGH = 30.0
"""Seconds after which there is no third attempt: one that keeps silent lets each of them run into its time limit."""


async def persist(consumer: PullConsumer, topic: str, work: Callable[[], Awaitable[T]]) -> T:
    """``work``, again after a while when it fails with an error that may pass, by a route that is asked for anew."""
    began = time.monotonic()
    for place, wait in enumerate(WAITS):
        try:
            return await work()
        except ClientError as error:
            if not error.retriable or isinstance(error, TopicNotFound | NameserverUnreachable):
                raise
            if place and time.monotonic() - began >= LONG_ENOUGH:
                raise
        await asyncio.sleep(wait)
        with suppress(ClientError):
            await consumer.fetch_queues(topic)
    return await work()


async def each(
    consumer: PullConsumer, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> dict[MessageQueue, T]:
    """What ``ask`` says of every queue, all asked at once."""
    chosen = list(queues)
    answers = await asyncio.gather(*(persist(consumer, queue.topic, partial(ask, queue)) for queue in chosen))
    return dict(zip(chosen, answers, strict=True))


@dataclass(frozen=True)
class Ends:
    """Where queues end; ``by_slave`` are those of which only a slave could be asked, which may be behind."""

    offsets: dict[MessageQueue, int]
    by_slave: frozenset[MessageQueue] = frozenset()


async def find_queues(consumer: PullConsumer, options: Options) -> list[MessageQueue]:
    """The queues that the options choose, in order. Raises SourceError when there are none."""
    if options.assign:
        return await _assigned(consumer, options.assign)
    topics = list(options.subscribe)
    if options.subscribe_pattern is not None:
        topics = await _matching_topics(consumer, options.subscribe_pattern)
    found = await asyncio.gather(*map(consumer.fetch_queues, topics))
    queues = sorted({queue for queues in found for queue in queues})
    if not queues:
        raise SourceError(f"No queue of {', '.join(topics)} can be read: check the topics' permissions.")
    return queues


async def _assigned(consumer: PullConsumer, assign: Mapping[str, Mapping[str, tuple[int, ...]]]) -> list[MessageQueue]:
    chosen = []
    for topic, brokers in assign.items():
        there = set(await consumer.fetch_queues(topic))
        for broker, numbers in brokers.items():
            for number in numbers:
                queue = MessageQueue(topic, broker, number)
                if queue not in there:
                    names_there = ", ".join(f"{each.broker_name}:{each.queue_id}" for each in sorted(there))
                    raise SourceError(
                        f"assign names queue {number} of {topic} at {broker}, which cannot be read; "
                        f"there are {names_there or 'none'}."
                    )
                chosen.append(queue)
    return sorted(chosen)


async def _matching_topics(consumer: PullConsumer, pattern: str) -> list[str]:
    answer = await consumer.session.nameservers.call(api.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    wanted = re.compile(pattern)
    topics = [
        topic
        for topic in sorted(set(TopicList.decode(answer.body).topic_list))
        if wanted.fullmatch(topic) and not names.is_system_topic(topic)
    ]
    if not topics:
        raise SourceError(f'subscribePattern="{pattern}" matches no topic: the whole name has to match.')
    return topics


async def prepare(consumer: PullConsumer, options: Options, queues: Iterable[MessageQueue]) -> None:
    """Settle what has to be before the first pull: its group, and the filter. Raises SourceError."""
    chosen = sorted(queues)
    if options.create_pull_group:
        await _create_group(consumer, chosen)
    await check_filter(consumer, options, chosen)


async def _create_group(consumer: PullConsumer, queues: Iterable[MessageQueue]) -> None:
    """Make the consumer's group at each broker that does not have it; where it is, its settings stay."""
    group = consumer.session.names.to_broker(consumer.group)
    for queue in {each.broker_name: each for each in queues}.values():
        address = await consumer.session.master(queue.broker_name, queue.topic)
        try:
            answer = await consumer.session.call(address, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            if group in SubscriptionGroupWrapper.decode(answer.body).subscription_group_table:
                continue
            body = SubscriptionGroupConfig(group_name=group).encode()
            await consumer.session.call(address, api.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        except BrokerRefused as error:
            raise SourceError(
                f"The broker {queue.broker_name} does not let this account make the group {consumer.group} "
                f"({error.remark}): make it with `mqadmin updateSubGroup` and leave createPullGroup out."
            ) from None


async def check_filter(consumer: PullConsumer, options: Options, queues: Iterable[MessageQueue]) -> None:
    """Let every broker judge the SQL filter (46): a bad one inside a pull would match everything.

    Raises SourceError.
    """
    if options.sql_filter is None:
        return
    first = {queue.broker_name: queue for queue in sorted(queues, reverse=True)}
    for queue in first.values():
        subscription = build_subscription(queue.topic, options.sql_filter, version=0, expression_type=SQL92)
        body = CheckClientRequestBody(
            client_id=consumer.session.client_id, group=consumer.group, subscription_data=subscription
        )
        try:
            await replicas.ask(consumer, queue, api.CHECK_CLIENT_CONFIG, body=body.encode())
        except BrokerRefused as error:
            raise SourceError(
                f'The broker {queue.broker_name} refuses sqlFilter="{options.sql_filter}": {error.remark} '
                "(SQL filters also need enablePropertyFilter=true at the broker)."
            ) from None


# ---------------------------------------------------------------------- positions


async def starts(
    consumer: PullConsumer, options: Options, queues: Iterable[MessageQueue], now: int
) -> dict[MessageQueue, int]:
    """Where a new query begins in each queue; ``now`` is the time in ms.

    startingTimestamp comes before startingOffsetsByTimestamp, and that before startingOffsets. Raises SourceError.
    """
    chosen = list(queues)
    times = _times(
        options.starting_timestamp, options.starting_offsets_by_timestamp, chosen, "startingOffsetsByTimestamp"
    )
    if times is None:
        return await _named(consumer, options, chosen, options.starting_offsets, "startingOffsets")

    async def start(queue: MessageQueue) -> int:
        found = await offset_from(consumer, queue, times[queue])
        if found is not None:
            return found
        if times[queue] > now and options.starting_offsets_by_timestamp_strategy == "error":
            raise SourceError(
                f"The starting time {times[queue]} lies in the future and {queue} holds no message from then on: give "
                'an earlier time in ms since 1970, or startingOffsetsByTimestampStrategy="latest".'
            )
        return await replicas.max_offset(consumer, queue)

    return await each(consumer, chosen, start)


async def ends(consumer: PullConsumer, options: Options, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Where a batch ends in each queue, without the offset itself. Raises SourceError."""
    chosen = list(queues)
    times = _times(options.ending_timestamp, options.ending_offsets_by_timestamp, chosen, "endingOffsetsByTimestamp")
    if times is None:
        return await _named(consumer, options, chosen, options.ending_offsets, "endingOffsets")

    async def end(queue: MessageQueue) -> int:
        found = await offset_from(consumer, queue, times[queue])
        return await replicas.max_offset(consumer, queue) if found is None else found

    return await each(consumer, chosen, end)


def _times(
    everywhere: int | None, by_queue: Positions | None, queues: list[MessageQueue], option: str
) -> Positions | None:
    if everywhere is not None:
        return dict.fromkeys(queues, everywhere)
    if by_queue is not None:
        _check_complete(by_queue, queues, option, "")
    return by_queue


def _check_complete(wanted: Positions, queues: list[MessageQueue], option: str, hint: str) -> None:
    for queue in sorted(set(wanted) - set(queues)):
        raise SourceError(f"{option} names {queue}, which this query does not read.")
    for queue in sorted(set(queues) - set(wanted)):
        raise SourceError(f"{option} leaves {queue} out: name every queue that is read{hint}.")


async def _named(
    consumer: PullConsumer, options: Options, queues: list[MessageQueue], wanted: str | Positions, option: str
) -> dict[MessageQueue, int]:
    if isinstance(wanted, str):
        marks: Positions = dict.fromkeys(queues, EARLIEST if wanted == "earliest" else LATEST)
    else:
        _check_complete(wanted, queues, option, ", with -2 for its beginning and -1 for its end")
        marks = wanted

    async def position(queue: MessageQueue) -> int:
        if wanted == "group":
            found = await consumer.query_offset(queue, group=options.commit_group)
            if found is not None:
                return max(found, await replicas.min_offset(consumer, queue))
        if marks[queue] == EARLIEST:
            return await replicas.min_offset(consumer, queue)
        return await replicas.max_offset(consumer, queue) if marks[queue] == LATEST else marks[queue]

    return await each(consumer, queues, position)


async def latest(consumer: PullConsumer, options: Options) -> Ends:
    """Where every queue ends now."""
    return _ends(await each(consumer, await find_queues(consumer, options), partial(replicas.end, consumer)))


def _ends(answers: Mapping[MessageQueue, tuple[int, bool]]) -> Ends:
    by_slave = frozenset(queue for queue, (_, slave) in answers.items() if slave)
    return Ends({queue: end for queue, (end, _) in answers.items()}, by_slave)


async def latest_in_reach(consumer: PullConsumer, options: Options, known: Iterable[MessageQueue]) -> Ends:
    """Where the queues end whose brokers answer; the others are left out, as long as one answers.

    While no nameserver answers, the ``known`` queues are asked about.
    """
    queues = list(known)
    try:
        queues = await find_queues(consumer, options)
    except NameserverUnreachable as error:
        if not queues:
            raise
        log.warning("no new queues are looked for: %s", error)
    answers = await asyncio.gather(*(replicas.end(consumer, queue) for queue in queues), return_exceptions=True)
    found = {}
    for queue, answer in zip(queues, answers, strict=True):
        if isinstance(answer, tuple):
            found[queue] = answer
        elif (
            not isinstance(answer, ClientError)
            or not answer.retriable
            or not any(isinstance(each, tuple) for each in answers)
        ):
            raise answer
        else:
            log.warning("%s stays where it is, since its broker does not answer: %s", queue, answer)
    return _ends(found)


async def offset_from(consumer: PullConsumer, queue: MessageQueue, timestamp: int) -> int | None:
    """The first offset that was stored at ``timestamp`` (ms) or later; None where there is none."""
    low, end = await replicas.min_offset(consumer, queue), await replicas.max_offset(consumer, queue)
    high = end
    if low >= high:
        return None
    guess = min(max(await replicas.offset_by_time(consumer, queue, timestamp), low), high - 1)
    # The offset sought is in low … high. The search's answer is a neighbour nearly always: so steps away from it that
    # begin with one and double, and halves once the offset is between two that were looked at.
    step, first, stepping = 1, None, True
    while low < high:
        late = await _store_time(consumer, queue, guess) >= timestamp
        low, high = (low, guess) if late else (guess + 1, high)
        first = late if first is None else first
        stepping = stepping and late is first
        if stepping:
            guess = max(low, guess - step) if late else min(high - 1, guess + step)
            step *= 2
        else:
            guess = (low + high) // 2
    return low if low < end else None


async def narrow(consumer: PullConsumer, ranges: list[Range], wanted: Wanted) -> list[Range]:
    """What is left of the ranges where only this is wanted."""

    async def left(whole: Range) -> Range:
        queue, times = whole.queue, wanted.times
        start, end = max(whole.start, wanted.offsets.low), min(whole.end, wanted.offsets.high)
        if start < end and times.low > 0:
            found = await offset_from(consumer, queue, times.low)
            start = end if found is None else max(start, found)
        if start < end and times.high < NEVER:
            found = await offset_from(consumer, queue, max(0, times.high))
            end = end if found is None else min(end, found)
        return Range(queue, start, end)

    narrowed = await asyncio.gather(*(left(each) for each in ranges if wanted.has(each.queue)))
    return [each for each in narrowed if each.start < each.end]


async def _store_time(consumer: PullConsumer, queue: MessageQueue, offset: int) -> int:
    result = await persist(consumer, queue.topic, lambda: replicas.pull_one(consumer, queue, offset))
    if result.status is not PullStatus.FOUND or not result.records:
        raise SourceError(
            f"No message was found at offset {offset} of {queue} ({result.status.name}), though the queue reaches from "
            f"{result.min_offset} to {result.max_offset}: it changes too quickly, or its store is damaged."
        )
    return result.records[0].store_timestamp


async def announce(consumer: PullConsumer, group: str, queues: Iterable[MessageQueue]) -> None:
    """Let tools find a group that has no members: they look at the brokers that have its topic of retries.

    Raises ClientError.
    """
    topic = names.retry_topic(group)
    try:
        known = {each.broker_name for each in await consumer.fetch_queues(topic)}
    except TopicNotFound:
        known = set()
    ask = CreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1, perm=PERM_READ | PERM_WRITE)
    for queue in {each.broker_name: each for each in queues if each.broker_name not in known}.values():
        address = await consumer.session.master(queue.broker_name, queue.topic)
        await consumer.session.call(address, api.UPDATE_AND_CREATE_TOPIC, ask)


async def commit(consumer: PullConsumer, group: str, positions: Positions) -> None:
    """Report to the brokers where the group goes on. Raises ClientError when one cannot be told."""
    await asyncio.gather(*(consumer.update_offset(queue, offset, group=group) for queue, offset in positions.items()))


async def group_offsets(
    consumer: PullConsumer, group: str, queues: Iterable[MessageQueue]
) -> dict[MessageQueue, int | None]:
    """Where the group goes on in each queue, as its brokers say; None where it has no offset. Raises ClientError."""
    chosen = list(queues)
    found = await asyncio.gather(*(consumer.query_offset(queue, group=group) for queue in chosen))
    return dict(zip(chosen, found, strict=True))
