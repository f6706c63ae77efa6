"""The fast path of sends: the native step at once takes many plain sends (310), batches (320) and half messages.

Owns which fast path gets a frame (``fast_commits`` has that of commits, ``fast_refusals`` that of an overload), and
what is around ``native.sends``: when it may be called, and the replies that wait for the disk or a slave. The native
step takes requests of known forms only (``send_forms``); it stops at every other frame, which then goes to the plain
handler, ``send``. Invariant: what is stored and answered is, byte for byte, what ``send`` would have stored and
answered, and where durability is promised, not before it is there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import NamedTuple

from eruca.broker.broker import Broker
from eruca.broker.handlers.fast_commits import FastCommits, is_end
from eruca.broker.handlers.fast_refusals import FastRefusals, is_send
from eruca.broker.handlers.send import judge
from eruca.broker.store import native
from eruca.broker.store.layout import SendHosts
from eruca.broker.store.results import Durability
from eruca.protocol import frame
from eruca.protocol.codes import RequestCode
from eruca.protocol.header import Empty
from eruca.protocol.headers.send import SendReply
from eruca.remoting import Call, Connection, FastPath, Reply
from eruca.remoting.rpc_latency import SHORT


def fast_path(broker: Broker) -> FastPath:
    """What the routers of this broker try first."""
    sends = NativeSends(broker).take if native.on else None
    refusals = FastRefusals(broker).take
    commits = FastCommits(broker).take

    def take(connection: Connection, data: bytes, at: int) -> int:
        begin = -1
        while begin < at < len(data):
            begin = at
            if is_send(data, at):
                at = refusals(connection, data, at)
                if sends is not None and at < len(data):
                    at = sends(connection, data, at)
            elif not broker.waits and is_end(data, at):
                at = commits(connection, data, at)
        return at

    return take


class NativeSends:
    """Calls the native step for the sends of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._forms = broker.admission.forms
        self._waiting = WaitingReplies(broker)
        self._sends = broker.rpc_latency.of(RequestCode.SEND_MESSAGE_V2)
        self._batches = broker.rpc_latency.of(RequestCode.SEND_BATCH_MESSAGE)
        """What sends took until they were stored; the native step itself takes microseconds."""

    def take(self, connection: Connection, data: bytes, at: int) -> int:
        """Store and answer the sends in ``data`` from ``at`` on; returns where it stopped (a ``FastPath``)."""
        broker = self._broker
        waiting = self._waiting if broker.waits else None
        host = broker.hosts.get(connection)
        now = monotonic()
        if host is None:
            return at
        tip = broker.store.appender.tip()
        if tip is None:
            return at
        hosts = SendHosts(host[0], host[1], broker.store_host, broker.admission.cluster)
        most = len(data) if waiting is None else waiting.room
        stop, replies, end, tallies, halves = native.sends(data, at, self._forms, tip, hosts, most)
        if stop == at:
            return at
        stored = requests = 0
        for (topic, queue_id), count, messages, size in tallies:
            stored += messages
            requests += count
            broker.statistics.put(topic, queue_id, messages, size, count)
        broker.store.appender.wrote(tip, end, stored)
        if halves:
            stamp = broker.monotonic()
            for half in halves:
                broker.halves.sent(half, stamp)
        if waiting is None:
            connection.send(replies)
            took = self._sends if stored == requests else self._batches
            if now - connection.last_active < SHORT:
                took.counts[0] += requests
            else:
                took.add(int((now - connection.last_active) * 1000), requests)
        else:
            code = RequestCode.SEND_MESSAGE_V2 if stored == requests else RequestCode.SEND_BATCH_MESSAGE
            waiting.add(Waiting(connection, replies, requests, code, connection.last_active), end)
        return stop


class Waiting(NamedTuple):
    """The replies to some requests of a connection, which came in one read."""

    connection: Connection
    frames: bytes
    requests: int
    code: int
    since: float


class WaitingReplies:
    """Replies that wait for the disk or a slave: those of one turn of the loop wait together."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._replies: list[Waiting] = []
        self._end = 0

    @property
    def room(self) -> int:
        """How many more sends may wait; the plain handler refuses the next one."""
        return max(self._broker.config.send_thread_pool_queue_capacity - self._broker.waiting_sends, 0)

    def add(self, replies: Waiting, end: int) -> None:
        """Send replies as soon as the log is durable up to ``end``."""
        if not self._replies:
            asyncio.get_running_loop().call_soon(self._wait)
        self._replies.append(replies)
        self._end = end
        self._broker.waiting_sends += replies.requests

    def _wait(self) -> None:
        replies, self._replies = self._replies, []
        done = partial(self._done, replies, monotonic())
        waiter = self._broker.durable(self._end)
        if waiter is None:  # flushed meanwhile: after those whose waiters end in this turn
            asyncio.get_running_loop().call_soon(done, None)
        else:
            waiter.add_done_callback(done)

    def _done(self, replies: list[Waiting], since: float, waiter: asyncio.Future[Durability] | None) -> None:
        broker = self._broker
        broker.waiting_sends -= sum([each.requests for each in replies])
        if waiter is not None and waiter.cancelled():
            return
        durability = Durability.DURABLE if waiter is None else waiter.result()
        took = int((monotonic() - since) * 1000)
        response = 0 if durability is Durability.DURABLE else judge(broker, Reply(), durability).code
        for connection, frames, count, code, arrived in replies:
            broker.statistics.put_took(took, count)
            broker.rpc_latency.of(code, response).add(int((monotonic() - arrived) * 1000), count)
            if durability is Durability.DURABLE:
                connection.send(frames)
            else:
                _send_judged(broker, connection, frames, durability)


def _send_judged(broker: Broker, connection: Connection, replies: bytes, durability: Durability) -> None:
    """Send replies as ``send`` does where the log is not durable: with another code, or as a refusal."""
    at = 0
    while (found := frame.split(replies, at)) is not None:
        serialization, start, end, at = found
        head = frame.read(serialization, replies[start:end])
        reply = judge(broker, Reply(0, frame.typed(SendReply, head)), durability)
        head.flag = 0
        connection.reply(Call(Empty(), b"", connection, head, serialization, b""), reply)
