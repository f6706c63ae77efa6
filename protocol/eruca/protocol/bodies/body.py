"""Base of all JSON bodies: a struct that reads and writes itself.

Owns the two verbs ``encode`` and ``decode``.  Must not know any particular body.

Invariant: every member has a default, as every Java bean has one, so a body that lacks
members still decodes; unknown members are dropped.
"""

from typing import Self

import msgspec

from eruca.protocol import fastjson
from eruca.protocol.fastjson import Style

MAX_DIALECT = 1 << 20
"""Bytes of the longest body of a request that is no plain JSON. RocketMQ's clients and brokers send plain JSON."""
DIALECT_AT_ONCE = 32 << 10
"""Bytes of such a body that take no longer to read than 20 ms."""


class Body(msgspec.Struct, kw_only=True, rename="camel"):
    """A value that is sent or stored as one JSON text."""

    def encode(self, style: Style = Style.COMPACT) -> bytes:
        """The JSON text, byte for byte as fastjson 1.2.69 writes the Java class."""
        return fastjson.dumps(self, style)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read a JSON text, with fastjson's leniency.

        Raises ProtocolError if it is malformed or a member has the wrong type.
        """
        return fastjson.reader(cls)(data)

    @classmethod
    def decode_request(cls, data: bytes | bytearray | memoryview, dialect: int = MAX_DIALECT) -> Self:
        """As ``decode``, for the body of a request.

        Raises LongDialect, a ProtocolError, for more than ``dialect`` bytes of anything but plain JSON.
        """
        return fastjson.reader(cls)(data, dialect)
