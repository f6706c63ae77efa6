"""Consumer groups by mqadmin: settings, members, progress."""

from pathlib import Path

import pytest

from eruca.protocol.bodies import ConsumerRunningInfo, ProcessQueueInfo, SubscriptionData
from eruca.protocol.queues import MessageQueue
from tests.admin.conftest import Lab
from tests.support.peers import Pushed


def running(pushed: Pushed) -> tuple[int, bytes] | None:
    """A member that returns its running info (307)."""
    info = ConsumerRunningInfo(
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": "1700000000000"},
        subscription_set=[SubscriptionData(topic="T", sub_string="*")],
        mq_table={MessageQueue("T", "broker-a", 0): ProcessQueueInfo(commit_offset=5)},
    )
    return (0, info.encode()) if pushed.code == 307 else None


def content(file: str) -> str:
    """What a file holds."""
    return Path(file).read_text()


async def test_a_group_is_created_shown_and_deleted(lab: Lab) -> None:
    created = await lab.done("updateSubGroup", "-c", "DefaultCluster", "-g", "G", "-r", "3", "-m", "true")
    assert created.out == (
        f"create subscription group to {lab.broker} success.\n"
        "SubscriptionGroupConfig [groupName=G, consumeEnable=true, consumeFromMinEnable=true, "
        "consumeBroadcastEnable=false, retryQueueNums=1, retryMaxTimes=3, brokerId=0, "
        "whichBrokerWhenConsumeSlowly=1, notifyConsumerIdsChangedEnable=true]\n"
    )
    shown = (await lab.done("getConsumerConfig", "-g", "G")).out.splitlines()
    assert shown[0] == "=============================DefaultCluster:broker-a============================="
    assert shown[1] == f"{'groupName':<40}=  G"
    assert f"{'retryMaxTimes':<40}=  3" in shown
    one = await lab.done("deleteSubGroup", "-b", lab.broker, "-g", "G")
    assert one.out == f"delete subscription group [G] from broker [{lab.broker}] success.\n"
    gone = await lab.mqadmin("getConsumerConfig", "-g", "G")
    assert (gone.status, gone.err) == (
        4,
        "mqadmin getConsumerConfig: no broker has settings of the consumer group G\n",
    )


async def test_a_group_leaves_a_cluster_with_its_topics(lab: Lab) -> None:
    await lab.done("updateSubGroup", "-b", lab.broker, "-g", "G")
    everywhere = await lab.done("deleteSubGroup", "-c", "DefaultCluster", "-g", "G", "-r", "true")
    assert everywhere.out.splitlines() == [
        f"delete subscription group [G] from broker [{lab.broker}] in cluster [DefaultCluster] success.",
        "delete topic [%RETRY%G] from cluster [DefaultCluster] success.",
        "delete topic [%RETRY%G] from NameServer success.",
        "delete topic [%DLQ%G] from cluster [DefaultCluster] success.",
        "delete topic [%DLQ%G] from NameServer success.",
    ]


async def test_members_of_a_group(lab: Lab) -> None:
    await lab.topic("T")
    peer = await lab.member("G", "T")
    for line in (("consumerConnection", "-g", "G"), ("consumerConnection", "-g", "G", "-b", lab.broker)):
        assert (await lab.done(*line)).out == (
            "#ClientId                            #ClientAddr            #Language  #Version\n"
            f"10.0.0.1@c                           {peer.address:<22} JAVA       V4_9_7\n"
            "\nBelow is subscription:\n"
            "#Topic               #SubExpression\n"
            "T                    *\n"
            "\nConsumeType: CONSUME_PASSIVELY\nMessageModel: CLUSTERING\nConsumeFromWhere: CONSUME_FROM_LAST_OFFSET\n"
        )


async def test_a_group_without_members_or_without_trace(lab: Lab) -> None:
    await lab.done("updateTopic", "-b", lab.broker, "-t", "%RETRY%G", "-r", "1", "-w", "1")
    offline = await lab.mqadmin("consumerConnection", "-g", "G")
    assert (offline.status, offline.err) == (
        4,
        f"mqadmin consumerConnection: the consumer group[G] not online (code 206 from {lab.broker})\n",
    )
    unknown = await lab.mqadmin("consumerConnection", "-g", "H")
    assert (unknown.status, "no broker knows the consumer group H" in unknown.err) == (4, True)
    nothing = await lab.mqadmin("consumerProgress", "-g", "G")
    assert (nothing.status, "group G has no offset of any queue" in nothing.err) == (4, True)
    await lab.done("updateSubGroup", "-b", lab.broker, "-g", "payments")
    for command in ("consumerConnection", "consumerProgress", "consumerStatus"):
        young = await lab.mqadmin(command, "-g", "payments")
        assert young.status == 4
        assert "the group payments exists at broker-a, but no member of it has ever connected" in young.err
        mistyped = await lab.mqadmin(command, "-g", "payment")
        assert (mistyped.status, "did you mean payments?" in mistyped.err) == (4, True)


async def test_a_group_that_was_deleted_while_its_members_go_on(lab: Lab) -> None:
    await lab.topic("T")
    await lab.member("G", "T")
    await lab.mqadmin("deleteSubGroup", "-c", "DefaultCluster", "-g", "G", "--yes")
    done = await lab.mqadmin("consumerProgress", "-g", "G")
    assert "the group G was deleted while its members go on: 10.0.0.1@c; stop them, or create it again" in done.err


async def test_progress_of_a_group(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", *"abcde")
    await lab.member("G", "T", answering=running)
    await lab.commit("G", "T", 3, 0)
    plain = await lab.done("consumerProgress", "-g", "G")
    lines = plain.out.splitlines()
    assert lines[0] == (
        f"{'#Topic':<64}  {'#Broker Name':<32}  #QID  #Broker Offset        #Consumer Offset      "
        "#Diff                 #LastTime"
    )
    assert plain.rows[1][:6] == ["T", "broker-a", "0", "5", "3", "2"]
    assert plain.rows[2] == ["T", "broker-a", "1", "0", "0", "0", "N/A"]
    assert lines[3] == "" and lines[4].startswith("Consume TPS: ") and lines[5] == "Diff Total: 2"
    owned = await lab.done("consumerProgress", "-g", "G", "-s", "true")
    assert owned.rows[1][5:7] == ["10.0.0.1", "2"]
    assert owned.rows[2][5:7] == ["N/A", "0"]


async def test_overview_of_all_groups(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", "b")
    await lab.member("online", "T")
    await lab.commit("online", "T", 1)
    await lab.done("updateTopic", "-b", lab.broker, "-t", "%RETRY%offline", "-r", "1", "-w", "1")
    overview = await lab.done("consumerProgress")
    assert ["online", "1", "V4_9_7", "PUSH", "CLUSTERING", "0", "1"] in overview.rows
    assert ["offline", "0", "OFFLINE", "0", "0"] in overview.rows


async def test_what_members_are_doing(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await lab.topic("T")
    await lab.member("G", "T", answering=running)
    owned = await lab.done("allocateMQ", "-t", "T", "-g", "G")
    assert owned.out == '{"result":{"10.0.0.1@c":[{"brokerName":"broker-a","queueId":0,"topic":"T"}]}}\n'
    every = await lab.done("consumerStatus", "-g", "G")
    index, client, version, file = every.rows[1]
    assert (index, client, version) == ("1", "10.0.0.1@c", "V4_9_7")
    assert every.out.endswith("\n\nSame subscription in the same group of consumer\n\nRebalance OK\n")
    await lab.topic("U")
    await lab.member("G", "T", "U", answering=running)
    failed = await lab.mqadmin("consumerStatus", "-g", "G")
    assert failed.out.endswith("\n\nSame subscription in the same group of consumer\n\nRebalance Failed\n")
    assert "queue 0 of U at broker-a has no member\n" in failed.err
    one = await lab.done("consumerStatus", "-g", "G", "-i", "10.0.0.1@c")
    assert content(file) == one.out
    assert one.out.startswith("#Consumer Properties#\nPROP_CONSUME_TYPE")
    assert f"{'T':<32}  {'broker-a':<32}  0     5                   \n" in one.out
    assert "ProcessQueueInfo [commitOffset=5, cachedMsgMinOffset=0, " in one.out
    absent = await lab.mqadmin("consumerStatus", "-g", "G", "-i", "nobody")
    assert (absent.status, "The Consumer <G> <nobody> not online" in absent.err) == (4, True)


async def test_lag_and_traffic(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", "b", "c")
    await lab.done("updateSubGroup", "-b", lab.broker, "-g", "G")
    await lab.done("updateTopic", "-b", lab.broker, "-t", "%RETRY%G", "-r", "1", "-w", "1")
    await lab.commit("G", "T", 1)
    lag = await lab.done("brokerConsumeStats", "-b", lab.broker)
    assert lag.rows[1][:7] == ["T", "G", "broker-a", "0", "3", "1", "2"]
    assert lag.out.endswith("\n\nDiff Total: 2\n")
    assert len((await lab.done("brokerConsumeStats", "-b", lab.broker, "-l", "3")).rows) == 3
    traffic = await lab.done("statsAll", "-t", "T")
    assert traffic.rows[1][:3] == ["T", "G", "2"]
    await lab.topic("U")
    lonely = await lab.done("statsAll", "-t", "U")
    assert lonely.rows[1] == ["U", "0", "0.00", "0", "NO_CONSUMER"]
    assert len((await lab.done("statsAll", "-t", "U", "-a")).rows) == 1


async def test_the_lag_at_a_broker_that_only_members_know_is_not_taken_for_none(lab: Lab) -> None:
    """It has left the nameserver, and a member has a queue there still."""
    await lab.topic("T")
    await lab.send("T", *"abc")
    await lab.commit("G", "T", 1)
    held = {MessageQueue("T", name, 0): ProcessQueueInfo(commit_offset=1) for name in ("broker-a", "broker-b")}
    info = ConsumerRunningInfo(properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}, mq_table=held)
    await lab.member("G", "T", answering=lambda pushed: (0, info.encode()) if pushed.code == 307 else None)
    for line in (("consumerProgress", "-g", "G"), ("lag", "G")):
        shown = await lab.mqadmin(*line)
        assert (shown.status, ">= 2 ?" in shown.out) == (5, True), shown
        assert "broker-b: no nameserver knows it any more" in shown.err
    check = await lab.mqadmin("check", "lag", "-g", "G")
    assert check.status == 3 and ">= 2 ?" in check.out and "broker-b" in check.out
