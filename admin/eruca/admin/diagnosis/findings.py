"""The results of a diagnosis: what is wrong, where, and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from eruca.admin.results.answer import NONE, WIDE, Moment, Result, Table

Kind = Literal[
    "nameserversDisagree",
    "brokerUnreachable",
    "brokerAtLoopback",
    "brokerRefusesSends",
    "noMaster",
    "slaveBehind",
    "brokerClock",
    "autoCreate",
    "openToAll",
    "queueNumbersDiffer",
    "topicNotEverywhere",
    "groupUnused",
    "subscriptionsDiffer",
    "queueWithoutOwner",
    "queueWithTwoOwners",
    "memberNotEverywhere",
    "memberClock",
    "retriesGrow",
    "deadLettersGrow",
]


ALONE: Final = "no member is online"
"""What is said of a group that nobody uses, and for which no message waits, as far as is known."""
WAITING: Final = f"{ALONE}, and "
"""With it begins what is said of such a group for which messages wait."""
SHOWN: Final = 3
"""Groups that are named where many have the same."""


class Finding(Result, frozen=True, kw_only=True, rename="camel"):
    """One thing that is wrong."""

    kind: Kind
    where: str
    """``group shop``, ``topic Orders at broker-b``."""
    what: str
    mend: str
    """How to mend it."""
    broker: Annotated[str | None, WIDE, NONE] = None
    topic: Annotated[str | None, WIDE, NONE] = None
    group: Annotated[str | None, WIDE, NONE] = None
    member: Annotated[str | None, WIDE, NONE] = None
    """A client id."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.mend}"


def in_short(items: Sequence[Finding]) -> list[Finding]:
    """The findings for a person: all groups that nobody uses are one, behind the others, if there are several."""
    unused = [each for each in items if each.kind == "groupUnused"]
    if len(unused) < 2:
        return list(items)
    names = sorted(unused, key=lambda each: (not each.what.startswith(WAITING), each.group))
    shown = ", ".join(str(each.group) for each in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    waiting = sum(each.what.startswith(WAITING) for each in unused)
    of_them = f", and messages wait in {waiting} of them" if waiting else ""
    together = Finding(
        kind="groupUnused",
        where=f"{len(unused)} groups",
        what=f"nobody is online in {shown}{more}{of_them}",
        mend="start their consumers, or remove those that nobody needs: mqadmin doctor --all has a line for each",
    )
    return [*(each for each in items if each.kind != "groupUnused"), together]


class Findings(Table[Finding], frozen=True, kw_only=True, rename="camel"):
    """All that is wrong in a cluster, or with one group. Peers that do not answer are in ``errors``."""

    at: Moment
    """When it was looked at."""
    group: Annotated[str | None, NONE]
    """The only group that was looked at; None for the whole cluster."""
