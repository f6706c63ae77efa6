"""Client: what every client can ask of a cluster: create a topic, look up messages, find the bounds of a queue.

Owns the requests and the meaning of their answers for a user; ``brokers`` owns those about one queue. Offsets count
messages, times are ms since 1970. Facts: MQAdmin and MQAdminImpl in 4.9.7.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Collection
from datetime import datetime
from typing import Final, Literal, NamedTuple, get_args

from eruca.client.bounds import bounded
from eruca.client.checks import check_kind, check_least, check_queue, check_time
from eruca.client.config import ClientSettings, check_text, check_topic
from eruca.client.errors import (
    PASSING_CODES,
    BadConfig,
    BadName,
    BrokerRefused,
    ClientError,
    MessageNotFound,
    StateError,
    TopicExists,
    TopicNotFound,
    translate,
)
from eruca.client.lifecycle import Startable
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.moments import LATEST
from eruca.client.network import brokers
from eruca.client.network.readiness import cluster_ready
from eruca.client.network.routes import MASTER
from eruca.client.network.session import Session
from eruca.protocol import api, names
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers import pull, topics
from eruca.protocol.message import parse_offset_message_id
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record, decode_record, decode_records, host_text
from eruca.remoting.addresses import LAST_PORT

ADMIN_TIMEOUT: Final = 6.0
QUERY_TIMEOUT: Final = 18.0
"""Seconds; a lookup by the index may be slow."""
TRIES: Final = 5
"""Attempts to create a topic on a broker."""
READ_AND_WRITE: Final = 6
NEW_TOPIC_QUEUES: Final = 4
"""Queues of a new topic on a broker (defaultTopicQueueNums of DefaultMQProducer in 4.9.7)."""
IfExists = Literal["keep", "change", "error"]
"""What ``create_topic`` does with a topic that is there."""


class Health(NamedTuple):
    """Whether a client is healthy: it is true if there are no ``reasons`` why not."""

    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.reasons


class Client(Startable):
    """What producers and consumers have in common: the administrative calls.

    All raise ClientError. ``timeout`` is in seconds, for the whole call, which then raises CallTimeout. None: each
    request has its own, such as the request_timeout of the settings.
    """

    @property
    def session(self) -> Session:
        """The session in use. Raises StateError before start, after stop, and in another event loop."""
        session = self._seat
        session.check_here()
        return session

    @property
    @abstractmethod
    def _seat(self) -> Session:
        """The session in use, in whatever thread. Raises StateError before start and after stop."""

    async def start(self, *, wait: float | None = None) -> None:
        """Start: a consumer joins its group and begins to pull; a producer connects when it has something to send.

        A consumer waits in the background for topics that do not exist yet.

        Args:
            wait: seconds to wait, at most, until a nameserver answers, a broker can be reached, and each topic of a
                consumer has a route: for programs that start together with the cluster. Default: start_wait of the
                settings, which is not to wait.

        Raises StateError when started twice, NoNameserver, BadConfig, UsageError for a condition that a broker refuses,
        NameserverUnreachable of consumers, and ClusterNotReady, which says what was missing when the time was over.
        After such an error but StateError it may be started again.
        """
        settings, topics = self._needs()
        async with cluster_ready(settings, topics, wait):
            await self._join()

    @abstractmethod
    def _needs(self) -> tuple[ClientSettings, Collection[str]]:
        """The settings, and the topics that have to be there at the start."""

    @abstractmethod
    async def _join(self) -> None:
        """Start by what is there."""

    # ------------------------------------------------------------------ health

    @property
    def healthy(self) -> Health:
        """Whether the client runs, has reached a nameserver, and reaches the brokers that it uses; else why not.

        It is true or false, as in ``if not consumer.healthy``; its ``reasons`` are sentences. May be asked in any
        thread, and asks nobody: a client looks for a nameserver by itself from its start on. One that is lost later
        makes no client unhealthy, since it goes on by the routes that it knows.
        """
        try:
            return Health(self._seat.troubles)
        except StateError as error:
            return Health((str(error),))

    @bounded
    async def ping(self, *, timeout: float | None = None) -> None:
        """Ask a nameserver for all brokers, and each master whether it answers.

        Raises NameserverUnreachable, BrokerUnreachable and CallTimeout, and StateError as every call.
        """
        session = self.session
        session.directory.learn(await session.cluster())
        await session.meet_now()

    # ------------------------------------------------------------------ topics and queues

    @bounded
    async def create_topic(
        self,
        topic: str,
        queues: int | None = None,
        *,
        key: str = names.DEFAULT_TOPIC,
        if_exists: IfExists = "keep",
        topic_sys_flag: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Make sure that a topic is there: create it on every master that has the topic ``key``.

        The template topic, the default ``key``, is on brokers that create topics automatically; the topic named after a
        cluster is on all brokers of the cluster. ``key`` is used as given, whatever the namespace. Returns if at least
        one broker succeeds, as RocketMQ's clients do, and logs the others.

        Args:
            queues: of the topic on each broker; 4 for a new topic.
            if_exists: what happens where one of these brokers has the topic, by the nameserver's current route:
                ``"keep"`` leaves it as it is on all of them, ``"error"`` raises TopicExists, and ``"change"`` gives it
                this number of queues, which has to be given then, on all of them. Messages in queues beyond a smaller
                number cannot be read any more.
        """
        check_topic(topic)
        if names.is_system_topic(topic):
            raise BadName(f"The topic[{topic}] is conflict with system topic.")
        check_text(key, "key")
        if if_exists not in get_args(IfExists):
            raise BadConfig(f'if_exists={if_exists!r} is not allowed: "keep", "change" or "error" is expected')
        if queues is None and if_exists == "change":
            raise BadConfig('if_exists="change" needs the number of queues: give queues=')
        number = NEW_TOPIC_QUEUES if queues is None else queues
        check_least(1, queues=number)
        check_least(0, topic_sys_flag=topic_sys_flag)
        session = self.session
        try:
            route = await session.directory.stored_route(key)
        except TopicNotFound:
            if key != names.DEFAULT_TOPIC:
                raise
            raise TopicNotFound(
                key,
                "No broker creates topics by it (autoCreateTopicEnable=false): give the name of the cluster, such as "
                f'create_topic("{topic}", key="DefaultCluster").',
            ) from None
        masters = {name: addresses[MASTER] for name, addresses in route.brokers.items() if MASTER in addresses}
        if not masters:
            raise ClientError("Not found broker, maybe key is wrong")
        there = await _brokers_with(session, topic) & masters.keys() if if_exists != "change" else set()
        if there and if_exists == "error":
            raise TopicExists(topic, sorted(there))
        if there:
            log.info("%s is kept as it is: it is at %s", topic, ", ".join(sorted(there)))
            return
        ask = topics.CreateTopic(
            topic=topic,
            default_topic=key,
            read_queue_nums=number,
            write_queue_nums=number,
            perm=READ_AND_WRITE,
            topic_sys_flag=topic_sys_flag,
        )
        results = await asyncio.gather(*(_create(session, each, ask) for each in masters.values()))
        failed = {name: error for name, error in zip(masters, results, strict=True) if error is not None}
        for name, error in failed.items():
            log.warning("%s could not be created at %s: %s", topic, name, error)
            if len(failed) == len(masters):
                if isinstance(error, BrokerRefused):
                    error.retriable = error.code in PASSING_CODES  # here SYSTEM_ERROR is a bound of the broker's
                raise error

    @bounded
    async def fetch_queues(self, topic: str, *, timeout: float | None = None) -> list[MessageQueue]:
        """The queues of a topic that can be read, by the nameserver's current route. Raises TopicNotFound."""
        check_topic(topic)
        return list((await self.session.directory.refresh(topic)).to_read)

    @bounded
    async def fetch_send_queues(self, topic: str, *, timeout: float | None = None) -> list[MessageQueue]:
        """The queues of a topic that can be written, by the nameserver's current route. Raises TopicNotFound."""
        check_topic(topic)
        return list((await self.session.directory.refresh(topic)).to_send)

    @bounded
    async def min_offset(self, queue: MessageQueue, *, timeout: float | None = None) -> int:
        """The offset of the oldest message that exists."""
        check_queue(queue)
        return await brokers.min_offset(self.session, queue)

    @bounded
    async def max_offset(self, queue: MessageQueue, *, timeout: float | None = None) -> int:
        """The offset that the next message will get."""
        check_queue(queue)
        return await brokers.max_offset(self.session, queue)

    @bounded
    async def offset_for_timestamp(
        self, queue: MessageQueue, timestamp: int | datetime, *, timeout: float | None = None
    ) -> int:
        """The offset at a time (a datetime, or ms since 1970); of two neighbours the broker chooses the nearer."""
        check_queue(queue)
        return await brokers.offset_by_time(self.session, queue, check_time("timestamp", timestamp))

    @bounded
    async def earliest_store_time(self, queue: MessageQueue, *, timeout: float | None = None) -> int:
        """When the oldest message was stored (ms since 1970); -1 for an empty queue."""
        check_queue(queue)
        return await brokers.earliest_store_time(self.session, queue)

    # ------------------------------------------------------------------ messages

    @bounded
    async def view_message(
        self, message_id: str, *, topic: str | None = None, timeout: float | None = None
    ) -> ReceivedMessage:
        """The message with this id: a broker's id or, if ``topic`` is given, also a producer's.

        Raises MessageNotFound.
        """
        check_kind("message_id", message_id, str, "a text")
        session = self.session
        if topic is not None and (found := await self._find(topic, message_id, unique=True)):
            return found[0]
        try:
            host, offset = parse_offset_message_id(message_id)
            address = host_text(host)
            port = int(address.rpartition(":")[2])
        except ProtocolError:
            address, port = "", 0
        if not 0 < port <= LAST_PORT:  # a producer's id, which has something else there
            address = ""
        if not address or (topic is not None and address not in session.directory.addresses(with_slaves=True)):
            raise MessageNotFound(message_id, "" if topic else "To find it by its producer's id give its topic, too.")
        return await _view(session, address, offset, message_id)

    @bounded
    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        most: int = 64,
        begin: int | datetime = 0,
        end: int | datetime = LATEST,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """The messages of a topic with this business key, ordered by store time; empty if there are none.

        Args:
            most: how many messages each broker returns at most.
            begin: stored at this time (a datetime, or ms since 1970) or later.
            end: stored at this time or earlier.
        """
        return await self._find(topic, key, most=most, begin=begin, end=end)

    async def _find(
        self,
        topic: str,
        key: str,
        *,
        most: int = 32,
        begin: int | datetime = 0,
        end: int | datetime = LATEST,
        unique: bool = False,
    ) -> list[ReceivedMessage]:
        check_topic(topic)
        check_kind("key", key, str, "a text")
        check_least(1, most=most)
        begin, end = check_time("begin", begin), check_time("end", end)
        session = self.session
        route = await session.directory.route(topic)
        ask = pull.QueryMessage(
            topic=topic,
            key=key,
            max_num=most,
            begin_timestamp=begin,
            end_timestamp=end,
            unique_key_query=True if unique else None,
        )
        answers = await asyncio.gather(*(_query(session, each, ask) for each in route.brokers), return_exceptions=True)
        found = [pair for answer in answers if isinstance(answer, list) for pair in answer]
        for answer in answers:
            if isinstance(answer, BaseException):
                if not found:
                    raise answer
                log.warning("a broker could not be asked for messages of %s: %s", topic, answer)
        stored = session.names.to_broker(topic)
        wanted = [
            (broker, record)
            for broker, record in found
            if (record.unique_key == key if unique else record.topic == stored and key in record.keys)
        ]
        return [
            ReceivedMessage(record, MessageQueue(topic, broker, record.queue_id), session.settings.max_body)
            for broker, record in sorted(wanted, key=lambda pair: (pair[1].store_timestamp, pair[1].physical_offset))
        ]


async def _brokers_with(session: Session, topic: str) -> set[str]:
    """The names of the brokers that have a topic, by the nameserver's current route; none where there is no topic."""
    try:
        route = await session.directory.stored_route(session.names.to_broker(topic))
    except TopicNotFound:
        return set()
    return {*route.brokers}


async def _create(session: Session, address: str, ask: topics.CreateTopic) -> ClientError | None:
    """Create a topic on one master, with retries; the last error, or None."""
    failed: ClientError | None = None
    for _ in range(TRIES):
        try:
            await session.call(address, api.UPDATE_AND_CREATE_TOPIC, ask, timeout=ADMIN_TIMEOUT)
        except ClientError as error:
            failed = error
        else:
            return None
    return failed


async def _view(session: Session, address: str, offset: int, message_id: str) -> ReceivedMessage:
    """The message at an offset of a broker's log; its queue has no broker name."""
    try:
        ask = pull.ViewMessage(offset=offset)
        record = decode_record((await session.call(address, api.VIEW_MESSAGE_BY_ID, ask, timeout=ADMIN_TIMEOUT)).body)
    except BrokerRefused as error:
        raise MessageNotFound(message_id, f"{address} says: {error.remark}") from error
    except ProtocolError as error:
        raise translate(error) from error
    queue = MessageQueue(session.names.from_broker(record.topic), "", record.queue_id)
    return ReceivedMessage(record, queue, session.settings.max_body)


async def _query(session: Session, broker: str, ask: pull.QueryMessage) -> list[tuple[str, Record]]:
    """The messages that one broker finds by its index."""
    address = await session.directory.reader(broker)
    try:
        answer = await session.call(address, api.QUERY_MESSAGE, ask, timeout=QUERY_TIMEOUT)
        return [(broker, record) for record in decode_records(answer.body)]
    except BrokerRefused as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise
    except ProtocolError as error:
        raise translate(error) from error
