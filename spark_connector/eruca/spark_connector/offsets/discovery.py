"""Which queues a query reads: those of its topics, of a pattern, or of an assignment.

Owns the questions to nameservers. Every function is a coroutine on the loop of the clients.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import TopicNotFound
from eruca.protocol import api, names
from eruca.protocol.bodies import TopicList
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import Options


async def find_queues(consumer: PullConsumer, options: Options) -> list[MessageQueue]:
    """The queues that the options choose, in order. Raises SourceError when there are none."""
    if options.assign:
        return await _assigned(consumer, options.assign)
    topics = list(options.subscribe)
    if options.subscribe_pattern is not None:
        topics = await _matching_topics(consumer, options.subscribe_pattern)
    found = await asyncio.gather(*(_queues_of(consumer, topic) for topic in topics))
    queues = sorted({queue for queues in found for queue in queues})
    if not queues:
        raise SourceError(f"No queue of {', '.join(topics)} can be read: check the topics' permissions.")
    return queues


def chooses(options: Options, queue: MessageQueue) -> bool:
    """Whether the options choose a queue, if it is there."""
    if options.assign:
        return queue.queue_id in options.assign.get(queue.topic, {}).get(queue.broker_name, ())
    if options.subscribe_pattern is not None:
        return _matches(options.subscribe_pattern, queue.topic)
    return queue.topic in options.subscribe


def _matches(pattern: str, topic: str) -> bool:
    """Whether a pattern means a topic: retry and dead letter topics only where it names their %."""
    if names.is_system_topic(topic) or (topic.startswith("%") and "%" not in pattern):
        return False
    return re.fullmatch(pattern, topic) is not None


async def _assigned(consumer: PullConsumer, assign: Mapping[str, Mapping[str, tuple[int, ...]]]) -> list[MessageQueue]:
    chosen = []
    for topic, brokers in assign.items():
        there = set(await _queues_of(consumer, topic))
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


async def _queues_of(consumer: PullConsumer, topic: str) -> list[MessageQueue]:
    try:
        return await consumer.fetch_queues(topic)
    except TopicNotFound as error:
        stored = consumer.session.names.to_broker(topic)
        asked = "" if stored == topic else f", where the option namespace makes it {stored}"
        raise SourceError(f"{error} Look for its name in `mqadmin topicList`{asked}.") from error


async def _matching_topics(consumer: PullConsumer, pattern: str) -> list[str]:
    ask = consumer.session.nameservers.call
    known, own = await asyncio.gather(
        ask(api.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), ask(api.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    )
    named = TopicList.decode(own.body).topic_list  # each cluster and broker has a topic of its name
    left_out = {*named, *map(names.reply_topic, named)}
    topics = [
        topic
        for topic in sorted(set(TopicList.decode(known.body).topic_list))
        if topic not in left_out and _matches(pattern, topic)
    ]
    if not topics:
        raise SourceError(f'subscribePattern="{pattern}" matches no topic: the whole name has to match.')
    return topics
