"""One face for the lite pull consumers of both sides, so that one transcript judges both; each commits by hand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from eruca.client import LitePullConsumer, MessageQueue
from tests.compat.clients import JavaClients, PythonClients, Queue, Seen, _queue_json, _queue_of, _seen, _seen_all
from tests.support.java import JudgeError

PATIENCE = 45.0


class Refusal(Exception):
    """What the consumer said was wrong."""


class Lite(Protocol):
    def poll(self, at_least: int, timeout: float = PATIENCE) -> list[Seen]:
        """Polls until there are so many; fewer when the time is over."""

    def assignment(self, count: int) -> list[Queue]:
        """The queues it has, as soon as there are exactly so many."""

    def assign(self, queues: Sequence[Queue]) -> None: ...
    def seek(self, queue: Queue, to: int | str) -> None: ...
    def commit(self) -> None: ...
    def time(self, queue: Queue, timestamp: int) -> int: ...


class JavaLite:
    def __init__(self, clients: JavaClients, name: str) -> None:
        self._judge = clients.judge
        self._name = name

    def poll(self, at_least: int, timeout: float = PATIENCE) -> list[Seen]:
        answer = self._judge.call("poll", name=self._name, atLeast=at_least, timeoutMs=int(timeout * 1000))
        return _seen_all(answer)

    def assignment(self, count: int) -> list[Queue]:
        answer = self._judge.call("lite-assignment", name=self._name, count=count, timeoutMs=int(PATIENCE * 1000))
        return [_queue_of(each) for each in answer]

    def assign(self, queues: Sequence[Queue]) -> None:
        self._judge.call("lite-assign", name=self._name, queues=[_queue_json(each) for each in queues])

    def seek(self, queue: Queue, to: int | str) -> None:
        try:
            self._judge.call("lite-seek", name=self._name, queue=_queue_json(queue), to=to)
        except JudgeError as error:
            raise Refusal(str(error)) from None

    def commit(self) -> None:
        self._judge.call("lite-commit", name=self._name)

    def time(self, queue: Queue, timestamp: int) -> int:
        answer: int = self._judge.call("lite-time", name=self._name, queue=_queue_json(queue), timestamp=timestamp)
        return answer


class PythonLite:
    def __init__(self, clients: PythonClients, consumer: LitePullConsumer) -> None:
        self._clients = clients
        self.consumer = consumer

    def poll(self, at_least: int, timeout: float = PATIENCE) -> list[Seen]:
        seen: list[Seen] = []
        deadline = time.monotonic() + timeout
        while len(seen) < at_least and time.monotonic() < deadline:
            got = self._clients.run(self.consumer.poll(0.2))
            seen += [_seen(each.record, each.body, each.topic) for each in got]
        return seen

    def assignment(self, count: int) -> list[Queue]:
        deadline = time.monotonic() + PATIENCE
        while len(self.consumer.assignment()) != count and time.monotonic() < deadline:
            time.sleep(0.02)
        found = sorted(self.consumer.assignment())
        return [Queue(each.topic, each.broker_name, each.queue_id) for each in found]

    def assign(self, queues: Sequence[Queue]) -> None:
        async def assign() -> None:
            self.consumer.assign([_named(each) for each in queues])

        self._clients.run(assign())

    def seek(self, queue: Queue, to: int | str) -> None:
        where = _named(queue)
        try:
            if to == "begin":
                self._clients.run(self.consumer.seek_to_begin(where))
            elif to == "end":
                self._clients.run(self.consumer.seek_to_end(where))
            else:
                self._clients.run(self.consumer.seek(where, int(to)))
        except (RuntimeError, ValueError) as error:
            raise Refusal(str(error)) from None

    def commit(self) -> None:
        self._clients.run(self.consumer.commit_sync())

    def time(self, queue: Queue, timestamp: int) -> int:
        return self._clients.run(self.consumer.offset_for_timestamp(_named(queue), timestamp))


@contextlib.contextmanager
def lite(
    clients: JavaClients | PythonClients,
    group: str,
    name_server: str,
    *,
    topics: Mapping[str, str] | None = None,
    queues: Sequence[Queue] = (),
    auto: bool = False,
    hold: float = 20.0,
    look: float = 20.0,
) -> Iterator[Lite]:
    """A started consumer that begins at the first offset: subscribed to topics, or with queues assigned.

    Of one of Eruca's: ``hold``, seconds for which brokers may hold a pull, and ``look``, seconds until it looks by
    itself who is in the group.
    """
    if isinstance(clients, PythonClients):
        consumer = LitePullConsumer(
            group,
            nameserver=name_server,
            start_from="first",
            auto_commit=auto,
            broker_suspend_max_time=hold,
            rebalance_interval=look,
        )
        for topic, expression in (topics or {}).items():
            consumer.subscribe(topic, expression)
        if queues:
            consumer.assign([_named(each) for each in queues])
        clients.run(consumer.start())
        try:
            yield PythonLite(clients, consumer)
        finally:
            clients.run(consumer.stop())
        return
    name = clients._name("lite")
    wanted: dict[str, Any] = {"queues": [_queue_json(each) for each in queues]} if queues else {"topics": topics}
    clients.judge.call("lite", name=name, group=group, namesrv=name_server, auto=auto, **wanted)
    try:
        yield JavaLite(clients, name)
    finally:
        clients.judge.call("stop", name=name)


def _named(queue: Queue) -> MessageQueue:
    return MessageQueue(queue.topic, queue.broker, queue.number)
