"""Look at a cluster and judge it."""

from __future__ import annotations

from eruca.admin.client import Admin
from eruca.admin.diagnosis import brokers, groups, topics
from eruca.admin.diagnosis.findings import Finding, Findings
from eruca.admin.diagnosis.survey import look
from eruca.admin.results.answer import Moment


async def diagnose(admin: Admin, group: str | None = None) -> Findings:
    """All that is wrong in a cluster, or with one group and the topics that it consumes.

    Raises NotFound for a group that no broker knows, and AdminError if no nameserver answers.
    """
    seen = await look(admin, group)
    items: list[Finding] = [] if group is not None else list(brokers.findings(seen))
    only = None if group is None else frozenset(topic for each in seen.groups for topic in each.subscribed)
    items += topics.findings(seen, only)
    for each in seen.groups:
        items += groups.findings(seen, each)
    return Findings(at=Moment.at(seen.at), group=group, items=items, errors=seen.errors)
