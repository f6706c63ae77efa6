"""Errors of commands: each is one sentence for the operator."""

from __future__ import annotations


class AdminError(Exception):
    """A command failed; the message is one sentence that says what to do."""


class PeerRefused(AdminError):
    """A broker or nameserver refused with this ``code`` and ``remark``."""

    def __init__(self, code: int, remark: str, address: str) -> None:
        self.code = code
        self.remark = remark
        self.address = address
        first = remark.split("\n", 1)[0].strip() or "no reason given"
        super().__init__(f"{first} (code {code} from {address})")


class NoAnswer(AdminError):
    """A broker or nameserver is not reachable or did not answer in time."""


class UsageError(AdminError):
    """The command line lacks an option or has an unknown one; the command's usage is printed."""
