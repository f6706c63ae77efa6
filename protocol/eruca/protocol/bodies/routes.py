"""Routes: the registration of a broker (103), and the answers of the nameserver to 105 and 106.

Owns the text formats of a registration, of a topic's route and of the cluster table.  Must
not know how a nameserver builds them or how a client chooses among them.

The compressed format of a registration is one zlib stream of: length and JSON of the data
version, number of topics, length and text ``name readQueues writeQueues perm filterType`` of
each, length and JSON list of filter servers; all numbers are 32-bit big-endian.  It carries
neither ``order`` nor ``topicSysFlag`` (``RegisterBrokerBody`` in 4.9.7).
"""

import zlib
from collections.abc import Collection
from typing import Self

import msgspec

from eruca.protocol import fastjson
from eruca.protocol.bodies.body import Body
from eruca.protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import Int32, Int64, queue_count

_DIGITS = 10
"""As many of a number are read as a Java ``int`` has; a longer one is too large all the same."""


class QueueData(Body):
    """The queues of one topic on one broker (``QueueData`` in 4.9.7).

    ``perm`` is the sum of 2 (write) and 4 (read); ``topic_sys_flag`` of 1 (unit) and
    2 (unit subscription).
    """

    broker_name: str = ""
    perm: Int32 = 0
    read_queue_nums: Int32 = 0
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 0

    def check_queues(self) -> None:
        """Raise ProtocolError for a number of queues that no topic may have."""
        queue_count("readQueueNums", self.read_queue_nums)
        queue_count("writeQueueNums", self.write_queue_nums)


class BrokerData(Body):
    """The addresses ``ip:port`` of one broker name by broker id; 0 is the master."""

    broker_addrs: dict[Int64, str] = msgspec.field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""

    def master(self) -> str | None:
        """The address of the master, None while there is none."""
        return self.broker_addrs.get(0)


class TopicRouteData(Body):
    """The route of one topic, the answer to 105 (``TopicRouteData`` in 4.9.7).

    Style.STANDARD is for requests of version 401 (V4_9_4) and later or with
    ``acceptStandardJsonOnly``; older clients get Style.COMPACT, ``{0:"addr"}``.
    ``order_topic_conf`` is ``broker:queues;broker:queues``, absent unless ordered.
    """

    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = msgspec.field(default_factory=list)

    def check_queues(self) -> None:
        """Raise ProtocolError for a number of queues that no topic may have."""
        for each in self.queue_datas:
            each.check_queues()
        for _, count in self.ordered_queues():
            queue_count("orderTopicConf", count)

    def ordered_queues(self) -> list[tuple[str, int]]:
        """The broker names of ``order_topic_conf``, each with its number of queues."""
        parts = [part.partition(":") for part in (self.order_topic_conf or "").split(";") if part]
        return [(name, int(count[:_DIGITS]) if count.isdecimal() else 0) for name, _, count in parts]


class ClusterInfo(Body):
    """All brokers by name and the broker names of each cluster, the answer to 106."""

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


MAX_INFLATED = 64 * 1024 * 1024
"""Longest content accepted from a compressed body, in bytes."""

_LEVEL = 9
_LONGEST_LINE = 64
"""Bytes of a topic in the compressed format beside its name, at most."""
_read_version = fastjson.reader(DataVersion)
_read_servers = fastjson.reader(list[str])


def body_crc32(body: bytes) -> int:
    """The ``bodyCrc32`` of the header: CRC-32 of the body as sent, without the sign bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


class RegisterBrokerBody(Body):
    """The registration of a broker at a nameserver."""

    filter_server_list: list[str] = msgspec.field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )

    def compress(self) -> bytes:
        """The compressed format, for a header with ``compressed=true``."""
        topics = self.topic_config_serialize_wrapper
        pieces = [_sized(topics.data_version.encode())]
        pieces.append(len(topics.topic_config_table).to_bytes(4))
        for config in topics.topic_config_table.values():
            pieces.append(_sized(_line(config).encode()))
        pieces.append(_sized(fastjson.dumps(self.filter_server_list)))
        return zlib.compress(b"".join(pieces), _LEVEL)

    @staticmethod
    def longest_compressed(names: Collection[str]) -> int:
        """The most bytes of the compressed format for topics of these names, however badly they compress."""
        return sum(map(len, names)) + _LONGEST_LINE * len(names)

    @classmethod
    def decompress(cls, body: bytes | bytearray | memoryview) -> Self:
        """Read the compressed format; a sixth field of a topic (5.x) is ignored.

        Raises ProtocolError if the stream or its content is malformed, or the content is
        longer than MAX_INFLATED bytes.
        """
        content = _Content(_inflate(body))
        topics = TopicConfigSerializeWrapper(data_version=_read_version(content.sized()))
        for _ in range(content.number()):
            config = _parse_line(content.sized())
            topics.topic_config_table[config.topic_name] = config
        servers = content.sized()
        return cls(
            filter_server_list=_read_servers(servers) if servers else [],
            topic_config_serialize_wrapper=topics,
        )


class _Content:
    """The inflated bytes, read piece by piece."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        if self.at + 4 > len(self.data):
            raise ProtocolError("compressed register body ends too early")
        value = int.from_bytes(self.data[self.at : self.at + 4])
        self.at += 4
        return value

    def sized(self) -> bytes:
        end = self.number() + self.at
        if end > len(self.data):
            raise ProtocolError("compressed register body ends too early")
        piece = self.data[self.at : end]
        self.at = end
        return piece


def _inflate(body: bytes | bytearray | memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, MAX_INFLATED)
    except zlib.error as error:
        raise ProtocolError(f"compressed register body: {error}") from None
    if not stream.eof:
        raise ProtocolError("compressed register body is cut off or too long")
    return data


def _sized(piece: bytes) -> bytes:
    return len(piece).to_bytes(4) + piece


def _line(config: TopicConfig) -> str:
    return (
        f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} "
        f"{config.perm} {config.topic_filter_type}"
    )


def _parse_line(line: bytes) -> TopicConfig:
    try:
        name, read, write, perm, filter_type = line.decode().split(" ", 5)[:5]
        return TopicConfig(
            topic_name=name,
            read_queue_nums=fastjson.fit(Int32, int(read)),
            write_queue_nums=fastjson.fit(Int32, int(write)),
            perm=fastjson.fit(Int32, int(perm)),
            topic_filter_type=filter_type,
        )
    except (ValueError, ProtocolError):
        raise ProtocolError(f"malformed topic in a register body: {line[:80]!r}") from None
