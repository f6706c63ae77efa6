"""The clocks of a group's brokers differ: the times in its log never go back, whoever leads."""

from __future__ import annotations

import pytest

from tests.broker.elected import Group
from tests.support.sends import message

SEND, OFFSET_BY_TIME = 310, 29
HOUR = 3_600_000


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_a_master_with_a_slow_clock_goes_on_from_the_times_of_the_one_before(group: Group, ahead: int) -> None:
    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one and one.broker.group_part is not None
    one.topic("T", 1)
    one.jump(ahead)
    began = one.now
    for master in (one, two):
        assert await group.led({1, 2}) is master
        for _ in range(3):
            assert (await master.ask(SEND, message(), b"x")).code == 0
            master.now += 1
        if master is one:
            await one.broker.group_part.hand_over(2)

    times = [record.store_timestamp for record in two.records("T", 0)]
    assert times[0] == began and len(times) == 6
    assert times == sorted(times)
    search = {"topic": "T", "queueId": "0", "timestamp": str(times[3])}
    assert (await two.ask(OFFSET_BY_TIME, search)).fields["offset"] == str(times.index(times[3]))
