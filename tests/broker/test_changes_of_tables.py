"""Changes of topics, groups, offsets and locks at a master that loses the mastership before it answers.

What was not confirmed in the epoch in which it was made may be lost, whatever this broker is when it has saved it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from tests.broker.elected import Group
from tests.broker.services.replication.pairs import until
from tests.support.desk import Desk
from tests.support.sends import message

SEND, COMMIT, LOCK, CREATE_GROUP, MAKE, DELETE, RESET, CLONE, ELECT = 310, 15, 41, 200, 17, 215, 222, 314, 1002
TOPIC = {
    **{"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"},
    **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
}
LOCKED = b'{"consumerGroup":"G","clientId":"%s","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'
AGAIN = {"clusterName": "Lab", "brokerName": "broker-a", "brokerId": "1", "recreate": "true"}


class SlowDisk:
    """The disk of one broker's tables: a change of them is saved when the test says so."""

    def __init__(self, desk: Desk) -> None:
        self.writes = False
        self._goes_on = asyncio.Event()
        for table in (desk.broker.topics, desk.broker.groups, desk.broker.offsets):
            table.saved = self._held(table.saved)  # type: ignore[assignment, method-assign]

    def go_on(self) -> None:
        self._goes_on.set()

    def _held(self, saved: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def held() -> None:
            self.writes = True
            await self._goes_on.wait()
            await saved()

        return held


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        pytest.param(MAKE, TOPIC, b"", id="topic"),
        pytest.param(CREATE_GROUP, {}, b'{"groupName":"G2","retryQueueNums":1}', id="group"),
        pytest.param(207, {"groupName": "G", "removeOffset": "true"}, b"", id="deletion of a group"),
        pytest.param(CLONE, {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "true"}, b"", id="clone"),
        pytest.param(
            RESET, {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true", "queueId": "0"}, b"", id="reset"
        ),
    ],
)
async def test_what_a_former_master_has_saved_is_not_answered_as_done(
    group: Group, code: int, fields: Mapping[str, object], body: bytes
) -> None:
    one = await group.start(1)
    assert await group.led({1}) is one
    await with_an_offset(one)
    disk = SlowDisk(one)
    asked = asyncio.create_task(one.ask(code, dict(fields), body))
    await until(lambda: disk.writes)
    group.etcd.empty()
    await until(lambda: "group" in one.broker.readiness.reasons)
    disk.go_on()
    answer = await asked
    assert answer.code == 14
    assert "do it again" in (answer.remark or "")


async def test_a_send_that_makes_a_topic_is_confirmed_as_others_are(group: Group) -> None:
    """This broker is no master any more when it has saved the topic."""
    one = await group.start(1)
    await group.start(2)
    assert await group.led({1, 2}) is one
    disk = SlowDisk(one)
    group.etcd.away = True  # so that the lost one stays in the set
    await group.stop(2)
    asked = asyncio.create_task(one.ask(SEND, message(topic="Fresh"), b"x"))
    await until(lambda: disk.writes)
    group.etcd.empty()
    group.etcd.return_again()
    await until(lambda: one.broker.role.is_slave and "group" in one.broker.readiness.reasons)
    disk.go_on()
    assert (await asked).code == 14


async def test_the_messages_of_a_topic_stay_until_all_have_deleted_it(group: Group) -> None:
    """Else the next master may have the topic, and this broker, when it follows, no queues of it."""
    one = await group.start(1)
    await group.start(2)
    assert await group.led({1, 2}) is one
    await with_an_offset(one)
    group.etcd.away = True  # so that the lost one stays in the set
    await group.stop(2)
    surely = one.broker.registration.is_sure
    one.broker.registration.is_sure = lambda: True
    answer = await one.ask(DELETE, {"topic": "T"})
    assert answer.code == 14 and "do it again" in (answer.remark or "")
    assert one.broker.store.max_offset("T", 0) == 1
    one.broker.registration.is_sure = surely
    group.etcd.return_again()
    assert await group.led({1}) is one
    assert (await one.ask(DELETE, {"topic": "T"})).code == 0
    assert one.broker.store.max_offset("T", 0) == 0


async def test_a_change_is_not_confirmed_in_another_epoch(group: Group) -> None:
    one = await group.start(1)
    assert await group.led({1}) is one
    disk = SlowDisk(one)
    asked = asyncio.create_task(one.ask(MAKE, TOPIC))
    await until(lambda: disk.writes)
    await led_again(group, one)
    disk.go_on()
    assert (await asked).code == 14
    assert (await one.ask(MAKE, TOPIC)).code == 0


async def test_a_master_that_leads_again_without_having_followed_has_its_locks(group: Group) -> None:
    one = await group.start(1)
    assert await group.led({1}) is one
    await with_an_offset(one)
    assert b"queueId" in (await one.ask(LOCK, {}, LOCKED % b"c")).body
    await led_again(group, one)
    assert (await one.ask(LOCK, {}, LOCKED % b"d")).body == b'{"lockOKMQSet":[]}'
    assert b"queueId" in (await one.ask(LOCK, {}, LOCKED % b"c")).body


async def with_an_offset(desk: Desk) -> None:
    """A topic with a message, and a group with an offset in it."""
    assert (await desk.ask(MAKE, {**TOPIC, "topic": "T"})).code == 0
    assert (await desk.ask(SEND, message(), b"x")).code == 0
    assert (await desk.ask(CREATE_GROUP, {}, b'{"groupName":"G","retryQueueNums":1}')).code == 0
    committed = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"}
    assert (await desk.ask(COMMIT, committed)).code == 0


async def led_again(group: Group, desk: Desk) -> None:
    """etcd is emptied, and an operator has this broker write the group again."""
    group.etcd.empty()
    await until(lambda: "group" in desk.broker.readiness.reasons)
    epoch = desk.app.member.epoch if desk.app.member is not None else 0
    assert (await desk.ask(ELECT, {**AGAIN, "knownEpoch": str(epoch)})).code == 0
    await until(lambda: desk.broker.accepting)
