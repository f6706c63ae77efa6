"""What is in use is named before it goes, and what is not there is not said to be gone."""

from __future__ import annotations

import pytest

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
