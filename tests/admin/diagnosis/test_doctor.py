"""mqadmin doctor: for each finding a cluster that has it, and one that does not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eruca.broker.app import BrokerApp
from eruca.broker.config import BrokerConfig
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.protocol import api
from eruca.protocol.bodies import ConsumerRunningInfo, KVTable, ProcessQueueInfo, SubscriptionData, TopicConfig
from eruca.protocol.header import Empty
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Call, Reply, Router, Routes
from eruca.remoting.server import Server
from eruca.standalone.cluster import Cluster
from tests.admin.conftest import Lab
from tests.support.peers import Answering, Pushed

ALL = [MessageQueue("T", broker, queue) for broker in ("broker-a", "broker-b") for queue in (0, 1)]


class Ward(Lab):
    """Two masters that have nothing, and a doctor."""

    beside: BrokerApp

    async def doctor(self, *line: str, status: int | None = None) -> list[dict[str, Any]]:
        """What the doctor finds; the exit status follows from it, unless a peer is silent."""
        done = await self.mqadmin("doctor", *line, "-o", "jsonl", "--timeout", "2")
        found = [json.loads(each) for each in done.out.splitlines()]
        assert done.status == (min(len(found), 1) if status is None else status), done
        return found

    async def kinds(self, *line: str) -> list[str]:
        return [each["kind"] for each in await self.doctor(*line)]

    async def members(self, *queues: list[MessageQueue], subscribed: str = "*", **held: int) -> None:
        """Members of shop that consume T and have these queues, connected to both masters."""
        for number, own in enumerate(queues):
            answering = running(own, subscribed, **held)
            for at in (self.broker, self.beside.address):
                await self.member("shop", "T", client_id=f"10.0.0.{number}@m", answering=answering, at=at)


def running(queues: list[MessageQueue], expression: str = "*", **held: int) -> Answering:
    """What a member answers to 307 that subscribes T."""
    times = {"last_pull_timestamp": time.time_ns() // 1_000_000, **held}
    info = ConsumerRunningInfo(
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": "1"},
        mq_table={queue: ProcessQueueInfo(**times) for queue in queues},  # type: ignore[arg-type]
        subscription_set=[SubscriptionData(topic="T", sub_string=expression), SubscriptionData(topic="%RETRY%shop")],
    )

    def answer(pushed: Pushed) -> tuple[int, bytes] | None:
        return (0, info.encode()) if pushed.code == 307 else None

    return answer


def settings(name: str, folder: Path) -> BrokerConfig:
    """A broker with nothing to complain about."""
    config = BrokerConfig(broker_name=name, broker_ip1="127.0.0.1", broker_ip2="127.0.0.1")
    config.server.bind_address, config.server.listen_port = "127.0.0.1", 0
    config.auto_create_topic_enable = config.auto_create_subscription_group = False
    config.store.mapped_file_size_commit_log = 1 << 20
    config.store.max_hash_slot_num, config.store.max_index_num = 128, 512
    config.store.store_path_root_dir = str(folder / name)
    return config


@pytest.fixture
async def ward(tmp_path: Path) -> AsyncIterator[Ward]:
    async with Cluster(tmp_path, broker=settings("broker-a", tmp_path)) as cluster:
        ward = Ward(cluster, tmp_path)
        await start_beside(ward)
        yield ward
        for peer in ward.peers:
            await peer.close()
        await ward.beside.stop()


async def start_beside(ward: Ward, *, bind: str = "127.0.0.1", ahead: int = 0, auto_create: bool = False) -> None:
    """Start broker-b, with something to find."""
    config = settings("broker-b", ward.home)
    config.namesrv_addr = ward.nameserver
    config.server.bind_address = bind
    config.auto_create_topic_enable = config.auto_create_subscription_group = auto_create
    ward.beside = BrokerApp(config, clock=lambda: time.time_ns() // 1_000_000 + ahead)
    await ward.beside.start()


async def restart_beside(ward: Ward, *, bind: str = "127.0.0.1", ahead: int = 0, auto_create: bool = False) -> None:
    await ward.beside.stop()
    await start_beside(ward, bind=bind, ahead=ahead, auto_create=auto_create)


async def shop(ward: Ward) -> None:
    """A topic with two queues on each master, and a group."""
    await ward.topic("T", 2)
    await ward.done("updateSubGroup", "-c", "DefaultCluster", "-g", "shop")


# ------------------------------------------------------------------ a cluster that has nothing


async def test_nothing_is_wrong(ward: Ward) -> None:
    assert (await ward.done("doctor")).out == "nothing is wrong\n"
    await shop(ward)
    await ward.members(ALL[:2], ALL[2:])
    await ward.send("T", "one")
    assert (await ward.done("doctor")).out == "nothing is wrong\n"
    assert (await ward.done("doctor", "shop")).out == "nothing is wrong\n"
    document = json.loads((await ward.done("doctor", "-g", "shop", "-o", "json")).out)
    assert (document["items"], document["errors"], document["group"]) == ([], [], "shop")


async def test_a_group_that_no_broker_knows(ward: Ward) -> None:
    done = await ward.mqadmin("doctor", "shrug")
    assert (done.status, done.err) == (4, "mqadmin doctor: no broker knows the consumer group shrug\n")
    done = await ward.mqadmin("doctor", "one", "two")
    assert (done.status, "'two' belongs to no option" in done.err) == (2, True)


# ------------------------------------------------------------------ nameservers and brokers


async def test_nameservers_that_disagree(ward: Ward, tmp_path: Path) -> None:
    await ward.topic("T")
    other = Nameserver(NamesrvConfig(listen_port=0, bind_address="127.0.0.1", kv_config_path=str(tmp_path / "kv")))
    await other.start()
    try:
        (found,) = await ward.doctor("-n", f"{ward.nameserver};{other.address}")
        assert (found["kind"], found["where"]) == ("nameserversDisagree", f"nameserver {other.address}")
        assert found["what"].startswith("it does not know broker broker-a, broker-b and does not know topic ")
        assert await ward.kinds("-n", f"{ward.nameserver};{ward.nameserver}") == []
    finally:
        await other.stop()


async def test_a_nameserver_that_is_away_leaves_a_part(ward: Ward) -> None:
    assert await ward.doctor("-n", f"{ward.nameserver};127.0.0.1:1", status=5) == []


async def test_addresses_that_lead_nowhere(ward: Ward) -> None:
    await ward.register("broker-c", "127.0.0.1:1")
    (found,) = await ward.doctor()
    assert (found["kind"], found["broker"]) == ("brokerUnreachable", "broker-c")
    await ward.register("broker-d", "192.0.2.1:1")
    assert [(each["kind"], each["broker"]) for each in await ward.doctor()] == [
        ("brokerAtLoopback", "broker-a"),
        ("brokerAtLoopback", "broker-b"),
        ("brokerAtLoopback", "broker-c"),
        ("brokerUnreachable", "broker-d"),
    ]


slaves: Routes[int] = Routes()
"""What a slave answers that has copied so many bytes of the log."""


@slaves.on(api.GET_BROKER_RUNTIME_INFO)
def figures(copied: int, call: Call[Empty]) -> Reply:
    return Reply(body=KVTable(table={"commitLogMaxOffset": str(copied)}).encode())


@slaves.on(api.GET_BROKER_CONFIG)
def configuration(copied: int, call: Call[Empty]) -> Reply:
    return Reply(body=b"brokerRole=SLAVE\n")


@pytest.mark.parametrize("behind", [0, 1 << 30])
async def test_slaves(ward: Ward, behind: int) -> None:
    slave = Server(Router(0, [slaves]))
    master = Server(Router(behind, [slaves]))
    await slave.start("127.0.0.1", 0)
    await master.start("127.0.0.1", 0)
    try:
        at = f"127.0.0.1:{slave.port}"
        await ward.register("broker-c", at, broker_id=1)
        (alone,) = await ward.doctor()
        assert (alone["kind"], alone["where"]) == ("noMaster", f"slave 1 of broker-c {at}")
        await ward.register("broker-c", f"127.0.0.1:{master.port}")
        found = [each for each in await ward.doctor(status=1 if behind else 5) if each["kind"] != "openToAll"]
        assert [(each["kind"], each["where"]) for each in found] == [
            ("slaveBehind", f"slave 1 of broker-c {at}") for _ in range(min(behind, 1))
        ]
    finally:
        await slave.stop(0.0)
        await master.stop(0.0)


@pytest.mark.parametrize("seconds", [-60, 60])
async def test_clocks_of_brokers(ward: Ward, seconds: int) -> None:
    await restart_beside(ward, ahead=seconds * 1000)
    (found,) = await ward.doctor()
    assert (found["kind"], found["broker"]) == ("brokerClock", "broker-b")
    words = "ahead of" if seconds > 0 else "behind"
    assert found["what"].startswith("its clock is ") and found["what"].endswith(f" s {words} this machine's")


async def test_a_broker_that_lets_everybody_in(ward: Ward) -> None:
    await restart_beside(ward, bind="0.0.0.0", auto_create=True)
    auto, opened = await ward.doctor()
    assert (auto["kind"], auto["what"]) == ("autoCreate", "a mistyped name creates topics and consumer groups")
    assert (opened["kind"], opened["broker"]) == ("openToAll", "broker-b")


# ------------------------------------------------------------------ topics


async def test_topics(ward: Ward) -> None:
    await ward.topic("T", 2)
    await ward.mqadmin("updateTopic", "-b", ward.broker, "-t", "T", "-r", "2", "-w", "4", "--yes")
    await ward.done("updateTopic", "-b", ward.beside.address, "-t", "Alone", "-r", "1", "-w", "1")
    alone, differ = await ward.doctor()
    assert (alone["kind"], alone["topic"], alone["broker"]) == ("topicNotEverywhere", "Alone", "broker-a")
    assert (differ["kind"], differ["where"]) == ("queueNumbersDiffer", "topic T at broker-a")
    assert differ["what"].startswith("producers write 4 queues and consumers read 2")


# ------------------------------------------------------------------ groups


async def test_a_group_that_nobody_uses(ward: Ward) -> None:
    await shop(ward)
    (found,) = await ward.doctor("shop")
    assert (found["kind"], found["what"]) == ("groupUnused", "no member is online")
    await ward.topic("%RETRY%shop")
    await ward.send("T", "one", "two")
    await ward.commit("shop", "T", 1)
    assert (await ward.doctor("shop"))[0]["what"] == "no member is online, and 1 message waits"


async def test_groups_that_nobody_uses_are_one_line(ward: Ward) -> None:
    for group in ("a", "b", "c", "d", "e"):
        await ward.done("updateSubGroup", "-c", "DefaultCluster", "-g", group)
    done = await ward.mqadmin("doctor")
    assert (done.status, done.out) == (
        1,
        "5 groups: nobody is online in a, b, c and 2 more; start their consumers, or remove those that nobody needs: "
        "mqadmin doctor --all has a line for each\n",
    )
    lines = (await ward.mqadmin("doctor", "--all")).out.splitlines()
    assert len(lines) == 5
    assert lines[0] == (
        "group a: no member is online; start a consumer, or remove it with deleteSubGroup -c DefaultCluster -g a"
    )
    assert await ward.kinds() == ["groupUnused"] * 5
    await ward.done("deleteSubGroup", "-c", "DefaultCluster", "-g", "a")


async def test_only_groups_for_which_messages_wait_are_counted_as_such(ward: Ward) -> None:
    """As mqadmin lag says it: who has consumed all is none of them, though it has offsets."""
    await ward.topic("T", 1)
    await ward.send("T", "one", "two")
    for group, offset in (("behind", 1), ("done", 2), ("ready", 2)):
        await ward.done("updateSubGroup", "-c", "DefaultCluster", "-g", group)
        await ward.topic(f"%RETRY%{group}")
        await ward.commit(group, "T", offset)
    await ward.done("updateSubGroup", "-c", "DefaultCluster", "-g", "unborn")
    done = await ward.mqadmin("doctor")
    assert done.out.startswith(
        "4 groups: nobody is online in behind, done, ready and 1 more, and messages wait in 1 of "
    )
    lines = (await ward.mqadmin("doctor", "--all")).out.splitlines()
    said = [line.partition(";")[0] for line in lines]
    assert said[0] == "group behind: no member is online, and 1 message waits"
    assert said[1:] == [f"group {group}: no member is online" for group in ("done", "ready", "unborn")]


async def test_subscriptions_that_differ(ward: Ward) -> None:
    await shop(ward)
    await ward.members(ALL[:2], ALL[2:])
    for at in (ward.broker, ward.beside.address):
        await ward.member("shop", "T", client_id="10.0.0.9@m", answering=running([], "B || A"), at=at)
    (found,) = await ward.doctor("shop")
    assert (found["kind"], found["group"]) == ("subscriptionsDiffer", "shop")
    assert "10.0.0.0@m wants T [*], 10.0.0.1@m wants T [*], 10.0.0.9@m wants T [A || B]" in found["what"]


async def test_queues_and_their_owners(ward: Ward) -> None:
    await shop(ward)
    await ward.members(ALL[:2], ALL[1:3])
    alone, twice = await ward.doctor("shop")
    assert (alone["kind"], alone["what"]) == ("queueWithoutOwner", "no member consumes queue broker-b:1")
    assert twice["kind"] == "queueWithTwoOwners"
    assert twice["what"].startswith("several members consume queue broker-a:1, ")


async def test_a_member_that_one_broker_does_not_know(ward: Ward) -> None:
    await shop(ward)
    await ward.member("shop", "T", client_id="10.0.0.1@m", answering=running(ALL))
    (found,) = await ward.doctor()
    assert (found["kind"], found["member"], found["broker"]) == ("memberNotEverywhere", "10.0.0.1@m", "broker-b")
    assert found["what"] == "it is connected to broker-a and not to broker-b"


@pytest.mark.parametrize("seconds", [-600, 60])
async def test_clocks_of_members(ward: Ward, seconds: int) -> None:
    await shop(ward)
    await ward.members(ALL, last_pull_timestamp=time.time_ns() // 1_000_000 + seconds * 1000)
    (found,) = await ward.doctor()
    assert (found["kind"], found["member"]) == ("memberClock", "10.0.0.0@m")
    assert ("ahead of" if seconds > 0 else "is behind") in found["what"]


async def test_a_member_that_hangs_is_named(ward: Ward) -> None:
    await shop(ward)
    for at in (ward.broker, ward.beside.address):
        await ward.member("shop", "T", client_id="10.0.0.1@m", answering=lambda pushed: None, at=at)
    assert await ward.doctor("--timeout", "0.5", status=5) == []


async def test_a_broker_that_hangs_is_named_for_a_group_too(ward: Ward) -> None:
    await shop(ward)
    await ward.members(ALL)
    held: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await ward.register("broker-c", address, TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
        done = await ward.mqadmin("doctor", "shop", "--timeout", "0.5")
        assert (done.status, done.out) == (5, "nothing is wrong at those that answer\n")
        assert f"broker-c {address}" in done.err and "what it knows of shop is missing" in done.err
        as_json = await ward.mqadmin("doctor", "shop", "--timeout", "0.5", "-o", "json")
        assert [each["peer"] for each in json.loads(as_json.out)["errors"]] == [f"broker-c {address}"]
        for writer in held:
            writer.close()


async def test_a_broker_that_refuses_sends_is_named_for_the_groups_that_need_it(ward: Ward) -> None:
    await shop(ward)
    await ward.members(ALL)
    await ward.done("updateSubGroup", "-b", ward.broker, "-g", "elsewhere")
    store = ward.beside.broker.store
    store.config.disk_space_warning_level_ratio = -1.0
    store.check_disk()
    (found,) = await ward.doctor("shop")
    assert (found["kind"], found["broker"]) == ("brokerRefusesSends", "broker-b")
    assert "every send is refused: " in found["what"]
    assert "brokerRefusesSends" not in await ward.kinds("elsewhere")


async def test_retries_and_dead_letters_that_grow(ward: Ward) -> None:
    await shop(ward)
    await ward.members(ALL)
    for name in ("%RETRY%shop", "%DLQ%shop"):
        await ward.topic(name)
    await ward.send("%RETRY%shop", *map(str, range(9)))
    assert await ward.kinds() == []
    await ward.send("%RETRY%shop", "ten")
    await ward.send("%DLQ%shop", "lost")
    retries, dead = await ward.doctor("shop")
    assert retries["kind"] == "retriesGrow"
    assert retries["what"] == "10 messages came to be consumed again in the last half hour, 0 in the one before"
    assert (dead["kind"], dead["what"]) == (
        "deadLettersGrow",
        "1 message became a dead letter in the last hour",
    )
