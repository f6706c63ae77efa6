"""Topics and brokers by mqadmin, against a running cluster."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from eruca.admin.examples import examples_of
from eruca.protocol import fastjson
from eruca.protocol.bodies import TopicConfig
from tests.admin.conftest import Lab

CONFIG = (
    "TopicConfig [topicName={name}, readQueueNums={queues}, writeQueueNums={queues}, perm={perm}, "
    "topicFilterType=SINGLE_TAG, topicSysFlag=0, order={order}]\n"
)


async def test_a_topic_is_created_found_and_deleted(lab: Lab) -> None:
    created = await lab.done("updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "2", "-w", "2")
    config = CONFIG.format(name="T", queues=2, perm="RW-", order="false")
    assert created.out == f"create topic to {lab.broker} success.\n{config}"
    assert "T" in (await lab.done("topicList")).out.splitlines()
    assert (await lab.done("topicClusterList", "-t", "T")).out == "DefaultCluster\n"
    deleted = await lab.done("deleteTopic", "-c", "DefaultCluster", "-t", "T")
    assert deleted.out == (
        "delete topic [T] from cluster [DefaultCluster] success.\ndelete topic [T] from NameServer success.\n"
    )
    assert "T" not in (await lab.done("topicList")).out.splitlines()
    gone = await lab.mqadmin("topicRoute", "-t", "T")
    assert (gone.status, gone.out) == (4, "")
    assert gone.err == (
        f"mqadmin topicRoute: No topic route info in name server for the topic: T (code 17 from {lab.nameserver})\n"
    )


async def test_an_ordered_topic_keeps_an_order_configuration(lab: Lab) -> None:
    one = await lab.done("updateTopic", "-b", lab.broker, "-t", "O", "-r", "3", "-w", "3", "-o", "true")
    assert one.out == (
        f"set broker orderConf. isOrder=true, orderConf=[broker-a:3]create topic to {lab.broker} success.\n"
        + CONFIG.format(name="O", queues=3, perm="RW-", order="true")
    )
    get = ("updateOrderConf", "-t", "O", "-m", "get")
    assert (await lab.done(*get)).out == "get orderConf success. topic=[O], orderConf=[broker-a:3] \n"
    put = await lab.mqadmin("updateOrderConf", "-t", "O", "-m", "put", "-v", "other:4")
    assert (put.status, put.err) == (0, "the nameserver knows no broker other; it knows: broker-a\n")
    changed = await lab.mqadmin("updateTopic", "-b", lab.broker, "-t", "O", "-o", "true")
    assert changed.err == (
        f"{lab.broker}: order false -> true, readQueueNums 3 -> 8, writeQueueNums 3 -> 8\n"
        "nameservers: order configuration other:4 -> other:4;broker-a:8\n"
    )
    assert (await lab.done(*get)).out == "get orderConf success. topic=[O], orderConf=[other:4;broker-a:8] \n"
    all_of_it = await lab.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "O", "-o", "true", "-p", "4")
    assert all_of_it.err == (
        f"{lab.broker}: perm 6 -> 4\nnameservers: order configuration other:4;broker-a:8 -> broker-a:8\n"
    )
    assert all_of_it.out == (
        f"create topic to {lab.broker} success.\nset cluster orderConf. isOrder=true, orderConf=[broker-a:8]"
        + CONFIG.format(name="O", queues=8, perm="R--", order="true")
    )
    assert (await lab.done("updateOrderConf", "-t", "O", "-m", "delete")).out == (
        "delete orderConf success. topic=[O]\n"
    )
    gone = await lab.mqadmin(*get)
    assert (gone.status, gone.err) == (
        4,
        "mqadmin updateOrderConf: No config item, Namespace: ORDER_TOPIC_CONFIG Key: O "
        f"(code 22 from {lab.nameserver})\n",
    )


async def test_a_change_of_something_else_keeps_the_order_configuration(lab: Lab) -> None:
    await lab.done("updateTopic", "-c", "DefaultCluster", "-t", "F", "-r", "2", "-w", "2", "-o", "true")
    await lab.done("updateOrderConf", "-t", "F", "-m", "put", "-v", "broker-a:8")
    get = ("updateOrderConf", "-t", "F", "-m", "get")
    for where in (("-c", "DefaultCluster"), ("-b", lab.broker)):
        changed = await lab.mqadmin("updateTopic", "-t", "F", *where, "-p", "4", "--keep")
        assert (changed.status, "orderConf" in changed.out) == (0, False)
        assert (await lab.done(*get)).out == "get orderConf success. topic=[F], orderConf=[broker-a:8] \n"
    asked = await lab.mqadmin("topic", "set", "-t", "F", "-c", "DefaultCluster", "-o", "true", answers="n\n")
    assert "nameservers: order configuration broker-a:8 -> broker-a:2\nIt exists" in asked.err
    assert (asked.status, (await lab.done(*get)).out.count("broker-a:8")) == (1, 1)
    given = await lab.mqadmin("topic", "set", "-t", "F", "-c", "DefaultCluster", "-o", "true")
    assert "set cluster orderConf. isOrder=true, orderConf=[broker-a:2]" in given.out
    assert "nameservers: order configuration broker-a:8 -> broker-a:2\n" in given.err


async def test_an_order_configuration_is_judged(lab: Lab, tmp_path: Path) -> None:
    put = ("updateOrderConf", "-t", "F", "-m", "put", "-v")
    for value in ("abc", "broker-a:abc", "broker-a:-1", "broker-a", "broker-a:8;;broker-b:8", ":8"):
        done = await lab.mqadmin(*put, value)
        assert (done.status, done.out) == (2, ""), done
        assert "option -v (--orderConf) takes broker:queues;broker:queues" in done.err
        file = tmp_path / "cluster.json"
        file.write_text(f'{{"orderConf": {{"F": "{value}"}}}}')
        assert (await lab.mqadmin("diff", "-f", str(file))).status == 2
        assert (await lab.mqadmin("apply", "-f", str(file))).status == 2
    assert (await lab.mqadmin("updateOrderConf", "-t", "F", "-m", "get")).status == 4
    early = await lab.mqadmin(*put, "broker-a:8;broker-b:8;")
    assert early.out == "update orderConf success. topic=[F], orderConf=[broker-a:8;broker-b:8;]\n"
    assert (early.status, early.err) == (
        0,
        "the nameserver knows no broker broker-b; it knows: broker-a\nthere is no topic F yet\n",
    )


async def test_a_change_that_is_refused_is_not_shown_as_made(lab: Lab) -> None:
    done = await lab.mqadmin("updateTopic", "-t", "TBW102", "-b", lab.broker)
    assert (done.status, "->" in done.err) == (1, False), done


async def test_an_unknown_cluster_is_said_with_those_that_are_known(lab: Lab) -> None:
    done = await lab.mqadmin("updateTopic", "-c", "Nowhere", "-t", "T")
    assert (done.status, done.out) == (4, "")
    assert done.err == ("mqadmin updateTopic: there is no cluster Nowhere; the nameserver knows: DefaultCluster\n")


async def test_what_the_broker_refuses_is_told_with_its_code(lab: Lab) -> None:
    done = await lab.mqadmin("updateTopic", "-b", lab.broker, "-t", "no/topic")
    assert (done.status, done.out) == (1, "")
    assert "illegal characters" in done.err and f"(code 1 from {lab.broker})" in done.err


async def test_the_route_as_json_and_as_a_table(lab: Lab) -> None:
    await lab.topic("T", 2)
    route = (await lab.done("topicRoute", "-t", "T")).out
    assert f'\t\t\t"brokerAddrs":{{0:"{lab.broker}"\n\t\t\t}},\n' in route
    table = (await lab.done("topicRoute", "-t", "T", "-l")).out.splitlines()
    assert table[1].split() == ["DefaultCluster", "broker-a", f"{{0={lab.broker}}}", "2", "2", "6"]
    assert table[2] == "-" * 158
    assert table[3].split() == ["Total:", "1", "2", "2"]


async def test_the_status_of_queues(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", queue=1)
    status = await lab.done("topicStatus", "-t", "T")
    assert status.out.splitlines()[0] == (
        "#Broker Name                      #QID  #Min Offset           #Max Offset             #Last Updated"
    )
    assert status.rows[1] == ["broker-a", "0", "0", "0"]
    assert status.rows[2][:4] == ["broker-a", "1", "0", "2"]
    assert len(status.rows[2]) == 6


async def test_permissions_change_and_are_compared(lab: Lab) -> None:
    await lab.topic("T")
    line = ("updateTopicPerm", "-b", lab.broker, "-t", "T", "-p", "4")
    changed = await lab.done(*line)
    assert changed.out == (
        f"update topic perm from 6 to 4 in {lab.broker} success.\n"
        + CONFIG.format(name="T", queues=1, perm="R--", order="false").rstrip()
        + ".\n"
    )
    assert (await lab.done(*line)).out == "new perm equals to the old one!\n"
    everywhere = await lab.done("updateTopicPerm", "-c", "DefaultCluster", "-t", "T", "-p", "6")
    assert everywhere.out == f"update topic perm from 4 to 6 in {lab.broker} success.\n"
    wrong = await lab.mqadmin("updateTopicPerm", "-b", "10.9.9.9:1", "-t", "T", "-p", "6")
    assert (wrong.status, "broker is not master" in wrong.err) == (4, True)


async def test_what_exists_is_changed_knowingly(lab: Lab) -> None:
    await lab.topic("T", 2)
    wider = ("updateTopic", "-c", "DefaultCluster", "-t", "T", "-p", "4")
    refused = await lab.mqadmin(*wider, answers="n\n")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith(f"{lab.broker}: perm 6 -> 4, readQueueNums 2 -> 8, writeQueueNums 2 -> 8\n")
    assert refused.err.endswith(
        "It exists, and this changes there. Go on? [y/N] mqadmin updateTopic: nothing was changed\n"
    )
    kept = await lab.mqadmin(*wider, "--keep")
    assert (kept.status, kept.err) == (0, f"{lab.broker}: perm 6 -> 4\n")
    assert "readQueueNums=2, writeQueueNums=2, perm=R--" in kept.out
    opened = await lab.mqadmin("topic", "set", *wider[1:-1], "6")
    assert (opened.status, opened.err) == (0, f"{lab.broker}: perm 4 -> 6\n")
    assert "readQueueNums=2, writeQueueNums=2, perm=RW-" in opened.out
    assert (await lab.mqadmin(*wider, answers="y\n")).status == 0
    assert (await lab.done(*wider, "--yes")).status == 0, "nothing changes any more"


async def test_a_group_that_exists_is_changed_knowingly(lab: Lab) -> None:
    line = ("updateSubGroup", "-b", lab.broker, "-g", "G")
    await lab.done(*line, "-d", "true", "-m", "true")
    kept = await lab.mqadmin(*line, "-r", "3", "--keep")
    assert (kept.status, kept.err) == (0, f"{lab.broker}: retryMaxTimes 16 -> 3\n")
    again = await lab.mqadmin("group", "set", *line[1:], "-r", "4")
    assert (again.status, again.err) == (0, f"{lab.broker}: retryMaxTimes 3 -> 4\n")
    assert (await lab.mqadmin("-o", "json", "Group", "set", *line[1:], "-r", "3")).status == 0
    plain = await lab.mqadmin(*line, "-r", "3")
    changes = "consumeBroadcastEnable true -> false, consumeFromMinEnable true -> false"
    assert (plain.status, plain.err) == (0, f"{lab.broker}: {changes}\n")


async def test_queues_are_allocated_as_consumers_do(lab: Lab) -> None:
    await lab.topic("T", 3)
    sorted_out = (await lab.done("allocateMQ", "-t", "T", "-i", "a,b")).out
    assert (await lab.done("allocateMQ", "-t", "T", "-i", " b, a")).out == sorted_out
    for ids in ("a,a", "a,,b"):
        assert (await lab.mqadmin("allocateMQ", "-t", "T", "-i", ids)).status == 2


async def test_a_permission_changes_nothing_else(lab: Lab) -> None:
    """Also not if another broker of the route has other numbers of queues."""
    await lab.done("updateTopic", "-b", lab.broker, "-t", "T", "-r", "8", "-w", "7")
    await lab.register("broker-0", "127.0.0.1:1", TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    changed = await lab.done("updateTopicPerm", "-b", lab.broker, "-t", "T", "-p", "4")
    assert "readQueueNums=8, writeQueueNums=7, perm=R--" in changed.out


async def test_topics_with_cluster_and_groups(lab: Lab) -> None:
    await lab.topic("T")
    await lab.commit("g2", "T", 0)
    await lab.commit("g1", "T", 0)
    rows = [row for row in (await lab.done("topicList", "-c")).rows if row[1:2] == ["T"]]
    assert sorted(rows) == [["DefaultCluster", "T", "g1"], ["DefaultCluster", "T", "g2"]]


async def test_queues_are_allocated_averagely(lab: Lab) -> None:
    await lab.topic("T", 5)
    out = (await lab.done("allocateMQ", "-t", "T", "-i", "a,b")).out
    assert out.count('"queueId"') == 5
    assert out.partition('"b"')[0].count('"queueId"') == 3


async def test_clusters_are_listed(lab: Lab) -> None:
    base = await lab.done("clusterList")
    assert base.out.splitlines()[0] == (
        "#Cluster Name     #Broker Name            #BID  #Addr                  #Version                #InTPS(LOAD)"
        "       #OutTPS(LOAD) #PCWait(ms) #Hour #SPACE"
    )
    assert base.rows[1][:5] == ["DefaultCluster", "broker-a", "0", lab.broker, "V4_9_7"]
    more = await lab.done("clusterList", "-m")
    assert more.rows[1] == ["DefaultCluster", "broker-a", "0", "0", "0", "0"]


async def test_the_state_of_a_broker(lab: Lab) -> None:
    one = await lab.done("brokerStatus", "-b", lab.broker)
    assert "brokerVersionDesc               : V4_9_7" in one.out.splitlines()
    names = [line.split(":")[0] for line in one.out.splitlines()]
    assert names == sorted(names)
    every = await lab.done("brokerStatus", "-c", "DefaultCluster")
    assert f"{lab.broker:<24} brokerVersionDesc               : V4_9_7" in every.out.splitlines()


async def test_a_setting_of_a_broker_changes(lab: Lab) -> None:
    changed = await lab.mqadmin("updateBrokerConfig", "-b", lab.broker, "-k", "fileReservedTime", "-v", "48")
    assert (changed.status, changed.out) == (0, f"update broker config success, {lab.broker}\n")
    assert changed.err.startswith(
        f"{lab.broker}: the change lasts until the broker stops: it has no configuration file"
    )
    shown = (await lab.done("getBrokerConfig", "-b", lab.broker)).out.splitlines()
    assert shown[0] == f"============{lab.broker}============"
    assert f"{'fileReservedTime':<50}=  48" in shown
    assert shown[-1] == ""
    every = (await lab.done("getBrokerConfig", "-c", "DefaultCluster")).out
    assert every.startswith(f"============Master: {lab.broker}============\n")


async def test_cleaning_up_says_success(lab: Lab) -> None:
    for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert (await lab.done(name, "-b", lab.broker)).out == "success\n", name
        assert (await lab.done(name)).out == "success\n", name


async def test_values_and_settings_of_the_nameserver(lab: Lab) -> None:
    put = await lab.done("updateKvConfig", "-s", "n", "-k", "k", "-v", "v")
    assert put.out == "create or update kv config to namespace success.\n"
    assert (await lab.done("deleteKvConfig", "-s", "n", "-k", "k")).out == "delete kv config from namespace success.\n"
    changed = await lab.mqadmin("updateNamesrvConfig", "-k", "productEnvName", "-v", "here", "-n", lab.nameserver)
    assert changed.out == f"update name server config success![{lab.nameserver}]\nproductEnvName : here\n"
    assert changed.status == 0 and "which a start reads only if -c names it" in changed.err
    shown = (await lab.done("getNamesrvConfig")).out.splitlines()
    assert shown[0] == f"============{lab.nameserver}============"
    assert f"{'productEnvName':<50}=  here" in shown


@pytest.mark.parametrize("name", ["updateBrokerConfig", "updateNamesrvConfig"])
async def test_settings_of_the_examples_are_taken(lab: Lab, name: str) -> None:
    lines = [shlex.split(each.line.replace("10.0.0.1:10911", lab.broker)) for each in examples_of(name)]
    assert lines
    for line in lines:
        assert (await lab.mqadmin(*line)).status == 0, line


async def test_write_permission_is_wiped_and_added(lab: Lab) -> None:
    wiped = await lab.done("wipeWritePerm", "-b", "broker-a")
    where = f"write perm of broker[broker-a] in name server[{lab.nameserver}]"
    assert wiped.out.startswith(f"wipe {where} OK, ")
    assert (await lab.done("addWritePerm", "-b", "broker-a")).out == wiped.out.replace("wipe", "add")


async def test_producers_are_listed(lab: Lab) -> None:
    await lab.topic("T")
    peer = await lab.producer("PG")
    one = await lab.done("producerConnection", "-g", "PG", "-t", "T")
    assert one.rows == [["0001", "10.0.0.2@p", peer.address, "JAVA", "V4_9_7"]]
    every = await lab.done("producer", "-b", lab.broker)
    start = f"producer group (PG) instance : clientId=10.0.0.2@p,remoteIP=/{peer.address}, language=JAVA, version=407, "
    assert start in every.out


async def test_a_second_nameserver_is_asked_when_the_first_is_down(lab: Lab) -> None:
    both = f"127.0.0.1:1;{lab.nameserver}"
    assert (await lab.done("clusterList", "-n", both)).rows[1][3] == lab.broker
    done = await lab.mqadmin("updateKvConfig", "-s", "n", "-k", "k", "-v", "v", "-n", both)
    assert (done.status, "did it: connect to <127.0.0.1:1> failed" in done.err) == (5, True)


def exported(folder: Path, name: str) -> dict[str, Any]:
    """A file that was exported."""
    content = fastjson.loads((folder / name).read_bytes())
    assert isinstance(content, dict)
    return content


async def test_topics_groups_and_settings_are_exported(lab: Lab, tmp_path: Path) -> None:
    await lab.topic("T", 3)
    await lab.topic("%RETRY%G")
    await lab.done("updateSubGroup", "-b", lab.broker, "-g", "G")
    to, folder = ("-f", str(tmp_path / "out")), tmp_path / "out"
    done = await lab.done("exportMetadata", "-c", "DefaultCluster", *to)
    assert done.out == f"export {folder}/metadata.json success\n"
    everything = exported(folder, "metadata.json")
    assert list(everything) == ["exportTime", "subscriptionGroupTable", "topicConfigTable"]
    assert list(everything["topicConfigTable"]) == ["T"] and list(everything["subscriptionGroupTable"]) == ["G"]
    await lab.done("exportMetadata", "-c", "DefaultCluster", "-t", "-s", *to)
    assert set(exported(folder, "topic.json")["topicConfigTable"]) == {"T", "%RETRY%G"}
    await lab.done("exportMetadata", "-b", lab.broker, "-g", *to)
    assert "dataVersion" in exported(folder, "subscriptionGroup.json")
    unclear = await lab.mqadmin("exportMetadata", "-b", lab.broker, *to)
    assert (unclear.status, unclear.err) == (2, "mqadmin exportMetadata: with -b one of -t and -g is required\n")
    await lab.done("exportConfigs", "-c", "DefaultCluster", *to)
    settings = exported(folder, "configs.json")
    assert settings["clusterScale"] == {"masterBrokerSize": 1, "namesrvSize": 1, "slaveBrokerSize": 0}
    assert settings["brokerConfigs"]["broker-a"]["brokerClusterName"] == "DefaultCluster"
    await lab.send("T", "one")
    await lab.member("G", "T")
    done = await lab.done("exportMetrics", "-c", "DefaultCluster", *to)
    assert done.out == f"export {folder}/metrics.json success\n"
    report = exported(folder, "metrics.json")["evaluateReport"]["broker-a"]
    assert (report["runtimeQuota"]["topicSize"], report["runtimeQuota"]["groupSize"]) == (1, 1)
    assert len(report["runtimeVersion"]["clientInfo"]) == 1
    (tmp_path / "file").write_text("in the way")
    blocked = await lab.mqadmin("exportConfigs", "-c", "DefaultCluster", "-f", str(tmp_path / "file"))
    assert (blocked.status, "configs.json cannot be written" in blocked.err) == (1, True)
