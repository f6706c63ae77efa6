"""What the brokers of a group say to each other is bounded before it is read."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable

import pytest

from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import Kind
from eruca.protocol.errors import ProtocolError


def stream(data: bytes) -> Callable[[int], Awaitable[bytes]]:
    """Reads ``data``, and fails where more is asked for than there is."""

    async def exactly(size: int) -> bytes:
        nonlocal data
        assert size <= len(data), f"{size} bytes are asked for"
        found, data = data[:size], data[size:]
        return found

    return exactly


async def test_a_message_comes_as_it_was_said() -> None:
    assert await messages.read(stream(messages.report(3, 500, 7))) == (Kind.REPORT, messages.report(3, 500, 7)[5:])


@pytest.mark.parametrize("size", [(64 << 20) + 1, 2**31 - 1, -1])
async def test_nobody_waits_for_a_message_of_a_size_that_none_has(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"no message of a group has {size} bytes"):
        await messages.read(stream(struct.pack(">iB", size, int(Kind.BEAT))))


async def test_nobody_reads_a_kind_that_is_not_known() -> None:
    with pytest.raises(ProtocolError, match="kind 200"):
        await messages.read(stream(struct.pack(">iB", 0, 200)))
