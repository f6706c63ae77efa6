"""mqadmin of 5.3.3 resets one queue of a group that is online: the others stay (4.9.7's broker sets all back)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from eruca.protocol.bodies import ResetOffsetBody
from tests.compat.asked import sent
from tests.compat.conftest import Cluster
from tests.support.eruca import ErucaCluster
from tests.support.java import Judge
from tests.support.peers import Peer


def heartbeat(group: str, topic: str) -> bytes:
    """The body of a heartbeat (34) of the group's one member."""
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 7, "expressionType": "TAG"}],
    }
    return json.dumps({"clientID": f"c@{group}", "consumerDataSet": [consumer], "producerDataSet": []}).encode()


def test_only_the_named_queue_is_reset(
    eruca: ErucaCluster, judge: Judge, judge5: Judge, topic: Callable[[Cluster, Judge, int], str]
) -> None:
    name = topic(eruca, judge, 2)
    group = f"group-of-{name}"
    reset = ["resetOffsetByTime", "-n", eruca.address, "-g", group, "-t", name, "-b", eruca.broker.address]

    async def told() -> tuple[dict[str, Any], dict[int, int]]:
        member = await Peer().connect(eruca.broker.address)
        try:
            assert (await member.ask(34, None, heartbeat(group, name))).code == 0
            for number in range(6):
                assert (await member.ask(310, sent(b=name, e=number % 2), b"x")).code == 0
            for queue in (0, 1):
                where = {"consumerGroup": group, "topic": name, "queueId": queue, "commitOffset": 3}
                assert (await member.ask(15, where)).code == 0
            done = await asyncio.to_thread(judge5.call, "admin", line=[*reset, "-q", "0", "-o", "1", "-s", "now"])
            (pushed,) = await member.received(220, within=30)
            return done, {queue.queue_id: at for queue, at in ResetOffsetBody.decode(pushed.body).offset_table.items()}
        finally:
            await member.close()

    done, offsets = asyncio.run(told())
    assert done["exit"] == 0 and "reset consumer offset to 1" in done["stdout"], done
    assert offsets == {0: 1}
