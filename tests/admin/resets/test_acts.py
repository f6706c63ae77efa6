"""What counts as moved: what the brokers said, of what was asked."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eruca.admin.client import Admin
from eruca.admin.resets.acts import Acts
from eruca.admin.resets.plan import Options, decide
from eruca.admin.resets.survey import Kind
from eruca.protocol.bodies import ResetOffsetBody
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Reply
from tests.admin.resets.test_plan import broker, members, queue, survey


class Brokers:
    """Brokers that answer 222 with one table after the other, and then with nothing."""

    def __init__(self, *tables: dict[MessageQueue, int]) -> None:
        self._tables = list(tables)
        self.asked: list[int | None] = []

    async def call(self, address: str, api: object, header: Any, **_: object) -> Reply:
        self.asked.append(header.queue_id)
        return Reply(body=ResetOffsetBody(offset_table=self._tables.pop(0)).encode() if self._tables else b"")


@pytest.mark.parametrize("timestamp", [7, None], ids=["to a time", "each queue"])
async def test_a_broker_that_says_nothing_moved_nothing(timestamp: int | None) -> None:
    brokers = Brokers()
    seen = survey(broker("a", group=members("m")))
    plan = decide(seen, {each.queue: 2 for each in seen.queues}, timestamp, Options())
    done = await Acts(cast(Admin, brokers), "G", "T").do(plan, timestamp)
    assert done.offsets == {}
    assert str(done.failures["a"]) == "a:1 did not say that it moved a:0, a:1"


async def test_queues_of_which_it_did_not_speak_are_asked_for_and_others_do_not_count() -> None:
    brokers = Brokers({queue("a", 0): 2, queue("elsewhere", 0): 2}, {queue("a", 1): 2})
    seen = survey(broker("a", group=members("m")))
    plan = decide(seen, {each.queue: 2 for each in seen.queues}, 7, Options())
    done = await Acts(cast(Admin, brokers), "G", "T").do(plan, 7)
    assert (done.offsets, done.failures) == ({queue("a", 0): 2, queue("a", 1): 2}, {})
    assert brokers.asked == [None, 1]


async def test_rocketmq_4_cannot_be_asked_for_one_queue() -> None:
    brokers = Brokers({queue("a", 0): 2})
    seen = survey(broker("a", group=members("m"), kind=Kind.APACHE_4))
    plan = decide(seen, {each.queue: 2 for each in seen.queues}, 7, Options())
    done = await Acts(cast(Admin, brokers), "G", "T").do(plan, 7)
    assert done.offsets == {queue("a", 0): 2} and str(done.failures["a"]).endswith("moved a:1")
    assert brokers.asked == [None]
