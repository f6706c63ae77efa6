"""Numbers from outside have bounds: what is larger is refused with one sentence, and others are served on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eruca.broker.state.state_file import StateUnreadable
from eruca.protocol.bodies import SubscriptionGroupConfig
from tests.support.desk import Desk
from tests.support.load import send

HUGE = 2**31 - 1
GROUP, STATS, CHANGE = 200, 202, 25


# ---------------------------------------------------------------------- numbers of queues


@pytest.mark.parametrize("count", [-1, 65_537, HUGE])
async def test_a_group_cannot_ask_for_more_retry_queues_than_a_topic_may_have(desk: Desk, count: int) -> None:
    """A typo in ``mqadmin updateSubGroup -q`` once gave the retry topic 2^31 queues, and 202 never ended."""
    answer = await desk.ask(GROUP, body=SubscriptionGroupConfig(group_name="g", retry_queue_nums=count).encode())
    assert (answer.code, answer.remark) == (1, f"retryQueueNums = [{count}] is not between 0 and 65536")
    assert desk.broker.groups.get("g") is None
    await desk.consumer("g", "T")
    assert desk.broker.topics.table["%RETRY%g"].write_queue_nums == 1
    assert (await desk.ask(STATS, {"topic": "%RETRY%g"})).code == 0
    assert (await send(desk.operator, 0, b"x")).code == 0


async def test_a_group_may_have_as_many_retry_queues_as_a_topic(desk: Desk) -> None:
    body = SubscriptionGroupConfig(group_name="g", retry_queue_nums=65_536).encode()
    assert (await desk.ask(GROUP, body=body)).code == 0


async def test_the_queues_of_new_topics_have_a_bound(desk: Desk) -> None:
    answer = await desk.ask(CHANGE, body=b"defaultTopicQueueNums=65537")
    assert (answer.code, answer.remark) == (
        1,
        "defaultTopicQueueNums: '65537' is not allowed; write a whole number from 1 to 65536",
    )
    assert (await desk.ask(CHANGE, body=b"defaultTopicQueueNums=65536")).code == 0


@pytest.mark.parametrize(
    ("file", "table", "name", "entry", "fault"),
    [
        (
            "topics.json",
            "topicConfigTable",
            "T",
            {"topicName": "T", "readQueueNums": HUGE, "writeQueueNums": 4},
            "the topic T: readQueueNums = [2147483647] is not between 0 and 65536",
        ),
        (
            "subscriptionGroup.json",
            "subscriptionGroupTable",
            "g",
            {"groupName": "g", "retryQueueNums": -1},
            "the group g: retryQueueNums = [-1] is not between 0 and 65536",
        ),
    ],
)
@pytest.mark.parametrize("with_copy", [False, True])
async def test_a_file_with_such_a_number_stops_the_start_and_is_not_replaced(
    tmp_path: Path, file: str, table: str, name: str, entry: dict[str, object], fault: str, with_copy: bool
) -> None:
    """The copy lacks what was acknowledged since, so it does not stand in."""
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    content = {"dataVersion": {"counter": 1, "timestamp": 1}, table: {name: entry}}
    (folder / file).write_text(json.dumps(content))
    if with_copy:
        (folder / f"{file}.bak").write_text(json.dumps({**content, table: {}}))
    desk = Desk(tmp_path)
    with pytest.raises(StateUnreadable) as refusal:
        await desk.start()
    assert str(refusal.value) == f"{folder / file}: {fault}. Correct it in the file, and start again."
    assert json.loads((folder / file).read_text()) == content
