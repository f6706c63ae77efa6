"""Sends that cannot leave yet: the route of their topic is not known, or the broker of their queue is not connected.

Owns, for each such topic and queue, its gate: the sends that wait there, in their order, each within its time, and the
one task that asks for the route or connects for all of them, again and again while no nameserver answers. Invariants:
when it gets through, all leave together, ahead of what was started after them; a send whose time is over fails alone.
Time in which the event loop stood still is not counted: the program did something else, or the machine let it wait,
and what nameserver and broker answered meanwhile was not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from eruca.client.errors import ClientError, NameserverUnreachable, TopicNotFound
from eruca.client.network.routes import MASTER
from eruca.client.network.session import Session
from eruca.client.producing.backoff import stopped, waits_from
from eruca.client.producing.send import Send
from eruca.client.producing.topic_queues import TopicQueues
from eruca.protocol.queues import MessageQueue

LOOK: Final = 0.25
"""Seconds between two looks at whether the loop stood still."""
STILL: Final = 0.1
"""Seconds by which a look is late from which on the loop stood still."""
_Place = str | MessageQueue
"""The name of a topic without a route, or a queue without a connection."""


class _MastersAway(TopicNotFound):
    """No broker of a topic has a master, for a moment or for longer."""

    def __init__(self, topic: str, brokers: Iterable[str]) -> None:
        super().__init__(topic, f"None of its brokers has a master now: {', '.join(sorted(brokers))}.")


class _Reaching:
    """The attempts to get a route or a connection; ``away`` is why none was to be had last, of what may pass."""

    task: asyncio.Task[ClientError | None]
    away: NameserverUnreachable | _MastersAway | None = None
    stood_still = 0.0
    """Seconds for which the loop stood still meanwhile."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._look()

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK, self._looked, self._loop.time() + LOOK)

    def _looked(self, due: float) -> None:
        late = self._loop.time() - due
        if late > STILL:
            self.stood_still += late
        self._look()


class Gates:
    """The gates of one sender.

    Args:
        new_topic_queues: queues of a topic that the first send creates.
        retry_backoff: seconds until nameservers are asked again at first, when none of them answered or the masters of
            the topic are away, then twice as long each time; None: they are asked once.
        let_go: has sends leave, in their order and before others.
        failed: a send got no route, or no connection, or not in its time (TimeoutError).
        drop: ends a send that the end of the session overtook, or that met a defect.
    """

    def __init__(
        self,
        session: Session,
        new_topic_queues: int,
        *,
        retry_backoff: float | None,
        let_go: Callable[[list[Send]], None],
        failed: Callable[[Send, ClientError | TimeoutError], None],
        drop: Callable[[Send, BaseException], None],
    ) -> None:
        self._session = session
        self._new_topic_queues = new_topic_queues
        self._retry_backoff = retry_backoff
        self._let_go, self._failed, self._drop = let_go, failed, drop
        self.waiting: dict[_Place, dict[Send, asyncio.Task[None]]] = {}
        """The sends that wait, by topic or queue; look only. Others that follow wait behind them."""
        self._reaching: dict[_Place, _Reaching] = {}

    def sends(self) -> list[Send]:
        """All that wait."""
        return [send for each in self.waiting.values() for send in each]

    def wait(self, send: Send) -> None:
        """Have a send wait for its queue, or for its topic where no queue is chosen."""
        place = send.topic.name if send.queue is None else send.queue

        def ended(task: asyncio.Task[None]) -> None:
            error = stopped() if task.cancelled() else task.exception()
            if error is not None and self._leave(place, send):
                self._drop(send, error)

        reaching = self._reaching.get(place) or self._reach(place, send.topic)
        task = self._session.spawn(self._work(place, send, reaching))
        self.waiting.setdefault(place, {})[send] = task
        task.add_done_callback(ended)

    def _leave(self, place: _Place, send: Send) -> bool:
        """Take a send from its gate; False where another one has taken it along."""
        waiting = self.waiting.get(place, {})
        if waiting.pop(send, None) is None:
            return False
        if not waiting:
            del self.waiting[place]
        return True

    async def _work(self, place: _Place, send: Send, reaching: _Reaching) -> None:
        error = await self._outcome(reaching, send)
        if error is not None:
            if self._leave(place, send):
                self._failed(send, error)
            return
        waiting = self.waiting.pop(place, {})
        for other, task in waiting.items():
            if other is not send:
                task.cancel()
        self._let_go([*waiting])

    async def _outcome(self, reaching: _Reaching, send: Send) -> ClientError | TimeoutError | None:
        """Wait for the end of the attempts, as long as the send has time; why it cannot leave."""
        counted = reaching.stood_still
        while True:
            try:
                async with asyncio.timeout_at(send.end):
                    await asyncio.wait({reaching.task})
            except TimeoutError as late:
                if reaching.stood_still > counted:
                    send.timeout += reaching.stood_still - counted
                    counted = reaching.stood_still
                elif not reaching.task.done():
                    return reaching.away or late
            if reaching.task.done():
                return reaching.task.result()

    def _reach(self, place: _Place, topic: TopicQueues) -> _Reaching:
        reaching = self._reaching[place] = _Reaching()
        reaching.task = self._session.spawn(self._get_through(place, topic, reaching))
        return reaching

    async def _get_through(self, place: _Place, topic: TopicQueues, reaching: _Reaching) -> ClientError | None:
        """Ask for the route, or connect, while sends wait for it; returns why it cannot be done."""
        waits = waits_from(self._retry_backoff) if self._retry_backoff is not None else iter(())
        try:
            while place in self.waiting:
                try:
                    await (self._ask(topic) if isinstance(place, str) else self._connect(place))
                except (NameserverUnreachable, _MastersAway) as error:
                    reaching.away = error
                    wait = next(waits, None)
                    if wait is None:
                        return error
                    await asyncio.sleep(wait)
                except ClientError as error:
                    return error
                else:
                    return None
            return reaching.away
        finally:
            del self._reaching[place]  # before anybody can come who would take over its end
            reaching.end()

    async def _ask(self, topic: TopicQueues) -> None:
        directory = self._session.directory
        route = await directory.route_to_send(topic.name, self._new_topic_queues)
        if topic.version != directory.version:
            topic.renew(directory)
        if not topic.in_turn:
            if route.brokers and not any(MASTER in addresses for addresses in route.brokers.values()):
                raise _MastersAway(topic.name, route.brokers)
            raise TopicNotFound(topic.name, "It has no queue that can be written: look at its permissions.")

    async def _connect(self, queue: MessageQueue) -> None:
        await self._session.connection(await self._session.to_send(queue.broker_name, queue.topic))
