"""Telling a user that a topic has other queues than before.

Owns the queues that each watched topic had at the last look. A listener is told of each change once; what it raises
goes to the log. Facts: fetchTopicMessageQueuesAndCompare in 4.9.7.
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
"""Seconds after the start in which topics are looked at for the first time, unless the interval is shorter."""

TopicMessageQueueChangeListener = Callable[[str, list[MessageQueue]], Awaitable[None] | None]
"""Told of a topic and its queues."""


class TopicWatch:
    """Looks at topics every ``interval`` seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._listeners: dict[str, TopicMessageQueueChangeListener] = {}
        self._known: dict[str, list[MessageQueue]] = {}

    async def add(self, directory: Directory | None, topic: str, listener: TopicMessageQueueChangeListener) -> None:
        """Watch a topic, also one that is not there yet; another listener takes the place of the first.

        Raises UsageError and NameserverUnreachable.
        """
        callbacks.check_callable(listener, "The listener")
        self._listeners[topic] = listener
        if directory is not None:
            self._known[topic] = await _queues(directory, topic)

    async def keep(self, directory: Directory) -> None:
        """Look again and again."""
        for topic in tuple(self._listeners):
            await self._look(directory, topic, tell=topic in self._known)
        await asyncio.sleep(min(FIRST_LOOK, self._interval))
        while True:
            for topic in tuple(self._listeners):
                await self._look(directory, topic)
            await asyncio.sleep(self._interval)

    async def _look(self, directory: Directory, topic: str, *, tell: bool = True) -> None:
        try:
            queues = await _queues(directory, topic)
        except ClientError as error:
            log.warning("the queues of %s are not known now: %s", topic, error)
            return
        before, self._known[topic] = self._known.get(topic), queues
        if tell and queues != before:
            try:
                await callbacks.call(self._listeners[topic], topic, queues)
            except Exception:
                log.exception("the listener for changes of %s failed", topic)


async def _queues(directory: Directory, topic: str) -> list[MessageQueue]:
    try:
        return sorted((await directory.refresh(topic)).to_read)
    except TopicNotFound:
        return []
