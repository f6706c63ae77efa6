"""TopicWatch: calls a listener when the queues of a topic change.

Owns the queues that each watched topic had at the last lookup. A listener is called once per change; errors go to the
log. Facts: TopicMessageQueueChangeListener and fetchTopicMessageQueuesAndCompare in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from eruca.client import callbacks
from eruca.client.errors import ClientError, TopicNotFound
from eruca.client.log import log
from eruca.client.network.directory import Directory
from eruca.protocol.queues import MessageQueue

FIRST_LOOK = 10.0
"""Seconds from the start to the first lookup, unless the interval is shorter."""

TopicMessageQueueChangeListener = Callable[[str, list[MessageQueue]], Awaitable[None] | None]
"""Called with a topic and its queues."""


class TopicWatch:
    """Looks up topics every ``interval`` seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._listeners: dict[str, TopicMessageQueueChangeListener] = {}
        self._known: dict[str, list[MessageQueue]] = {}

    async def add(self, directory: Directory | None, topic: str, listener: TopicMessageQueueChangeListener) -> None:
        """Watch a topic, even if it does not exist yet; a second listener replaces the first.

        Raises UsageError and NameserverUnreachable.
        """
        callbacks.check_callable(listener, "The listener", "topic", "queues")
        self._listeners[topic] = listener
        if directory is not None:
            self._known[topic] = await _queues(directory, topic)

    async def run(self, directory: Directory) -> None:
        """Look up the topics periodically."""
        for topic in tuple(self._listeners):
            await self._look_up(directory, topic, notify=topic in self._known)
        await asyncio.sleep(min(FIRST_LOOK, self._interval))
        while True:
            for topic in tuple(self._listeners):
                await self._look_up(directory, topic)
            await asyncio.sleep(self._interval)

    async def _look_up(self, directory: Directory, topic: str, *, notify: bool = True) -> None:
        try:
            queues = await _queues(directory, topic)
        except ClientError as error:
            log.warning("the queues of %s are not known now: %s", topic, error)
            return
        before, self._known[topic] = self._known.get(topic), queues
        if notify and queues != before:
            try:
                await callbacks.call(self._listeners[topic], topic, queues)
            except Exception:
                log.exception("the listener for changes of %s failed", topic)


async def _queues(directory: Directory, topic: str) -> list[MessageQueue]:
    try:
        return sorted((await directory.refresh(topic)).to_read)
    except TopicNotFound:
        return []
