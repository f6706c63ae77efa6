"""Consumer groups as operators and slaves ask for them: 200, 201, 207, 352."""

import json

import pytest

from eruca.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from tests.support.desk import Desk

UPDATE, ALL, DELETE, ONE = 200, 201, 207, 352


def on_disk(desk: Desk) -> set[str]:
    file = desk.folder / "store/config/subscriptionGroup.json"
    return set(json.loads(file.read_text())["subscriptionGroupTable"])


async def test_a_group_is_created_changed_and_on_disk_before_the_answer(desk: Desk) -> None:
    config = SubscriptionGroupConfig(group_name="g", retry_max_times=3, consume_broadcast_enable=False)
    assert (await desk.ask(UPDATE, body=config.encode())).code == 0
    assert "g" in on_disk(desk)
    await desk.restart()
    assert desk.broker.groups.get("g") == config
    config.consume_enable = False
    assert (await desk.ask(UPDATE, body=config.encode())).code == 0
    stored = desk.broker.groups.get("g")
    assert stored is not None and not stored.consume_enable


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"", "the body is no SubscriptionGroupConfig: "),
        (b"{nonsense", "the body is no SubscriptionGroupConfig: "),
        (b"{}", "the specified group is blank"),
        (b'{"groupName":"a b"}', "the specified group[a b] contains illegal characters"),
        (b'{"groupName":"../g"}', "the specified group[../g] contains illegal characters"),
        (b'{"groupName":"' + b"g" * 256 + b'"}', "the specified group is longer than group max length 255."),
    ],
)
async def test_what_is_no_group(desk: Desk, body: bytes, remark: str) -> None:
    before = set(desk.broker.groups.table)
    answer = await desk.ask(UPDATE, body=body)
    assert answer.code == 1
    assert (answer.remark or "").startswith(remark)
    assert set(desk.broker.groups.table) == before


async def test_all_groups_come_with_their_version(desk: Desk) -> None:
    await desk.ask(UPDATE, body=SubscriptionGroupConfig(group_name="g").encode())
    wrapper = SubscriptionGroupWrapper.decode((await desk.ask(ALL)).body)
    assert wrapper.data_version == desk.broker.groups.version
    assert {"g", "TOOLS_CONSUMER"} <= set(wrapper.subscription_group_table)


async def test_one_group(desk: Desk) -> None:
    await desk.ask(UPDATE, body=SubscriptionGroupConfig(group_name="g", broker_id=1).encode())
    assert SubscriptionGroupConfig.decode((await desk.ask(ONE, {"group": "g"})).body).broker_id == 1
    answer = await desk.ask(ONE, {"group": "gone"})
    assert (answer.code, answer.remark) == (26, "No group in this broker")


@pytest.mark.parametrize("remove_offset", [True, False])
async def test_a_deleted_group_keeps_its_offsets_unless_asked(desk: Desk, remove_offset: bool) -> None:
    await desk.ask(UPDATE, body=SubscriptionGroupConfig(group_name="g").encode())
    desk.commit("g", "T", 5)
    answer = await desk.ask(DELETE, {"groupName": "g", "removeOffset": str(remove_offset).lower()})
    assert answer.code == 0
    assert "g" not in on_disk(desk)
    await desk.restart()
    assert desk.broker.groups.get("g") is None
    assert desk.broker.offsets.of("g", "T") == ({} if remove_offset else {0: 5})


async def test_deleting_what_is_not_there_is_no_error(desk: Desk) -> None:
    assert (await desk.ask(DELETE, {"groupName": "gone"})).code == 0
