"""Look at a cluster and judge it."""

from __future__ import annotations

from eruca.admin.client import Admin
from eruca.admin.diagnosis import brokers, groups, topics
from eruca.admin.diagnosis.findings import Findings
from eruca.admin.diagnosis.survey import BrokerSeen, Seen, look
from eruca.admin.results.answer import Moment


async def diagnose(admin: Admin, group: str | None = None) -> Findings:
    """All that is wrong in a cluster, or with one group, the topics that it consumes, and the stores it depends on.

    Raises NotFound for a group that no broker knows, and AdminError if no nameserver answers.
    """
    seen = await look(admin, group)
    only = None if group is None else frozenset(topic for each in seen.groups for topic in each.subscribed)
    items = list(brokers.findings(seen) if only is None else brokers.refusals(_brokers_of(seen, only)))
    items += topics.findings(seen, only)
    for each in seen.groups:
        items += groups.findings(seen, each)
    return Findings(at=Moment.at(seen.at), group=group, items=items, errors=seen.errors)


def _brokers_of(seen: Seen, topics: frozenset[str]) -> list[BrokerSeen]:
    """The masters that know one of the groups, which store its retries, and those that have one of the topics."""
    names = {each.name for each in seen.groups}
    return [each for each in seen.masters if names & each.groups or topics & each.topics.keys()]
