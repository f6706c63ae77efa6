"""Base of all JSON bodies: a struct that reads and writes itself.

Owns the two verbs ``encode`` and ``decode``.  Must not know any particular body.

Invariant: every member has a default, as every Java bean has one, so a body that lacks
members still decodes; unknown members are dropped.
"""

from typing import Self

import msgspec

from eruca.protocol import fastjson
from eruca.protocol.fastjson import Style


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
