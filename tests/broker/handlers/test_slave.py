"""What a slave does not let operators change."""

from collections.abc import Awaitable, Callable

import pytest

from eruca.broker.config import BrokerRole
from eruca.protocol.bodies import SubscriptionGroupConfig
from tests.support.desk import Desk


def slave(desk: Desk) -> None:
    desk.config.store.broker_role = BrokerRole.SLAVE
    desk.config.broker_id = 1


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (17, {"topic": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}, b""),
        (215, {"topic": "T"}, b""),
        (200, {}, SubscriptionGroupConfig(group_name="g").encode()),
        (207, {"groupName": "g"}, b""),
    ],
)
async def test_topics_and_groups_are_the_masters(
    prepared: Callable[[Callable[[Desk], None]], Awaitable[Desk]], code: int, fields: dict[str, object], body: bytes
) -> None:
    desk = await prepared(slave)
    answer = await desk.ask(code, fields, body)
    assert (answer.code, answer.remark) == (
        1,
        "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    )
