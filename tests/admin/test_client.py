"""The connections of mqadmin: any number of requests side by side, and what too many are for a peer."""

from __future__ import annotations

import asyncio

from eruca.admin.client import Admin
from eruca.admin.lookups import topic_stats_at
from tests.admin.conftest import Lab

MANY = 600
"""More requests that walk queues than a broker lets wait on a connection."""


async def test_many_questions_at_once_are_all_answered(lab: Lab) -> None:
    await lab.topic("T")
    async with Admin([lab.nameserver]) as admin:
        found = await asyncio.gather(*(topic_stats_at(admin, lab.broker, "T") for _ in range(MANY)))
    assert [len(queues) for queues in found] == [1] * MANY
