"""What is in use is named before it goes, and what is not there is not said to be gone."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.protocol import api
from eruca.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from eruca.protocol.errors import Refused
from eruca.remoting import Call, Reply, Router, Routes
from eruca.remoting.server import Server
from tests.admin.conftest import Lab


async def in_use(lab: Lab) -> None:
    """A topic with a consumer that lags, and a producer."""
    await lab.topic("Orders")
    await lab.send("Orders", "one", "two")
    await lab.member("shop", "Orders")
    await lab.producer("till")
    await lab.commit("shop", "Orders", 1)


DELETIONS = {
    "deleteTopic": (["-c", "DefaultCluster", "-t", "Orders"], "group shop: 1 online, 1 message not consumed\n"),
    "deleteSubGroup": (["-c", "DefaultCluster", "-g", "shop"], "group shop: 1 online, 1 message not consumed\n"),
    "wipeWritePerm": (["-b", "broker-a"], "producer group till: 1 online\n"),
}


@pytest.mark.parametrize("command", DELETIONS)
async def test_users_are_named_and_a_person_is_asked(lab: Lab, command: str) -> None:
    await in_use(lab)
    options, users = DELETIONS[command]
    refused = await lab.mqadmin(command, *options, answers="n\n")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith(users) and refused.err.endswith("nothing was changed\n")
    alone = await lab.mqadmin(command, *options, "--ask")
    assert (alone.status, alone.out) == (1, "")
    assert "it is in use, and nobody is here to be asked; --yes does it" in alone.err
    assert "Orders" in (await lab.done("topicList")).out
    agreed = await lab.mqadmin(command, *options, answers="y\n")
    assert agreed.status == 0 and agreed.out


@pytest.mark.parametrize("command", DELETIONS)
async def test_without_a_terminal_it_goes_on_as_apaches(lab: Lab, command: str) -> None:
    await in_use(lab)
    options, users = DELETIONS[command]
    done = await lab.mqadmin(command, *options)
    assert (done.status, done.err) == (0, users)
    assert done.out


async def test_members_of_deleted_topics_are_named_before_their_queues_go(lab: Lab) -> None:
    await in_use(lab)
    await lab.topic("Other")
    await lab.member("reports", "Other")
    assert (await lab.done("cleanUnusedTopic")).out == "success\n"
    await lab.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "Orders", "--yes")
    users = f"group shop: 1 online subscribe Orders at {lab.broker}\n"
    refused = await lab.mqadmin("cleanUnusedTopic", "-c", "DefaultCluster", answers="n\n")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith(users) and refused.err.endswith("nothing was changed\n")
    alone = await lab.mqadmin("cleanUnusedTopic", "--ask")
    assert alone.status == 1 and "--yes does it" in alone.err
    done = await lab.mqadmin("cleanUnusedTopic", "-b", lab.broker)
    assert done == (0, "success\n", users)


guarded: Routes[None] = Routes()
"""A broker that refuses to delete."""


@guarded.on(api.GET_ALL_TOPIC_CONFIG)
def topics_there(_: None, call: Call[Any]) -> Reply:
    return Reply(body=TopicConfigSerializeWrapper(topic_config_table={"Orders": TopicConfig()}).encode())


@guarded.on(api.DELETE_TOPIC_IN_BROKER)
def refuse(_: None, call: Call[Any]) -> Reply:
    raise Refused(1, "no permission")


async def test_a_topic_that_one_broker_did_not_delete_is_told(lab: Lab) -> None:
    await lab.topic("Orders")
    server = Server(Router(None, [guarded]))
    await server.start("127.0.0.1", 0)
    address = f"127.0.0.1:{server.port}"
    await lab.register("broker-b", address, TopicConfig(topic_name="Orders", read_queue_nums=1, write_queue_nums=1))
    done = await lab.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "Orders")
    assert (done.status, done.out) == (5, "")
    assert f"topic Orders was deleted at {lab.broker} only: no permission (code 1 from {address})" in done.err
    assert "Orders" in (await lab.done("topicList")).out, "no nameserver forgets a topic that a broker has"
    await server.stop()


async def test_nobody_is_asked_about_what_nobody_uses(lab: Lab) -> None:
    await lab.topic("Orders")
    done = await lab.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "Orders", answers="")
    assert (done.status, done.err) == (0, "")


async def test_what_is_not_there_is_not_found(lab: Lab) -> None:
    await lab.topic("Orders")
    topic = await lab.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "Order")
    assert topic.out.splitlines()[0] == "delete topic [Order] from cluster [DefaultCluster] success."
    assert (topic.status, topic.err) == (
        4,
        "no master of cluster DefaultCluster had a topic Order; did you mean Orders?\n",
    )
    for where in (["-c", "DefaultCluster"], ["-b", lab.broker]):
        group = await lab.mqadmin("deleteSubGroup", *where, "-g", "shop")
        assert group.out.startswith("delete subscription group [shop] from broker")
        assert (group.status, group.err) == (4, "no broker that was asked had a consumer group shop\n")
