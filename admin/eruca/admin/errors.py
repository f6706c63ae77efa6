"""Errors of commands: each is one sentence for the operator, and has the exit status of mqadmin."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import msgspec

from eruca.protocol.codes import ResponseCode

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What a file or a line raises that is no JSON, TOML or YAML of the kind that is wanted."""


class Status(IntEnum):
    """The exit statuses of mqadmin."""

    DONE = 0
    FAILED = 1
    """A peer refused or did not answer, or mqadmin refused to act."""
    USAGE = 2
    """The command line is wrong."""
    WOULD_CHANGE = 3
    """A dry run found something to change."""
    NOT_FOUND = 4
    PARTIAL = 5
    """Only a part was reached, done or confirmed."""
    TIMED_OUT = 124
    """Nothing was answered in time."""
    INTERRUPTED = 130


MEANINGS: Final[dict[int, str]] = {
    Status.DONE: "done",
    Status.FAILED: "a broker or nameserver refused or is away, or mqadmin refused to act",
    Status.USAGE: "the command line is wrong",
    Status.WOULD_CHANGE: "a dry run found something to change",
    Status.NOT_FOUND: "not found",
    Status.PARTIAL: "only a part was reached, done or confirmed",
    Status.TIMED_OUT: "no answer in time",
    Status.INTERRUPTED: "interrupted",
}
"""What each status says, for help and documentation."""


class AdminError(Exception):
    """A command failed; the message is one sentence that says what to do."""

    status = Status.FAILED


_NOT_THERE: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
    }
)
"""Codes by which a peer says that what was asked for is not there."""
_NOT_THERE_WORDS: Final = re.compile(
    r"can not find message|the producer group\[.*\] not exist|The Consumer .* not online"
)
"""The beginnings of remarks by which brokers say the same with SYSTEM_ERROR (4.9.7)."""


class PeerRefused(AdminError):
    """A broker or nameserver refused with this ``code`` and ``remark``."""

    def __init__(self, code: int, remark: str, address: str) -> None:
        if code in _NOT_THERE or (code == ResponseCode.SYSTEM_ERROR and _NOT_THERE_WORDS.match(remark)):
            self.status = Status.NOT_FOUND
        self.code = code
        self.remark = remark
        self.address = address
        first = remark.split("\n", 1)[0].strip() or "no reason given"
        super().__init__(f"{first} (code {code} from {address})")


class UnknownGroup(PeerRefused):
    """There is no group of this name, or none that has ever had a member."""

    status = Status.NOT_FOUND


class NoAnswer(AdminError):
    """A broker or nameserver is not reachable or did not answer in time."""


class TimedOut(NoAnswer):
    """A broker or nameserver is connected and did not answer in time."""

    status = Status.TIMED_OUT


class NotFound(AdminError):
    """What the command was to find is nowhere."""

    status = Status.NOT_FOUND


class Partial(AdminError):
    """A part of the work was done, and the sentence says which part was not."""

    status = Status.PARTIAL


class UsageError(AdminError):
    """The command line lacks an option or has an unknown one; the command's usage is printed."""

    status = Status.USAGE


class BadValue(AdminError):
    """An option has a value that it does not take."""

    status = Status.USAGE
