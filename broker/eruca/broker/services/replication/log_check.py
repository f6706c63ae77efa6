"""Whether a master has the log that a slave has: compared before the slave follows it.

Owns the first connection to a master, by the HA protocol: reports where the slave's last record begins, compares what
the master sends from there with the end of the slave's log, and closes. Nothing is written. Any master answers it, also
Apache's. Facts: HAConnection in 4.9.7, which sends only heartbeats while it has nothing at the reported offset.
"""

from __future__ import annotations

import asyncio

from eruca.broker.services.replication.transfer import FrameReader, report
from eruca.broker.store import CopyRefused, Tail
from eruca.remoting.addresses import split_address
from eruca.remoting.tls import TlsFiles, tls_arguments

CONNECT_TIMEOUT = 3.0
"""Seconds."""
NO_MORE_AFTER = 3.0
"""A master that sends no log for this many seconds, and then a heartbeat, has none there: that log would be old."""
_READ = 1 << 16
_STORES = "check both with 'eruca store verify' before one of them is emptied"


async def check_log(address: str, tail: Tail, silence: float, tls: TlsFiles | None = None) -> None:
    """Return if the master at ``address`` has all bytes of ``tail``.

    Raises:
        CopyRefused: it has others, or not all of them.
        OSError: it cannot be reached, was silent for ``silence`` seconds, or the connection was lost.
        ValueError: this is no address.
        ProtocolError: it sent something else than frames.
    """
    host, port = split_address(address)
    async with asyncio.timeout(CONNECT_TIMEOUT):
        reader, writer = await asyncio.open_connection(host, port, **tls_arguments(tls, host, CONNECT_TIMEOUT))
    try:
        writer.write(report(tail.start))
        await _compare(address, reader, tail, silence)
    finally:
        writer.transport.abort()


async def _compare(address: str, reader: asyncio.StreamReader, tail: Tail, silence: float) -> None:
    loop, frames = asyncio.get_running_loop(), FrameReader()
    at, came = tail.start, loop.time()
    while at < tail.end:
        try:
            async with asyncio.timeout(silence):
                data = await reader.read(_READ)
        except TimeoutError:
            raise TimeoutError("it was silent for longer than haHousekeepingInterval") from None
        if not data and at > tail.start:
            raise ConnectionError("the connection ended while the logs were compared")
        if not data:
            raise _missing(address, f"ended the connection instead of sending its log from {at} on", tail)
        for frame in frames.feed(data):
            if frame.offset != at:
                raise CopyRefused(f"the master at {address} was asked for its log at {at}, but sent {frame.offset}")
            if frame.data:
                came = loop.time()
            elif loop.time() - came >= NO_MORE_AFTER:
                raise _missing(address, f"sends no log from {at} on", tail)
            known = tail.data[at - tail.start : at - tail.start + len(frame.data)]
            if frame.data[: len(known)] != known:
                raise _other(address, tail)
            at += len(frame.data)
            if at >= tail.end:
                return


def _other(address: str, tail: Tail) -> CopyRefused:
    return CopyRefused(
        f"the master at {address} has another log: what it has at {tail.start} is not the last record of this log, "
        f"which ends at {tail.end}; nothing was taken from it. If a second master was started under this name, stop "
        f"it or give it another brokerName; if that master is the right one, empty this store ({_STORES})"
    )


def _missing(address: str, what: str, tail: Tail) -> CopyRefused:
    return CopyRefused(
        f"the master at {address} {what}, but this log ends at {tail.end}: it is ahead, as the copy of another "
        "master's log (was a second master started under this name?) or because this master has lost its end; or the "
        f"master deleted what comes next here; nothing was taken from it ({_STORES})"
    )
