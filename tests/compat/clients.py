"""One face for both sides' clients, so that one transcript judges Apache's Java and Eruca's Python.

Owns the translation only; JavaClients speaks to the judge's JVM, PythonClients runs eruca.client on an
event loop of its own. What a message is here (`Seen`) is what both can tell about it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from eruca.client import Later, Message, MessageQueue, PullConsumer, PushConsumer, ReceivedMessage, Record, SendResult
from eruca.client import Producer as ErucaProducer
from eruca.client.consuming.push_consumer import engine_of
from eruca.protocol.record import host_text
from tests.support.java import Judge

T = TypeVar("T")
How = Literal["sync", "async", "oneway", "batch"]
PATIENCE = 45.0
"""Seconds to wait for messages: a consumer of 5.3.3 that had to skip a heartbeat after a rebalance is refused by
Apache's broker and by Eruca's ("subscription not latest") until its next one, 30 s later."""
_made = itertools.count(1)
# What the broker and the receiving client add to a message, or take away on its way.
_ADDED = frozenset({"UNIQ_KEY", "CLUSTER", "WAIT", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "KEYS", "TAGS"})
_ADDED_5 = frozenset({"MSG_REGION", "TRACE_ON"})


@dataclass(frozen=True)
class Queue:
    topic: str
    broker: str
    number: int


@dataclass(frozen=True)
class Letter:
    """A message to send."""

    topic: str
    body: bytes
    tags: str = ""
    keys: str = ""
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sent:
    """What a producer was told about a message, or about a whole batch."""

    status: str
    message_id: str
    offset_message_id: str
    queue: Queue
    queue_offset: int


@dataclass(frozen=True)
class Seen:
    """A message as a consumer saw it."""

    topic: str
    queue: int
    queue_offset: int
    message_id: str
    body: bytes
    tags: str
    keys: str
    flag: int
    properties: Mapping[str, str]
    sys_flag: int
    body_crc: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    log_offset: int
    store_size: int

    @property
    def letter(self) -> Letter:
        """What of it the sender chose."""
        return Letter(self.topic, self.body, self.tags, self.keys, self.flag, self.properties)


@dataclass(frozen=True)
class Pulled:
    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Seen]


class Producer(Protocol):
    def send(self, letters: Sequence[Letter], how: How = "sync", queue: Queue | None = None) -> list[Sent]: ...


class Member(Protocol):
    """A push consumer."""

    def received(self, at_least: int, timeout: float = PATIENCE) -> list[Seen]:
        """All since the last question, as soon as there are so many; fewer when the time is over."""

    def assigned(self, at_least: int, timeout: float = 30) -> list[Queue]:
        """The queues it holds, as soon as there are so many."""

    def consumed(self, at_least: int, timeout: float = 30) -> int:
        """The sum of the positions that it would commit, as soon as it is so high."""


class Puller(Protocol):
    def queues(self, topic: str) -> list[Queue]: ...
    def pull(
        self, queue: Queue, offset: int, expression: str = "*", most: int = 32, *, sql: bool = False
    ) -> Pulled: ...
    def offset(self, queue: Queue, which: str, timestamp: int = 0) -> int: ...


class Clients(Protocol):
    """Where clients of one side come from; each is stopped at the end of its `with`."""

    name: str

    def producer(self, group: str, name_server: str) -> contextlib.AbstractContextManager[Producer]: ...
    def member(
        self, group: str, name_server: str, topics: Mapping[str, str], *, sql: bool = False
    ) -> contextlib.AbstractContextManager[Member]: ...
    def puller(self, group: str, name_server: str) -> contextlib.AbstractContextManager[Puller]: ...


def drain(puller: Puller, topic: str) -> list[Seen]:
    """Every message of a topic, queue by queue, from its first offset to its last."""
    seen = []
    for queue in puller.queues(topic):
        offset, end = puller.offset(queue, "min"), puller.offset(queue, "max")
        while offset < end:
            pulled = puller.pull(queue, offset)
            assert pulled.next_offset > offset, f"no progress in {queue} at {offset}: {pulled.status}"
            seen += pulled.messages
            offset = pulled.next_offset
    return seen


# ---------------------------------------------------------------------- Java


class JavaClients:
    def __init__(self, judge: Judge) -> None:
        self.name = f"java-{judge.release}"
        self.judge = judge

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(_made)}"

    @contextlib.contextmanager
    def producer(self, group: str, name_server: str, **options: Any) -> Iterator[JavaProducer]:
        name = self._name("producer")
        self.judge.call("producer", name=name, group=group, namesrv=name_server, **options)
        try:
            yield JavaProducer(self.judge, name)
        finally:
            self.judge.call("stop", name=name)

    @contextlib.contextmanager
    def member(
        self, group: str, name_server: str, topics: Mapping[str, str], *, sql: bool = False, **options: Any
    ) -> Iterator[JavaMember]:
        name = self._name("member")
        self.judge.call("push", name=name, group=group, namesrv=name_server, topics=dict(topics), sql=sql, **options)
        try:
            yield JavaMember(self.judge, name)
        finally:
            self.judge.call("stop", name=name)

    @contextlib.contextmanager
    def puller(self, group: str, name_server: str) -> Iterator[JavaPuller]:
        name = self._name("puller")
        self.judge.call("pull-consumer", name=name, group=group, namesrv=name_server)
        try:
            yield JavaPuller(self.judge, name)
        finally:
            self.judge.call("stop", name=name)

    @contextlib.contextmanager
    def lite(self, group: str, name_server: str, topics: Mapping[str, str]) -> Iterator[Callable[[int], list[Seen]]]:
        """A lite pull consumer; what is yielded polls until it has so many messages."""
        name = self._name("lite")
        self.judge.call("lite", name=name, group=group, namesrv=name_server, topics=dict(topics))
        try:
            yield lambda count: _seen_all(self.judge.call("poll", name=name, atLeast=count, timeoutMs=30_000))
        finally:
            self.judge.call("stop", name=name)


class JavaProducer:
    def __init__(self, judge: Judge, name: str) -> None:
        self._judge = judge
        self._name = name

    def heartbeat(self) -> None:
        """Brokers learn at once that it is there."""
        self._judge.call("heartbeat", name=self._name)

    def send(self, letters: Sequence[Letter], how: How = "sync", queue: Queue | None = None) -> list[Sent]:
        where: dict[str, Any] = {} if queue is None else {"queue": _queue_json(queue)}
        answer = self._judge.call(
            "send", name=self._name, how=how, messages=[_letter_json(each) for each in letters], **where
        )
        for each in answer:
            assert "status" in each, each["message"]
        return [
            Sent(each["status"], each["msgId"], each["offsetMsgId"], _queue_of(each["queue"]), each["queueOffset"])
            for each in answer
        ]


class JavaMember:
    def __init__(self, judge: Judge, name: str) -> None:
        self._judge = judge
        self._name = name

    def received(self, at_least: int, timeout: float = PATIENCE) -> list[Seen]:
        answer = self._judge.call("received", name=self._name, atLeast=at_least, timeoutMs=int(timeout * 1000))
        return _seen_all(answer["messages"])

    def assigned(self, at_least: int, timeout: float = 30) -> list[Queue]:
        answer = self._judge.call("assigned", name=self._name, atLeast=at_least, timeoutMs=int(timeout * 1000))
        return [_queue_of(each) for each in answer]

    def consumed(self, at_least: int, timeout: float = 30) -> int:
        answer = self._judge.call("consumed", name=self._name, atLeast=at_least, timeoutMs=int(timeout * 1000))
        return sum(max(0, offset) for offset in answer.values())


class JavaPuller:
    def __init__(self, judge: Judge, name: str) -> None:
        self._judge = judge
        self._name = name

    def queues(self, topic: str) -> list[Queue]:
        return [_queue_of(each) for each in self._judge.call("queues", name=self._name, topic=topic)]

    def pull(self, queue: Queue, offset: int, expression: str = "*", most: int = 32, *, sql: bool = False) -> Pulled:
        where = _queue_json(queue)
        answer = self._judge.call(
            "pull", name=self._name, queue=where, offset=offset, expression=expression, max=most, sql=sql
        )
        return Pulled(
            answer["status"],
            answer["nextBeginOffset"],
            answer["minOffset"],
            answer["maxOffset"],
            _seen_all(answer["messages"]),
        )

    def offset(self, queue: Queue, which: str, timestamp: int = 0) -> int:
        answer: int = self._judge.call(
            "offset", name=self._name, queue=_queue_json(queue), which=which, timestamp=timestamp
        )
        return answer


def _letter_json(letter: Letter) -> dict[str, Any]:
    return {
        "topic": letter.topic,
        "body": base64.b64encode(letter.body).decode(),
        "flag": letter.flag,
        "properties": dict(letter.properties),
        **({"tags": letter.tags} if letter.tags else {}),
        **({"keys": letter.keys} if letter.keys else {}),
    }


def _queue_json(queue: Queue) -> dict[str, Any]:
    return {"topic": queue.topic, "brokerName": queue.broker, "queueId": queue.number}


def _queue_of(answer: Mapping[str, Any]) -> Queue:
    return Queue(answer["topic"], answer["brokerName"], answer["queueId"])


def _seen_all(answers: Sequence[Mapping[str, Any]]) -> list[Seen]:
    return [
        Seen(
            topic=each["topic"],
            queue=each["queueId"],
            queue_offset=each["queueOffset"],
            message_id=each["msgId"],
            body=base64.b64decode(each["body"]),
            tags=each["tags"] or "",
            keys=each["keys"] or "",
            flag=each["flag"],
            properties=_chosen(each["properties"]),
            sys_flag=each["sysFlag"],
            body_crc=each["bodyCRC"],
            born_timestamp=each["bornTimestamp"],
            born_host=each["bornHost"],
            store_timestamp=each["storeTimestamp"],
            store_host=each["storeHost"],
            reconsume_times=each["reconsumeTimes"],
            log_offset=each["commitLogOffset"],
            store_size=each["storeSize"],
        )
        for each in answers
    ]


def _chosen(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in _ADDED | _ADDED_5}


# ---------------------------------------------------------------------- Python


class PythonClients:
    """Eruca's client, on an event loop in a thread; `close` ends it."""

    name = "python"

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="python-clients", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 60) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    @contextlib.contextmanager
    def producer(self, group: str, name_server: str, **options: Any) -> Iterator[PythonProducer]:
        producer = ErucaProducer(group, nameserver=name_server, **options)
        self.run(producer.start())
        try:
            yield PythonProducer(self, producer)
        finally:
            self.run(producer.stop())

    @contextlib.contextmanager
    def member(
        self, group: str, name_server: str, topics: Mapping[str, str], *, sql: bool = False, **options: Any
    ) -> Iterator[PythonMember]:
        member = PythonMember(self)
        consumer = PushConsumer(group, member.take, nameserver=name_server, start_from="first", **options)
        for topic, expression in topics.items():
            consumer.subscribe(topic, expression, expression_type="SQL92" if sql else "TAG")
        member.consumer = consumer
        self.run(consumer.start())
        try:
            yield member
        finally:
            self.run(consumer.stop())

    @contextlib.contextmanager
    def puller(self, group: str, name_server: str, **options: Any) -> Iterator[PythonPuller]:
        consumer = PullConsumer(group, nameserver=name_server, **options)
        self.run(consumer.start())
        try:
            yield PythonPuller(self, consumer)
        finally:
            self.run(consumer.stop())


class PythonProducer:
    def __init__(self, clients: PythonClients, producer: ErucaProducer) -> None:
        self._clients = clients
        self._producer = producer

    def send(self, letters: Sequence[Letter], how: How = "sync", queue: Queue | None = None) -> list[Sent]:
        results = self._clients.run(self._send([_message(each) for each in letters], how, queue))
        return [
            Sent(
                each.status.name,
                each.message_id,
                each.offset_message_id,
                Queue(each.queue.topic, each.queue.broker_name, each.queue.queue_id),
                each.offset,
            )
            for each in results
        ]

    async def _send(self, messages: list[Message], how: How, queue: Queue | None) -> list[SendResult]:
        where = None if queue is None else MessageQueue(queue.topic, queue.broker, queue.number)
        if how == "batch":
            return [await self._producer.send_batch(messages, queue=where)]
        if how == "async":
            return await asyncio.gather(*(self._producer.start_send(each, queue=where) for each in messages))
        if how == "sync":
            return [await self._producer.send(each, queue=where) for each in messages]
        for each in messages:
            await self._producer.send_oneway(each, queue=where)
        return []


class PythonMember:
    consumer: PushConsumer

    def __init__(self, clients: PythonClients) -> None:
        self.answers: dict[bytes, Later] = {}
        """What its listener returns for messages with such a body."""
        self._clients = clients
        self._inbox: list[Seen] = []
        self._arrived = threading.Condition()

    async def take(self, message: ReceivedMessage) -> Later | None:
        with self._arrived:
            self._inbox.append(_seen(message.record, message.body, message.topic))
            self._arrived.notify_all()
        return self.answers.get(message.body)

    def received(self, at_least: int, timeout: float = PATIENCE) -> list[Seen]:
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._inbox) >= at_least, timeout)
            taken, self._inbox = self._inbox, []
            return taken

    def assigned(self, at_least: int, timeout: float = 30) -> list[Queue]:
        return self._await(self._queues, lambda queues: len(queues) >= at_least, timeout)

    def _queues(self) -> list[Queue]:
        return [
            Queue(each.topic, each.broker_name, each.queue_id)
            for each in self.consumer.queues
            if not each.topic.startswith("%RETRY%")
        ]

    def consumed(self, at_least: int, timeout: float = 30) -> int:
        return self._await(self._position, lambda position: position >= at_least, timeout)

    def _position(self) -> int:
        topics = [topic for topic in engine_of(self.consumer).subscriptions if not topic.startswith("%RETRY%")]
        return sum(sum(self.consumer.positions(topic).values()) for topic in topics)

    def _await(self, ask: Callable[[], T], enough: Callable[[T], bool], timeout: float) -> T:
        async def asked() -> T:
            return ask()

        deadline = time.monotonic() + timeout
        while not enough(answer := self._clients.run(asked())) and time.monotonic() < deadline:
            time.sleep(0.02)
        return answer


_STATUS = {
    "FOUND": "FOUND",
    "NO_NEW_MESSAGE": "NO_NEW_MSG",
    "NO_MATCHED_MESSAGE": "NO_MATCHED_MSG",
    "OFFSET_MOVED": "OFFSET_ILLEGAL",
}


class PythonPuller:
    def __init__(self, clients: PythonClients, consumer: PullConsumer) -> None:
        self._clients = clients
        self.consumer = consumer

    def queues(self, topic: str) -> list[Queue]:
        found = self._clients.run(self.consumer.fetch_queues(topic))
        return [Queue(each.topic, each.broker_name, each.queue_id) for each in sorted(found)]

    def pull(self, queue: Queue, offset: int, expression: str = "*", most: int = 32, *, sql: bool = False) -> Pulled:
        where = MessageQueue(queue.topic, queue.broker, queue.number)
        kind = "SQL92" if sql else "TAG"
        got = self._clients.run(
            self.consumer.pull(where, offset, expression=expression, expression_type=kind, pull_batch_size=most)
        )
        messages = [ReceivedMessage(each, where) for each in got.records]
        return Pulled(
            _STATUS[got.status.name],
            got.next_offset,
            got.min_offset,
            got.max_offset,
            [_seen(each.record, each.body, each.topic) for each in messages],
        )

    def offset(self, queue: Queue, which: str, timestamp: int = 0) -> int:
        where = MessageQueue(queue.topic, queue.broker, queue.number)
        asks: dict[str, Callable[[], Coroutine[Any, Any, int | None]]] = {
            "min": lambda: self.consumer.min_offset(where),
            "max": lambda: self.consumer.max_offset(where),
            "time": lambda: self.consumer.offset_for_timestamp(where, timestamp),
            "committed": lambda: self.consumer.query_offset(where),
        }
        answer = self._clients.run(asks[which]())
        return -1 if answer is None else answer


def _message(letter: Letter) -> Message:
    return Message(
        letter.topic,
        letter.body,
        tags=letter.tags or None,
        keys=letter.keys or None,
        properties=letter.properties,
        flag=letter.flag,
    )


def _seen(record: Record, body: bytes, topic: str) -> Seen:
    return Seen(
        topic=topic,
        queue=record.queue_id,
        queue_offset=record.queue_offset,
        message_id=record.unique_key or record.offset_message_id,
        body=bytes(body),
        tags=record.tags or "",
        keys=" ".join(record.keys),
        flag=record.flag,
        properties=_chosen(record.properties),
        sys_flag=record.sys_flag,
        body_crc=record.body_crc,
        born_timestamp=record.born_timestamp,
        born_host=host_text(record.born_host),
        store_timestamp=record.store_timestamp,
        store_host=host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        log_offset=record.physical_offset,
        store_size=record.size,
    )
