"""Brokers that are away or busy, and the sends that wait for them.

Owns, for each broker whose last attempt failed for a reason that passes, from when on it is tried again: the time
doubles from failure to failure, with jitter. Owns the sends for which no other broker is left, too, until they are
tried again or their time is over. Invariants: sends are tried again in the order in which they began, and before those
that follow to the same queue; a broker that is not connected gets one attempt to connect at a time, however many sends
wait for it; nothing runs while no send waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from eruca.client.errors import BrokerRefused, BrokerUnreachable, ClientError, StateError
from eruca.client.network.session import Session
from eruca.client.producing.send import Send
from eruca.client.producing.topic_queues import TopicQueues
from eruca.protocol.queues import MessageQueue

RETRY_BACKOFF: Final = 0.05
"""Seconds until a broker is tried again at first."""
_MOST: Final = 10
"""Up to how many times the first wait it doubles."""
_LOOKS: Final = 4
"""After how many times the first wait the route of a topic is asked for again that has no queue to send to."""
_JITTER: Final = 0.25
"""The part by which a wait may be shorter or longer."""


class _Closed(msgspec.Struct, eq=False):
    """A broker that failed."""

    error: ClientError
    wait: float
    """Seconds, without jitter."""
    until: float
    """When it is tried again, by the loop's time."""
    connecting: bool = False


class Backoff:
    """The closed brokers of one sender, and its sends that wait.

    Args:
        first: seconds of the first wait.
        again: tries sends again, in their order and before others.
        give_up: ends a send whose time is over, with the last error of its broker.
        drop: ends a send with an error: its caller waits no more, or the end of the session overtook it.
    """

    def __init__(
        self,
        session: Session,
        first: float,
        *,
        again: Callable[[list[Send]], None],
        give_up: Callable[[Send, ClientError], None],
        drop: Callable[[Send, ClientError], None],
    ) -> None:
        self.waiting: list[Send] = []
        self.queues: set[MessageQueue] = set()
        """The queues for which some of them wait, so that others wait behind them."""
        self._session = session
        self._first = first
        self._again, self._give_up, self._drop = again, give_up, drop
        self._clock = session.loop.time
        self._closed: dict[str, _Closed] = {}
        self._changed = asyncio.Event()
        self._wake_at = 0.0
        """When the waiting sends are looked at again, by the loop's time."""
        self._works = False

    def failed(self, broker: str, error: ClientError, topic: TopicQueues) -> None:
        """An attempt at a broker failed for a reason that passes; it is closed for a while."""
        now, closed = self._clock(), self._closed.get(broker)
        most = self._first * _MOST
        if closed is None or now > closed.until + most:
            closed = self._closed[broker] = _Closed(error, self._first, 0.0)
        elif now < closed.until:  # one of many that were under way
            return
        else:
            closed.error, closed.wait = error, min(closed.wait * 2, most)
        closed.until = now + _jittered(closed.wait)
        if not isinstance(error, BrokerRefused):  # it may be elsewhere, or another broker there
            self._session.directory.look_again(topic.name)

    def is_closed(self, broker: str) -> bool:
        """Whether a broker is not to be tried now."""
        closed = self._closed.get(broker)
        return closed is not None and (closed.connecting or self._clock() < closed.until)

    def is_none_left(self, send: Send) -> bool:
        """Whether all brokers to which a send may go are closed."""
        return all(map(self.is_closed, self._brokers_of(send)))

    def avoided(self, topic: TopicQueues, last: str) -> set[str]:
        """The brokers that another attempt passes over, which never are all: closed ones and the ``last`` one."""
        brokers = {*topic.brokers}
        closed = {broker for broker in brokers if self.is_closed(broker)} if self._closed else set()
        for avoided in ({*closed, last} & brokers, closed, {last} & brokers):
            if avoided != brokers:
                return avoided
        return set()

    def wait(self, send: Send) -> None:
        """Try a send again when a broker to which it may go is open, or give it up when its time is over."""
        self._add(send)
        if not self._works:
            self._begin()
        elif send.end < self._wake_at or not self.is_none_left(send):
            self._changed.set()

    def _add(self, send: Send) -> None:
        self.waiting.append(send)
        if send.queue is not None:
            self.queues.add(send.queue)

    def _take_all(self) -> list[Send]:
        waiting, self.waiting = self.waiting, []
        self.queues.clear()
        return waiting

    async def _work(self) -> None:
        while self.waiting:
            self._look()
            wait = self._wake_at - self._clock()
            if self.waiting and wait > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
            self._changed.clear()

    def _begin(self) -> None:
        self._changed.clear()
        self._works = True
        self._session.spawn(self._work()).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._works = False
        if not self.waiting:
            return
        if not self._session.closed:  # one that came when the task had ended
            self._begin()
            return
        for send in self._take_all():
            self._drop(send, stopped())

    def _look(self) -> None:
        """Let go the sends whose brokers are open, and those whose time is over."""
        now = self._clock()
        open_: dict[str, bool] = {}
        again: list[Send] = []
        nowhere: set[str] = set()
        for send in sorted(self._take_all(), key=_start):
            if send.future.done():
                self._drop(send, stopped())
                continue
            # Not `any`: each broker that is due gets its attempt to connect.
            ready = False
            brokers = self._brokers_of(send)
            if not brokers:
                nowhere.add(send.topic.name)
            for broker in brokers:
                if broker not in open_:
                    open_[broker] = self._is_open(broker, send.topic, now)
                ready = ready or open_[broker]
            if ready:
                again.append(send)
            elif now >= send.end:
                self._give_up(send, self._last_error(send))
            else:
                self._add(send)
        if again:
            self._again(again)
        until = [self._closed[broker].until for broker in open_ if broker in self._closed]
        for topic in nowhere:  # its masters are away: a nameserver hears of the next ones before this client does
            self._session.directory.look_again(topic)
            until.append(now + _jittered(self._first * _LOOKS))
        ends = [send.end for send in self.waiting]
        self._wake_at = min([each for each in until if each > now] + ends, default=now)

    def _brokers_of(self, send: Send) -> Collection[str]:
        """The brokers to which a send may go."""
        topic, directory = send.topic, self._session.directory
        if send.queue is not None:
            return (send.queue.broker_name,)
        if topic.version != directory.version:
            topic.renew(directory)
        return topic.brokers

    def _last_error(self, send: Send) -> ClientError:
        return self._closed[send.queue.broker_name if send.queue is not None else send.brokers[-1]].error

    def _is_open(self, broker: str, topic: TopicQueues, now: float) -> bool:
        """Whether a broker is connected and may be tried; begins to connect to one that is due."""
        closed = self._closed.get(broker)
        if closed is not None and (closed.connecting or now < closed.until):
            return False
        address = self._session.to_send_now(broker)
        if address is not None and self._session.ready(address) is not None:
            return True
        if closed is None:
            late = BrokerUnreachable(f"no connection to {broker} in time")
            closed = self._closed[broker] = _Closed(late, self._first, now)
        closed.connecting = True
        self._session.spawn(self._connect(broker, closed, topic))
        return False

    async def _connect(self, broker: str, closed: _Closed, topic: TopicQueues) -> None:
        try:
            address = await self._session.to_send(broker, topic.name)
            await self._session.connection(address)
        except ClientError as error:
            closed.connecting = False
            self.failed(broker, error, topic)
        finally:
            closed.connecting = False
            self._changed.set()


def waits_from(first: float) -> Iterator[float]:
    """Seconds between attempts that fail one after the other: twice as long each time, with jitter."""
    wait = first
    while True:
        yield _jittered(wait)
        wait = min(wait * 2, first * _MOST)


def _jittered(wait: float) -> float:
    return wait * random.uniform(1 - _JITTER, 1 + _JITTER)  # no secret


def stopped() -> StateError:
    """The error of a send that the end of its session overtook."""
    return StateError("The producer was stopped while the send was under way.")


def _start(send: Send) -> float:
    return send.start
