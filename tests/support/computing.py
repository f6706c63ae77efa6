"""A listener for other processes, in a module that they can import quickly."""

from __future__ import annotations

import os
import signal

from eruca.client import Later, ReceivedMessage


def look(message: ReceivedMessage) -> Later | None:
    """Consume what is tagged ok, elsewhere than in the process that made the pool."""
    assert message.body == b"x" and message.properties["UNIQ_KEY"] and os.getpid() != int(message.keys[0])
    return None if message.tags == "ok" else Later(delay_level=18)


def die(message: ReceivedMessage) -> None:
    """Consume a message, or end the process at once."""
    if message.body == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
