"""The pending calls of one connection: who waits for which answer, and until when (ResponseFuture in 4.9.7).

Owns the table by opaque and one timer for the earliest deadline. Knows no bytes: the connection passes in what it read,
and when it ended. Every call ends exactly once, with an answer or an error.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Empty, Header
from eruca.remoting.errors import CallTimedOut, ConnectionLost

R = TypeVar("R", bound=Header)
T = TypeVar("T", contravariant=True)

_prefix = struct.Struct(">II").unpack_from
_NO_PLAIN_ANSWER = (KeyError, *frame.UNREADABLE)


class Receiver(Protocol[T]):
    """Takes the answer of a call: a future, or a cheaper object. None of its methods may raise."""

    def done(self) -> bool:
        """Whether the answer is no longer wanted."""

    def set_result(self, result: T, /) -> None:
        """Called with the answer."""

    def set_exception(self, exception: Exception, /) -> None:
        """Called when there will be no answer."""


class Answer(msgspec.Struct, Generic[R], eq=False):
    """A peer's answer, with a code that the endpoint accepts."""

    code: int
    header: R
    body: bytes
    remark: str | None
    version: int
    language: str | int | None


class QuickAnswer(Protocol):
    """What an ``AnswerReader`` reads: at least the opaque."""

    @property
    def opaque(self) -> int:
        """The number of the request."""


class AnswerGroup(Protocol):
    """Receives the answers of one read to many calls in one go."""

    def answered(self, calls: list[Any], answers: list[Any], /) -> None:
        """These calls were answered, each by the answer at the same place. Must not raise."""


class PendingCall(Protocol):
    """A call that awaits its answer."""

    @property
    def receiver(self) -> Receiver[Any]:
        """Who receives the answer ..."""

    @property
    def endpoint(self) -> Endpoint[Any, Any]:
        """... to what ..."""

    @property
    def deadline(self) -> float:
        """... and until when, by the loop's time."""

    @property
    def asked(self) -> float:
        """When its request left, by the loop's time."""

    @property
    def owner(self) -> AnswerGroup | None:
        """Who takes plain answers in place of the receivers, those of one read together."""


class SingleCall(msgspec.Struct, eq=False):
    """A call whose receiver takes every answer."""

    receiver: Receiver[Any]
    endpoint: Endpoint[Any, Any]
    deadline: float
    asked: float
    owner: None = None


AnswerReader = Callable[[bytes], QuickAnswer | None]
"""Reads the header of a plain answer; returns None, or raises one of ``frame.UNREADABLE``, for any other."""


class Calls:
    """The calls of one connection to ``remote`` (``ip:port``) that await their answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.remote = ""
        self._loop = loop
        self.waiting: dict[int, PendingCall] = {}
        """By opaque."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._cause = ""
        self._read = frame.answer_reader(Empty)
        """Reads the fields of an answer as the type of the last answer."""

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, opaque: int, receiver: Receiver[Answer[R]], endpoint: Endpoint[Any, R], timeout: float) -> None:
        """Expect an answer within ``timeout`` seconds."""
        asked = self._loop.time()
        deadline = asked + timeout
        self.waiting[opaque] = SingleCall(receiver, endpoint, deadline, asked)
        self.watch(deadline)

    def add_many(self, calls: Mapping[int, PendingCall], deadline: float) -> None:
        """Expect answers; ``deadline`` is the earliest one of these calls."""
        self.waiting.update(calls)
        self.watch(deadline)

    def answered_together(self, data: bytes, at: int, readers: Mapping[int, AnswerReader]) -> int:
        """Give the answers that begin at ``at`` to the owners of the calls; returns where the first other frame begins.

        Stops at whatever is no plain answer to a call with an owner: the slow path reads that.
        """
        waiting, size = self.waiting, len(data)
        owner: AnswerGroup | None = None
        calls: list[PendingCall] = []
        answers: list[QuickAnswer] = []
        while size - at > 8:
            length, word = _prefix(data, at)
            end, body_at = at + 4 + length, at + 8 + (word & 0xFFFFFF)
            if end > size or body_at > end:
                break
            try:
                answer = readers[word >> 24](data[at + 8 : body_at])
                if answer is None:
                    break
                call = waiting[answer.opaque]
            except _NO_PLAIN_ANSWER:
                break
            if call.owner is not owner:
                if call.owner is None:
                    break
                if owner is not None:
                    owner.answered(calls, answers)
                    calls, answers = [], []
                owner = call.owner
            elif owner is None:
                break
            del waiting[answer.opaque]
            calls.append(call)
            answers.append(answer)
            at = end
        if owner is not None:
            owner.answered(calls, answers)
        return at

    def watch(self, deadline: float) -> None:
        """Check for expired calls at ``deadline`` (loop's time) or earlier."""
        if self._timer is None or deadline < self._timer_at:
            self._wake_at(deadline)

    def answered_as_expected(self, header: bytes, data: bytes, body_at: int, end: int) -> bool:
        """The fast path: takes a frame if it is an answer whose fields have the type of the last answer.

        Returns False for frames that the slow path must read: requests, other types, and malformed frames.
        """
        kind, read = self._read
        try:
            head = read(header)
        except frame.UNREADABLE:
            return False
        fields = head.ext
        if fields is None or not head.flag & frame.RESPONSE_FLAG:
            return False
        call = self.waiting.get(head.opaque)
        if call is None or call.endpoint.answer is not kind or head.code not in call.endpoint.accepts:
            return False
        del self.waiting[head.opaque]
        receiver = call.receiver
        if not receiver.done():
            body = data[body_at:end]
            receiver.set_result(Answer(head.code, fields, body, head.remark, head.version, head.language))
        return True

    def answered(self, head: frame.Head[Any], body: bytes) -> None:
        """Complete the call of an answer; an answer without a pending call is dropped."""
        call = self.waiting.pop(head.opaque, None)
        if call is None or call.receiver.done():
            return
        receiver, endpoint = call.receiver, call.endpoint
        if head.code not in endpoint.accepts:
            receiver.set_exception(Refused(head.code, head.remark or ""))
            return
        if endpoint.answer is not Empty:
            self._read = frame.answer_reader(endpoint.answer)
        try:
            fields = frame.typed(endpoint.answer, head)
            receiver.set_result(Answer(head.code, fields, body, head.remark, head.version, head.language))
        except (Refused, ProtocolError) as error:
            receiver.set_exception(ProtocolError(f"{endpoint.code.name} was answered by {self.remote} with: {error}"))

    def end(self, cause: str = "") -> None:
        """Fail all calls: the connection has ended. The errors contain ``cause``."""
        self._cause = self._cause or cause
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self.waiting = self.waiting, {}
        for call in waiting.values():
            if not call.receiver.done():
                text = f"the connection to <{self.remote}> ended during {call.endpoint.code.name}{cause}"
                call.receiver.set_exception(ConnectionLost(self.remote, text))

    def too_late(self, receiver: Receiver[Answer[Any]]) -> None:
        """Fail a call on a connection that has already ended."""
        text = f"the connection to <{self.remote}> is closed{self._cause}"
        receiver.set_exception(ConnectionLost(self.remote, text))

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        late = [opaque for opaque, call in self.waiting.items() if call.deadline <= now]
        for opaque in late:
            call = self.waiting.pop(opaque)
            if not call.receiver.done():
                text = f"<{self.remote}> did not answer {call.endpoint.code.name} in time"
                call.receiver.set_exception(CallTimedOut(self.remote, text))
        if self.waiting:
            self._wake_at(min([call.deadline for call in self.waiting.values()]))


class Caller(Protocol):
    """A connection, as far as its calls matter."""

    calls: Calls


def answers_together(readers: Mapping[int, AnswerReader]) -> Callable[[Caller, bytes, int], int]:
    """What handles plain answers, read by one of these readers for each serialization, before the slow path."""

    def handle(connection: Caller, data: bytes, at: int) -> int:
        return connection.calls.answered_together(data, at, readers)

    return handle
