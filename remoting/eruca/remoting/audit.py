"""The audit log: one line for each change that a request asks for, with its outcome.

Owns the form of that line: account, address, request, target, before, after, result. Must not know what a request does:
its route declares ``changes``, and its handler notes what was before and is after. Invariant: such a request leaves
exactly one line, also if it is refused, fails, or its connection ends meanwhile; the log never leaves one out. The line
is ``change``, or ``access_refused`` if access control refuses the request. Only of the requests of senders without a
valid signature, who could fill the log, a minute has one line by code and address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eruca.remoting.access.refusals import AccessRefused
from eruca.remoting.log import Log
from eruca.remoting.log_repeats import Repeats
from eruca.remoting.request import Call, Reply

NOBODY = "none"
"""The account of a request without one. No access key is that short."""
NOTHING = "nothing"
"""Before a creation, and after a deletion."""
LONGEST = 1000
"""Characters of a target, and of what was before or is after."""

audit_log = Log("eruca.audit")


def note_settings(call: Call[Any], before: Mapping[str, str], changed: Mapping[str, str]) -> None:
    """Note changed settings; ``before`` has all but the secret ones, which cannot be changed at run time."""
    call.note(
        target=f"settings {', '.join(sorted(changed)) or NOBODY}",
        before=_settings({key: before[key] for key in changed}),
        after=_settings(changed),
    )


def answered(call: Call[Any], reply: Reply | None) -> None:
    """A request of which a route declares that it changes something was answered."""
    line = _line(call)
    if reply is None or reply.code == 0:
        audit_log.info("change", **line, result="done")
    else:
        audit_log.warning("change", **line, result="refused", response_code=int(reply.code), reason=reply.remark)


class ClosedChanges:
    """Changes that access control has refused: all those of accounts that may not make them, few of strangers'."""

    def __init__(self) -> None:
        self._repeats = Repeats()

    def refused(self, call: Call[Any], refusal: AccessRefused) -> None:
        """Such a request was refused."""
        stranger = (call.code, call.connection.remote.rpartition(":")[0])
        again = {} if call.account else self._repeats.failed(stranger)
        if again is None:
            return
        line = {**_line(call), "reason": refusal.reason, **again}
        if refusal.claimed:
            line["account"] = refusal.claimed
        if refusal.resource:
            line["resource"] = refusal.resource
        audit_log.warning("access_refused", **line)


def unanswered(call: Call[Any]) -> None:
    """Its connection ended before the answer: it may have changed something or not."""
    audit_log.warning("change", **_line(call), result="unknown", reason="the connection ended before the answer")


def _line(call: Call[Any]) -> dict[str, object]:
    change = call.change
    values = {} if change is None else {"target": change.target, "before": change.before, "after": change.after}
    return {
        **call.about,
        "account": call.account or NOBODY,
        "request": call.code_name,
        **{name: _short(value) for name, value in values.items() if value},
    }


def _settings(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={values[key]}" for key in sorted(values))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}...+{len(text) - LONGEST}"
