"""Sends that cannot leave yet: the route of their topic is not known, or the broker of their queue is not connected.

Owns, for each such topic and queue, its gate: the sends that wait there, in their order, and the work of each, which
asks for the route or connects within the time of its send. Invariants: the first that gets through takes all others of
its gate along, ahead of what was started after them; a send that fails fails alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eruca.client.errors import ClientError, TopicNotFound
from eruca.client.network.session import Session
from eruca.client.producing.backoff import stopped
from eruca.client.producing.send import Send
from eruca.client.producing.topic_queues import TopicQueues
from eruca.protocol.queues import MessageQueue

_Place = str | MessageQueue
"""The name of a topic without a route, or a queue without a connection."""


class Gates:
    """The gates of one sender.

    Args:
        new_topic_queues: queues of a topic that the first send creates.
        let_go: has sends leave, in their order and before others.
        failed: a send got no route, or no connection, or not in its time (TimeoutError).
        drop: ends a send that the end of the session overtook, or that met a defect.
    """

    def __init__(
        self,
        session: Session,
        new_topic_queues: int,
        *,
        let_go: Callable[[list[Send]], None],
        failed: Callable[[Send, ClientError | TimeoutError], None],
        drop: Callable[[Send, BaseException], None],
    ) -> None:
        self._session = session
        self._new_topic_queues = new_topic_queues
        self._let_go, self._failed, self._drop = let_go, failed, drop
        self._waiting: dict[_Place, dict[Send, asyncio.Task[None]]] = {}

    def __contains__(self, place: _Place) -> bool:
        """Whether sends wait for a topic, or a queue: others that follow wait behind them."""
        return place in self._waiting

    def sends(self) -> list[Send]:
        """All that wait."""
        return [send for each in self._waiting.values() for send in each]

    def wait(self, send: Send) -> None:
        """Have a send wait for its queue, or for its topic where no queue is chosen."""
        place = send.topic.name if send.queue is None else send.queue

        def ended(task: asyncio.Task[None]) -> None:
            error = stopped() if task.cancelled() else task.exception()
            if error is not None and self._leave(place, send):
                self._drop(send, error)

        task = self._session.spawn(self._work(place, send))
        self._waiting.setdefault(place, {})[send] = task
        task.add_done_callback(ended)

    def _leave(self, place: _Place, send: Send) -> bool:
        """Take a send from its gate; False where another one has taken it along."""
        waiting = self._waiting.get(place, {})
        if waiting.pop(send, None) is None:
            return False
        if not waiting:
            del self._waiting[place]
        return True

    async def _work(self, place: _Place, send: Send) -> None:
        try:
            async with asyncio.timeout_at(send.end):
                await (self._connect(send.queue, send.topic.name) if send.queue is not None else self._ask(send.topic))
        except (ClientError, TimeoutError) as error:
            if self._leave(place, send):
                self._failed(send, error)
        else:
            waiting = self._waiting.pop(place, {})
            for other, task in waiting.items():
                if other is not send:
                    task.cancel()
            self._let_go([*waiting])

    async def _ask(self, topic: TopicQueues) -> None:
        directory = self._session.directory
        await directory.route_to_send(topic.name, self._new_topic_queues)
        if topic.version != directory.version:
            topic.renew(directory)
        if not topic.in_turn:
            raise TopicNotFound(topic.name, "It has no queue that can be written: look at its permissions.")

    async def _connect(self, queue: MessageQueue, topic: str) -> None:
        await self._session.connection(await self._session.to_send(queue.broker_name, topic))
