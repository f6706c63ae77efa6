"""etcd behind the port: its JSON gateway (``/v3``), several endpoints, each attempt with its deadline.

Owns which endpoint is asked, what may be asked again elsewhere, and the meaning of each answer. Facts, tried with 3.4:
numbers of 64 bits are texts; a compare that failed is an answer without ``succeeded``; the renewal of a lease that is
over is a 200 without ``TTL``; only with the header Grpc-Metadata-hasleader a watch on a member without a leader ends;
reads are linearizable unless one asks otherwise, and nobody does here. Must not know what the keys mean. Invariants: a
change that may have been sent is never sent a second time; a watch leaves a member that has not answered a request.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from eruca.broker.coordination.http_wire import Endpoint, Wire, WireBroken
from eruca.broker.coordination.port import Entry, HoldEnded, OutcomeUnknown, Put, Unavailable
from eruca.remoting.tls import TlsFiles

ATTEMPT = 0.8
"""Seconds for an attempt at one endpoint; then comes the next one."""
WATCHED = 10.0
"""Seconds until a watch begins again where nothing is asked: one whose member hangs would be silent for ever."""
AGAIN_AFTER = 0.2
"""Seconds until a watch is tried again."""
NO_LEASE = 5
"""The gRPC code NOT_FOUND, by which etcd refuses a lease that it does not know."""
_LEADER = {"Grpc-Metadata-hasleader": "true"}


class Refusal(Unavailable):
    """An answer that is an error; ``code`` is the gRPC code."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class _Pair(msgspec.Struct):
    key: str
    value: str = ""
    mod_revision: int = 0


class _Header(msgspec.Struct):
    revision: int = 0


class _Answer(msgspec.Struct):
    """What is read of all answers."""

    header: _Header = msgspec.field(default_factory=_Header)
    kvs: list[_Pair] = []
    succeeded: bool = False
    lease: int = msgspec.field(default=0, name="ID")
    seconds: int = msgspec.field(default=0, name="TTL")


class _Turn(msgspec.Struct):
    """A line of a stream."""

    result: _Answer | None = None
    error: dict[str, Any] | None = None


class _Error(msgspec.Struct):
    error: str = ""
    code: int = 2


class Etcd:
    """A client of one etcd cluster; ``endpoints`` are those of its members, ``tls`` is for those by https.

    Raises ValueError for an endpoint that is none.
    """

    def __init__(
        self, endpoints: Sequence[str], tls: ssl.SSLContext | TlsFiles | None = None, attempt: float = ATTEMPT
    ) -> None:
        self._endpoints = [Endpoint.of(each) for each in endpoints]
        if not self._endpoints:
            raise ValueError("etcd has no endpoint: name at least one, like http://10.0.0.1:2379")
        if tls is None and any(each.tls for each in self._endpoints):
            tls = ssl.create_default_context()
        self._tls = tls
        self._attempt = attempt
        self._preferred = 0
        self._idle: dict[Endpoint, Wire] = {}
        self._watching: dict[Wire, Endpoint] = {}

    async def close(self) -> None:
        """Close the connections."""
        for wire in self._idle.values():
            wire.close()
        self._idle.clear()

    # ------------------------------------------------------------------ the verbs

    async def read(self, key: str) -> Entry | None:
        """As in the port."""
        found = await self._ask("/v3/kv/range", {"key": _coded(key)})
        return _entry(found.kvs[0]) if found.kvs else None

    async def read_all(self, prefix: str) -> dict[str, Entry]:
        """As in the port."""
        found = await self._ask("/v3/kv/range", {**_range(prefix), "sort_target": "KEY", "sort_order": "ASCEND"})
        return {b64decode(pair.key).decode(): _entry(pair) for pair in found.kvs}

    async def change(self, seen: Mapping[str, int], puts: Sequence[Put], deletes: Sequence[str] = ()) -> int | None:
        """As in the port."""
        request = {
            "compare": [
                {"key": _coded(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
                for key, revision in seen.items()
            ],
            "success": [
                *({"request_put": _put(each)} for each in puts),
                *({"request_delete_range": {"key": _coded(key)}} for key in deletes),
            ],
        }
        try:
            answer = await self._ask("/v3/kv/txn", request, once=True)
        except Refusal as refused:
            if refused.code == NO_LEASE:
                raise HoldEnded(str(refused)) from None
            raise
        return answer.header.revision if answer.succeeded else None

    async def hold(self, seconds: int) -> int:
        """As in the port."""
        return (await self._ask("/v3/lease/grant", {"TTL": str(seconds)})).lease

    async def renew(self, hold: int) -> None:
        """As in the port."""
        answer = await self._ask("/v3/lease/keepalive", {"ID": str(hold)}, stream=True)
        if not answer.seconds:
            raise HoldEnded(f"the lease {hold} is over")

    async def release(self, hold: int) -> None:
        """As in the port."""
        try:
            await self._ask("/v3/lease/revoke", {"ID": str(hold)})
        except Refusal as refused:
            if refused.code != NO_LEASE:
                raise

    async def watch(self, prefix: str) -> AsyncIterator[None]:
        """As in the port."""
        while True:
            endpoint = self._endpoints[self._preferred]
            try:
                async with aclosing(self._watch_once(endpoint, prefix)) as turns:
                    async for _ in turns:
                        yield
            except (WireBroken, Refusal, TimeoutError):
                self._pass_over(endpoint)
                await asyncio.sleep(AGAIN_AFTER)

    # ------------------------------------------------------------------ asking

    async def _ask(
        self, path: str, request: Mapping[str, object], *, once: bool = False, stream: bool = False
    ) -> _Answer:
        """Ask the endpoints in turn, until one answers; with ``once`` only until one may have got the request.

        Raises Refusal for an answer that no other endpoint would give otherwise.
        """
        body = msgspec.json.encode(request)
        faults: list[str] = []
        for _ in range(len(self._endpoints)):
            endpoint = self._endpoints[self._preferred]
            sent = True
            try:
                async with asyncio.timeout(self._attempt):
                    status, answer = await self._attempt_at(endpoint, path, body, fresh=once)
                return _answer(status, answer, stream=stream)
            except WireBroken as fault:
                faults.append(f"{endpoint}: {fault}")
                sent = fault.sent
            except TimeoutError:
                faults.append(f"{endpoint}: no answer within {self._attempt:g} s")
            except Refusal as refused:
                if refused.code not in _ELSEWHERE:
                    raise
                faults.append(f"{endpoint}: {refused}")
            self._pass_over(endpoint)
            if once and sent:
                raise OutcomeUnknown(f"etcd may have made a change or not: {faults[-1]}")
        raise Unavailable(f"etcd does not answer: {'; '.join(faults)}")

    async def _attempt_at(self, endpoint: Endpoint, path: str, body: bytes, *, fresh: bool) -> tuple[int, bytes]:
        """Ask one endpoint, over an idle connection or a ``fresh`` one, of which nobody doubts that it stands."""
        wire = self._idle.pop(endpoint, None)
        if wire is not None and (fresh or not wire.idle):
            wire.close()
            wire = None
        if wire is None:
            wire = await Wire.connect(endpoint, self._tls)
        try:
            answer = await wire.ask(path, body)
        except BaseException:
            wire.close()
            raise
        if wire.idle and endpoint not in self._idle:
            self._idle[endpoint] = wire
        else:
            wire.close()
        return answer

    def _pass_over(self, endpoint: Endpoint) -> None:
        """Ask the next endpoint first from now on, unless somebody has found another one already.

        Its watches end, and begin again there: a member that hangs says nothing, and its connections stay.
        """
        for wire in [wire for wire, watched in self._watching.items() if watched is endpoint]:
            wire.close()
        if self._endpoints[self._preferred] is endpoint:
            self._preferred = (self._preferred + 1) % len(self._endpoints)

    async def _watch_once(self, endpoint: Endpoint, prefix: str) -> AsyncGenerator[None]:
        """Watch over one connection, for ``WATCHED`` seconds at most."""
        body = msgspec.json.encode({"create_request": _range(prefix)})
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._attempt):
            wire = await Wire.connect(endpoint, self._tls)
        self._watching[wire] = endpoint
        try:
            until = loop.time() + self._attempt
            async with aclosing(wire.lines("/v3/watch", body, _LEADER)) as lines:
                over = loop.time() + WATCHED
                while True:
                    try:
                        async with asyncio.timeout_at(until):
                            status, line = await anext(lines)
                    except TimeoutError:
                        if until == over:
                            return
                        raise
                    except StopAsyncIteration:
                        return
                    until = over
                    _turn(status, line)
                    yield
        finally:
            del self._watching[wire]
            wire.close()


_ELSEWHERE = frozenset({1, 4, 8, 13, 14})
"""gRPC codes for which another endpoint is asked: CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL,
UNAVAILABLE (no leader, among others)."""


def _coded(key: str) -> str:
    return b64encode(key.encode()).decode()


def _range(prefix: str) -> dict[str, str]:
    """All keys that begin so; the last character of a prefix is below 127."""
    return {"key": _coded(prefix), "range_end": _coded(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


def _put(put: Put) -> dict[str, str]:
    lease = {} if put.hold is None else {"lease": str(put.hold)}
    return {"key": _coded(put.key), "value": b64encode(put.value).decode(), **lease}


def _entry(pair: _Pair) -> Entry:
    return Entry(b64decode(pair.value), pair.mod_revision)


def _answer(status: int, body: bytes, *, stream: bool) -> _Answer:
    if status != 200:
        raise _refusal(status, body)
    try:
        if not stream:
            return msgspec.json.decode(body, type=_Answer, strict=False)
        return _turn(status, body)
    except msgspec.MsgspecError as fault:
        raise WireBroken(f"its answer cannot be read ({fault})", sent=True) from None


def _turn(status: int, line: bytes) -> _Answer:
    if status != 200:
        raise _refusal(status, line)
    try:
        turn = msgspec.json.decode(line, type=_Turn, strict=False)
    except msgspec.MsgspecError as fault:
        raise WireBroken(f"its answer cannot be read ({fault})", sent=True) from None
    if turn.error is not None or turn.result is None:
        raise Refusal(14, str(turn.error))
    return turn.result


def _refusal(status: int, body: bytes) -> Refusal:
    try:
        error = msgspec.json.decode(body, type=_Error, strict=False)
    except msgspec.MsgspecError:
        return Refusal(2, f"it answers with status {status}: is this etcd, 3.4 or newer?")
    return Refusal(error.code, error.error)
