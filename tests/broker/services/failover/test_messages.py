"""What the brokers of a group say to each other is bounded before it is read."""

from __future__ import annotations

import struct

import pytest

from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import Kind, MessageReader
from eruca.protocol.errors import ProtocolError


def test_a_message_comes_as_it_was_said() -> None:
    assert MessageReader().feed(messages.report(3, 500, 7)) == [(Kind.REPORT, messages.report(3, 500, 7)[5:])]


@pytest.mark.parametrize("size", [(64 << 20) + 1, 2**31 - 1, 2**32 - 1])
def test_nobody_waits_for_a_message_of_a_size_that_none_has(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"no message of a group has {size} bytes"):
        MessageReader().feed(struct.pack(">IB", size, int(Kind.BEAT)))


def test_nobody_reads_a_kind_that_is_not_known() -> None:
    with pytest.raises(ProtocolError, match="kind 200"):
        MessageReader().feed(struct.pack(">IB", 0, 200))
