"""A request and its reply, as handlers see them (RemotingCommand in 4.9.7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from eruca.protocol import frame
from eruca.protocol.codes import LANGUAGE, VERSION, RequestCode, bounded_version, known_language
from eruca.protocol.header import Header

A = TypeVar("A", bound=Header)

Body = bytes | Sequence[bytes | memoryview]
"""A body in one piece, or in pieces that are sent in order without being joined."""


_CODES = frozenset(map(int, RequestCode))
OURS: Final = (LANGUAGE, VERSION)
"""Language and version in the headers of replies."""


class Reply(msgspec.Struct):
    """The answer to a request: response code, fields, body, and a sentence for the person at the other end.

    ``by`` holds language and version of the peer whose answer is passed on.
    """

    code: int = 0
    header: Header | None = None
    body: Body = b""
    remark: str | None = None
    by: tuple[str, int] = OURS


def _allowed(topic: str) -> bool:
    return True


def _still_allowed(call: Call[Any]) -> None:
    return None


class Change(msgspec.Struct):
    """What a request changes, for the audit log: what it is about, what was before and is after, if the handler says.

    Texts that anybody who reads the log may read: no secret, no content of a message.
    """

    target: str = ""
    before: str | None = None
    after: str | None = None


class Call(msgspec.Struct, Generic[A]):
    """One request: its typed header, its body, and the ``Connection`` that it came on.

    ``head`` is the frame's header as it was read, ``data`` its bytes. ``account`` is the access key whose signature was
    checked; empty without access control. ``may_read`` and ``may_send`` are whether the requester may read the messages
    of a topic, and send to it: to be asked where a request names a message, not its topic. ``change`` is there for
    requests whose route declares ``changes``. ``held`` is whether the answer waited for a message to arrive; before
    it is answered ``look_again``, which raises Refused, looks whether the requester may still ask this.
    """

    header: A
    body: bytes
    connection: Any
    head: frame.Head[Any]
    serialization: int
    data: bytes
    account: str = ""
    may_read: Callable[[str], bool] = _allowed
    may_send: Callable[[str], bool] = _allowed
    change: Change | None = None
    held: bool = False
    look_again: Callable[[Call[Any]], None] = _still_allowed
    _texts: dict[str, str] | None = None

    def note(self, *, target: str | None = None, before: object = None, after: object = None) -> None:
        """What the audit log is to say of this request, beside its outcome."""
        change = self.change = self.change or Change()
        change.target = change.target if target is None else target
        change.before = change.before if before is None else str(before)
        change.after = change.after if after is None else str(after)

    @property
    def about(self) -> dict[str, object]:
        """What a line of the log says of the request that it concerns."""
        about = {"request_code": self.code, "opaque": self.opaque, "remote": self.connection.remote}
        return {**about, "account": self.account} if self.account else about

    @property
    def code(self) -> int:
        """The request code."""
        return self.head.code

    @property
    def code_name(self) -> str:
        """The name of the request code; the number of an unknown one."""
        return RequestCode(self.code).name if self.code in _CODES else str(self.code)

    @property
    def opaque(self) -> int:
        """The number that the requester gave this request."""
        return self.head.opaque

    @property
    def version(self) -> int:
        """The requester's MQVersion ordinal, within the bounds of a version."""
        return bounded_version(self.head.version)

    @property
    def language(self) -> str:
        """The requester's language; OTHER if it is unknown."""
        return known_language(self.head.language)

    @property
    def remark(self) -> str | None:
        """The requester's remark."""
        return self.head.remark

    @property
    def oneway(self) -> bool:
        """Whether no answer is wanted."""
        return bool(self.head.flag & frame.ONEWAY_FLAG)

    def texts(self) -> dict[str, str]:
        """All fields of the header as texts, including unknown ones."""
        if self._texts is None:
            self._texts = frame.texts(self.serialization, self.data)
        return self._texts

    def texts_with_nulls(self) -> dict[str, str]:
        """The same, with the fields that are null as the text that Java signs for them."""
        return frame.texts_with_nulls(self.serialization, self.data)
