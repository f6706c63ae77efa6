"""Packer: large bodies are compressed in a thread before their sends leave.

Invariants: a send whose body is being compressed keeps its place, and those that were started after it follow it; a
compression that fails fails its send alone.
"""

from __future__ import annotations

import asyncio

from eruca.client.compression import Compress, in_thread
from eruca.client.producing.backoff import stopped
from eruca.client.producing.send import Send, with_flags
from eruca.client.producing.sender import Sender
from eruca.client.watched_future import fail


def pack(sender: Sender, send: Send, compress: Compress) -> None:
    """Compress the body of a send that is to be started right after this call."""

    def ended(task: asyncio.Task[tuple[bytes, int]]) -> None:
        error = stopped() if task.cancelled() else task.exception()
        if error is None:
            send.body, bits = task.result()
            send.kind = with_flags(send.kind, send.kind.flag, bits)
            if send.hooks is not None:
                send.hooks.context.body_size = len(send.body)
        elif not send.future.done():
            fail(send.future, error)
        send.packing = False
        sender.accumulator.admit()

    send.packing = True
    sender.session.spawn(in_thread(compress, send.body)).add_done_callback(ended)
