"""The results of a diagnosis: what is wrong, where, and how to mend it."""

from __future__ import annotations

from typing import Annotated, Literal

from eruca.admin.results.answer import WIDE, Moment, Result, Table

Kind = Literal[
    "nameserversDisagree",
    "brokerUnreachable",
    "brokerAtLoopback",
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


class Finding(Result, frozen=True, kw_only=True, rename="camel"):
    """One thing that is wrong."""

    kind: Kind
    where: str
    """``group shop``, ``topic Orders at broker-b``."""
    what: str
    mend: str
    """How to mend it."""
    broker: Annotated[str | None, WIDE] = None
    topic: Annotated[str | None, WIDE] = None
    group: Annotated[str | None, WIDE] = None
    member: Annotated[str | None, WIDE] = None
    """A client id."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.mend}"


class Findings(Table[Finding], frozen=True, kw_only=True, rename="camel"):
    """All that is wrong in a cluster, or with one group. Peers that do not answer are in ``errors``."""

    at: Moment
    """When it was looked at."""
    group: str | None
    """The only group that was looked at; None for the whole cluster."""
