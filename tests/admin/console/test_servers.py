"""Brokers, nameservers and access control in the console."""

from __future__ import annotations

from eruca.admin.console.servers import MANY_GROUPS
from eruca.protocol.bodies import TopicConfig
from tests.admin.conftest import Lab
from tests.admin.console.conftest import Desk


async def test_a_broker_has_figures_settings_and_producers(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    await lab.producer("shop")
    assert f"broker-a master {lab.broker}" in await desk.text("/brokers")
    text = await desk.text(f"/brokers/{lab.broker}")
    assert "shop 10.0.0.2@p" in text
    assert "commitLogMaxOffset" in text
    assert "flushDiskType ASYNC_FLUSH" in text
    assert "the nameserver knows no broker at 127.0.0.1:1" in await desk.text("/brokers/127.0.0.1:1", 404)


async def test_a_broker_that_is_away_says_nothing(lab: Lab, desk: Desk) -> None:
    await lab.register("broker-b", "127.0.0.1:1", TopicConfig(topic_name="T"))
    text = await desk.text("/brokers/127.0.0.1:1")
    assert "Messages that are not consumed: ?" in text
    assert " 0 " not in text.split("Producers")[1]


async def test_a_setting_is_changed_while_the_broker_runs(lab: Lab, desk: Desk) -> None:
    path = f"/brokers/{lab.broker}/settings/fileReservedTime"
    assert "Now: 72" in await desk.text(path)
    assert (await desk.post(path, value="48")).status_code == 303
    assert "Now: 48" in await desk.text(path)
    assert desk.said[-1].endswith(f"setting fileReservedTime at {lab.broker}: 72 -> 48")
    assert (await desk.post(path, value="48")).status_code == 400
    text = await desk.text(f"/brokers/{lab.broker}")
    assert "fileReservedTime 48 72 – Change" in text
    assert "brokerName broker-a – – at a start" in text
    assert (await desk.post(f"/brokers/{lab.broker}/settings/listenPort", value="1")).status_code == 409
    assert (await desk.browser.get(f"/brokers/{lab.broker}/settings/nothing")).status_code == 404


async def test_each_nameserver_says_which_brokers_it_knows(lab: Lab, desk: Desk) -> None:
    assert f"{lab.nameserver} broker-a" in await desk.text("/nameservers")


async def test_brokers_without_access_control_are_named(desk: Desk) -> None:
    assert "broker-a : access control is off at this broker" in await desk.text("/access")


async def test_a_broker_names_the_consumers_that_are_connected(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    await lab.member("g", "T", client_id="10.0.0.7@a")
    await desk.looked()
    assert "g 10.0.0.7@a 127.0.0.1:" in await desk.text(f"/brokers/{lab.broker}")


async def test_of_many_groups_the_consumers_are_shown_when_they_are_asked_for(lab: Lab, desk: Desk) -> None:
    for number in range(MANY_GROUPS + 1):
        await lab.member(f"g{number:02}", client_id="10.0.0.7@a")
    watch = desk.console.watch

    def online() -> int:
        return sum(bool(each.members) for each in watch.groups.answer.items) if watch.groups.answer else 0

    await watch.until(lambda: online() > MANY_GROUPS, within=10)
    assert f"Show the members of {MANY_GROUPS + 1} groups" in await desk.text(f"/brokers/{lab.broker}")
    assert "g50 10.0.0.7@a" in await desk.text(f"/brokers/{lab.broker}?consumers=1")
