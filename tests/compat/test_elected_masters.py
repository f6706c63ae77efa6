"""Masters that were elected, at the other side's nameserver: the newest one has the name, whoever wakes up."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from eruca.broker.config import BrokerRole
from eruca.broker.services.role import Wanted
from eruca.client import ClientSettings, Message, Producer
from eruca.client.errors import ClientError
from eruca.protocol.bodies import ClusterInfo
from eruca.standalone.cli import main
from tests.broker.services.replication.pairs import master_of
from tests.compat.replicas import pulled, send, wait_for
from tests.compat.transcript import eruca_mqadmin, java_mqadmin
from tests.support import raw
from tests.support.apache import ApacheBroker, ApacheController, ApacheNameServer
from tests.support.desk import Desk
from tests.support.eruca import ErucaNameServer
from tests.support.failover_cluster import FailoverCluster, bodies
from tests.support.java import Judge
from tests.support.sends import message

GET_BROKER_CLUSTER_INFO, CONTROLLER_GET_SYNC_STATE_DATA = 106, 1006
ELECTED = {
    "enableControllerMode": "true",
    "brokerId": "-1",
    "brokerRole": "SLAVE",
    "allAckInSyncStateSet": "true",
    "controllerHeartBeatTimeoutMills": "3000",
    "brokerHeartbeatInterval": "500",
    "syncControllerMetadataPeriod": "1000",
    "registerNameServerPeriod": "10000",
}


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[ErucaNameServer]:
    server = ErucaNameServer(tmp_path / "ours")
    yield server
    server.stop()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ApacheController]:
    controller = ApacheController("5.3.3", tmp_path / "controller", {"scanNotActiveBrokerInterval": "1000"})
    yield controller
    controller.stop()


def ids(server: ErucaNameServer | ApacheNameServer) -> dict[str, int]:
    """The ids of the group's brokers, by address."""
    info = ClusterInfo.decode(raw.ask(server.address, GET_BROKER_CLUSTER_INFO)[1])
    return {address: number for number, address in info.broker_addr_table["broker-a"].broker_addrs.items()}


def in_sync(controller: ApacheController) -> int:
    """How many brokers of the group may become the master."""
    answer = raw.ask(controller.address, CONTROLLER_GET_SYNC_STATE_DATA, {}, b'["broker-a"]')[1]
    return len(json.loads(answer)["replicasInfoTable"]["broker-a"]["inSyncReplicas"])


def test_a_master_that_slept_through_an_election_does_not_stand_in_the_routes_again(
    tmp_path: Path, ours: ErucaNameServer, controller: ApacheController
) -> None:
    settings = {**ELECTED, "controllerAddr": controller.address}
    first = ApacheBroker("5.3.3", tmp_path / "first", ours.address, settings)
    second = ApacheBroker("5.3.3", tmp_path / "second", ours.address, settings)
    try:
        wait_for(lambda: sorted(ids(ours)) == sorted((first.address, second.address)), "both brokers")
        assert ids(ours)[first.address] == 0 < ids(ours)[second.address]
        wait_for(lambda: in_sync(controller) == 2, "a second broker that may be elected")
        first.process.signal(signal.SIGSTOP)  # its connection to the nameserver stays
        wait_for(lambda: ids(ours).get(second.address) == 0, "the new master")
        assert send(second, range(3)) == [0, 0, 0]
        first.process.signal(signal.SIGCONT)
        seen = []

        def follows() -> bool:
            seen.append(ids(ours))
            return seen[-1].get(first.address, 0) > 0

        wait_for(follows, "the former master as a slave")
        assert {each[second.address] for each in seen} == {0}
    finally:
        for broker in (first, second):
            broker.process.signal(signal.SIGCONT)
            broker.discard()


async def stands(names: ApacheNameServer, desk: Desk) -> float:
    """Wait until a broker is the master in the table; how long it took."""
    begun = time.monotonic()
    async with asyncio.timeout(20):
        while (await asyncio.to_thread(ids, names)).get(desk.app.address) != 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return time.monotonic() - begun


async def test_our_new_master_stands_at_once_where_nobody_knows_epochs_and_a_former_one_does_not_stay(
    tmp_path: Path,
) -> None:
    names = await asyncio.to_thread(ApacheNameServer, "4.9.7", tmp_path / "names")
    first, second = master_of(tmp_path / "first"), master_of(tmp_path / "second")
    try:
        for number, desk in enumerate((first, second), start=1):
            desk.config.namesrv_addr = names.address
            desk.config.broker_id = number
            desk.config.store.broker_role = BrokerRole.SLAVE
            await desk.start()
        await first.broker.role.appoint(Wanted(BrokerRole.ASYNC_MASTER, 0, 3))
        await stands(names, first)
        await second.broker.role.appoint(Wanted(BrokerRole.ASYNC_MASTER, 0, 4))
        assert await stands(names, second) < 2

        first.broker.registration.is_sure = lambda: False
        await first.broker.registration.register_all()
        assert (await asyncio.to_thread(ids, names))[second.app.address] == 0
        first.broker.registration.is_sure = lambda: True  # as if it had been on its way all the time
        await first.broker.registration.register_all()
        first.broker.registration.is_sure = lambda: False
        await stands(names, first)
        took = await stands(names, second)
        print(f"the new master stands again after {took:.2f} s")
        await first.stop()
        assert (await asyncio.to_thread(ids, names)) == {second.app.address: 0}
        await second.stop()
    finally:
        await asyncio.to_thread(names.stop)


def blocks(text: str) -> list[str]:
    """What stands between empty lines, in any order: Java prints brokers in that of a HashSet."""
    return sorted(text.strip("\n").split("\n\n"))


async def both(judge5: Judge, *line: str) -> str:
    """What Apache's mqadmin prints, and ours as well."""
    theirs = await asyncio.to_thread(java_mqadmin(judge5), line)
    ours = await asyncio.to_thread(eruca_mqadmin, line)
    assert blocks(ours.stdout) == blocks(theirs.stdout) and ours.exit == 0, ours.stderr
    return theirs.stdout


async def test_mqadmin_of_5x_shows_our_group_and_hands_the_mastership_over_by_any_of_its_brokers(
    tmp_path: Path, judge5: Judge
) -> None:
    async with FailoverCluster(tmp_path, 3) as group:
        await group.all_in_set()
        for _ in range(5):
            assert await group.send() == 1
        view = await group.view()
        one, two, three = (view.present[number].address for number in (1, 2, 3))
        names = ("-n", group.names.address)

        async def shown(*line: str) -> str:
            return await both(judge5, *line, *names)

        sets = await shown("getSyncStateSet", "-a", two, "-b", "broker-a")
        assert f"#MasterBrokerId\t1\n#MasterAddr\t{one}\n#MasterEpoch\t2\n" in sets and "#SyncStateSetNums\t3\n" in sets
        assert sets.count("\nInSyncReplica:") == 3 and "NotInSyncReplica" not in sets
        assert f"brokerId=3, brokerAddress='{three}', alive=true" in sets
        epochs = await shown("getBrokerEpoch", "-b", "broker-a")
        assert epochs.count("#Epoch: EpochEntry{epoch=2, startOffset=0, endOffset=") == 3
        assert epochs == await shown("getBrokerEpoch", "-c", "DefaultCluster")
        status = await shown("haStatus", "-b", one)
        assert "#SlaveNum\t2\n#InSyncSlaveNum\t2\n" in status and status.count(" OK ") == 2
        assert status == await shown("haStatus", "-c", "DefaultCluster")

        whole = ("-bn", "broker-a", "-c", "DefaultCluster", *names)
        theirs = await asyncio.to_thread(java_mqadmin(judge5), ("electMaster", "-a", two, "-b", "3", *whole))
        assert f"#BrokerMasterAddr\t{three}\n#MasterEpoch\t4\n" in theirs.stdout
        assert f"\t#Broker\t1\t{one}\n" in theirs.stdout
        assert await group.send() == 1, "the former master passes it on"
        await group.all_in_set()
        assert "#MasterBrokerId\t3\n" in await shown("getSyncStateSet", "-a", one, "-c", "DefaultCluster")

        ours = await asyncio.to_thread(eruca_mqadmin, ("electMaster", "-b", "2", *whole))
        assert (ours.exit, ours.stderr) == (0, "")
        assert numberless(ours.stdout.replace(f"Addr\t{two}", f"Addr\t{three}")) == numberless(theirs.stdout)
        assert await group.send() == 1, "to the next one, too"
        await group.all_in_set()
        assert await group.figure(2, "groupState") == "master"
        found = await asyncio.to_thread(eruca_mqadmin, ("getSyncStateSet", "-b", "broker-a", *names))
        assert found.stdout == await shown("getSyncStateSet", "-a", one, "-b", "broker-a"), "-a need not be given"


def numberless(text: str) -> str:
    """A text without its epochs, whose brokers stand in one order."""
    return "\n".join(sorted(re.sub(r"Epoch\t\d+", "Epoch", text).splitlines()))


def test_our_mqadmin_shows_a_group_of_apaches_and_elects_its_master(
    tmp_path: Path, ours: ErucaNameServer, controller: ApacheController, judge5: Judge
) -> None:
    settings = {**ELECTED, "controllerAddr": controller.address}
    brokers = [ApacheBroker("5.3.3", tmp_path / str(number), ours.address, settings) for number in range(2)]
    try:
        wait_for(lambda: in_sync(controller) == 2, "a second broker that may be elected")
        names = ("-n", ours.address)
        for line in (
            ("getSyncStateSet", "-a", controller.address, "-b", "broker-a", *names),
            ("getBrokerEpoch", "-b", "broker-a", *names),
        ):
            theirs, found = java_mqadmin(judge5)(line), eruca_mqadmin(line)
            assert blocks(found.stdout) == blocks(theirs.stdout) and found.exit == 0, found.stderr
            assert "broker-a" in found.stdout
        follower = max(ids(ours).items(), key=lambda each: each[1])[0]
        group = json.loads(
            eruca_mqadmin(("getSyncStateSet", "-a", controller.address, "-b", "broker-a", "-o", "json", *names)).stdout
        )
        (number,) = [each["brokerId"] for each in group["items"] if each["address"] == follower]
        whole = ("-bn", "broker-a", "-c", "JudgeCluster", *names)
        elected = eruca_mqadmin(("electMaster", "-a", controller.address, "-b", str(number), *whole))
        assert elected.exit == 0 and f"#BrokerMasterAddr\t{follower}\n" in elected.stdout, elected.stderr
    finally:
        for broker in brokers:
            broker.discard()


async def test_no_send_of_a_java_producer_fails_while_the_mastership_is_handed_over(
    tmp_path: Path, judge: Judge
) -> None:
    async with FailoverCluster(tmp_path, 3) as group:
        await group.send()
        await group.all_in_set()
        for name in ("switched", "switched-ordered"):  # with the client's own defaults
            judge.call("producer", name=name, group="P", namesrv=group.names.address, timeoutMs=3000, within=30)
        loads = [
            asyncio.wrap_future(judge.begin("load", kind=kind, name=name, topic="T", threads=2, ms=9000))
            for name, kind in (("switched", "sync"), ("switched-ordered", "ordered"))
        ]
        for to in (2, 3, 1, 2, 3):
            await asyncio.sleep(1)
            await group.hand_over(to)
            await group.all_in_set()
        done = await asyncio.gather(*loads)
        relayed = [await group.figure(number, "relayed") for number in group.numbers]
        for name in ("switched", "switched-ordered"):
            judge.call("stop", name=name)
        (log, *others) = (await group.logs()).values()
    assert {*others} == {log}
    print([(each["messages"], each["failed"], round(each["longestUs"] / 1e6, 3)) for each in done], relayed)
    assert [each["failed"] for each in done] == [0, 0]
    assert all(each["messages"] > 100 and each["longestUs"] <= 1_000_000 for each in done)
    assert sum(map(int, relayed)) > 0


class Upgraded:
    """Sends of a Python producer, one after the other, while a group is upgraded."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.taken: set[bytes] = set()
        """The bodies that were answered with 0."""
        self.longest = 0.0
        self._over = False

    async def go_on(self, names: str) -> None:
        """Send until it is over."""
        settings = ClientSettings(nameserver=names)
        async with Producer("python", settings=settings, send_timeout=8) as producer:
            for number in itertools.count():
                if self._over:
                    return
                body, begun = b"python %d" % number, time.monotonic()
                try:
                    await producer.send(Message("T", body))
                except ClientError as fault:
                    self.faults.append(str(fault))
                else:
                    self.taken.add(body)
                self.longest = max(self.longest, time.monotonic() - begun)

    def end(self) -> None:
        """Let the send that is under way be the last one."""
        self._over = True


async def restart(group: FailoverCluster, number: int) -> None:
    """As an upgrade does: SIGTERM, the start, and the broker is in the set again."""
    await group.hang_up(number)
    assert await asyncio.to_thread(group.brokers[number].stop) == 0
    await group.found(lambda known: number not in known.sync_state_set)
    await group.start(number)
    await group.all_in_set()


async def stands_still(group: FailoverCluster, number: int) -> str:
    """Wait until a former master passes nothing on any more, for two seconds; how much it has passed on."""
    relayed, since = "", time.monotonic()
    async with asyncio.timeout(60):
        while time.monotonic() - since < 2:
            now = await group.figure(number, "relayed")
            if now != relayed:
                relayed, since = now, time.monotonic()
            await asyncio.sleep(0.1)
    return relayed


async def test_no_send_fails_while_a_group_is_upgraded_by_the_steps_of_the_page(tmp_path: Path, judge: Judge) -> None:
    """docs/operations.md, "Rolling upgrade of a group", with one group and the clients' own defaults."""
    async with FailoverCluster(tmp_path, 2, {"mappedFileSizeCommitLog": str(64 << 20)}) as group:
        await group.send()
        await group.all_in_set()
        assert await group.master() == 1
        judge.call("producer", name="upgraded", group="P", namesrv=group.names.address, timeoutMs=3000, within=30)
        java = asyncio.wrap_future(judge.begin("load", kind="sync", name="upgraded", topic="T", threads=2, ms=50_000))
        python = Upgraded()
        sending = asyncio.create_task(python.go_on(group.names.address))

        await restart(group, 2)  # those that follow
        await group.hand_over(2)
        await group.all_in_set()
        relayed = await stands_still(group, 1)
        await restart(group, 1)  # the former master
        assert await group.master() == 2
        assert not java.done(), "the sends were over before the upgrade was"

        done = await java
        python.end()
        await sending
        judge.call("stop", name="upgraded")
        logs = await group.logs()
    print(done["messages"], done["failed"], done["failures"], relayed, len(python.taken), round(python.longest, 3))
    assert (done["failed"], python.faults) == (0, []), done["failures"]
    assert logs[1] == logs[2] and int(relayed) > 0
    assert python.taken <= {*bodies(logs[1])}


SIZES = {"mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "20000", "checkCRCOnRecover": "true"}


async def test_apache_opens_the_store_of_every_broker_of_a_group_after_switches(tmp_path: Path) -> None:
    """That of a former master whose log was cut off, those of the others, and that of one which came back empty."""
    async with FailoverCluster(tmp_path, 3, {"haMaxTimeSlaveNotCatchup": "15000"}, machines=True) as group:
        for _ in range(300):
            await group.send()
        await group.all_in_set()
        ways = [await group.machines[1].ha.of(each) for each in ("2", "3")]
        for way in ways:
            way.lost = frozenset(("there", "back"))
        with pytest.raises(TimeoutError):
            await group.ask(1, 310, message(i=""), b"on no other broker" * 1000, within=0.5)
        await group.hang_up(1)
        group.kill(1)
        for way in ways:
            way.lost = frozenset()
            way.cut()
        await group.led_by_another(1)
        for _ in range(300):
            await group.send()
        await group.start(1)
        await group.all_in_set()
        (replica,) = {2, 3} - {await group.master()}
        await group.hang_up(replica)
        await asyncio.to_thread(group.brokers[replica].stop)
        shutil.rmtree(group.store(replica))
        await group.start(replica)
        await group.all_in_set()
        await group.hand_over(1)
        await group.all_in_set()
        for _ in range(300):
            await group.send()
        (log, *others) = (await group.logs()).values()
    assert {*others} == {log}
    assert [*(group.store(1) / "rolledback").iterdir()], "its log was cut off"
    names = await asyncio.to_thread(ApacheNameServer, "4.9.7", tmp_path / "names-4.9.7")
    try:
        for number in group.numbers:
            found = CliRunner().invoke(
                main, ["store", "verify", str(group.store(number)), "-c", str(tmp_path / f"{number}" / "broker.conf")]
            )
            assert found.exit_code == 0 and "The store is sound." in found.output, found.output
            broker = await asyncio.to_thread(ApacheBroker, "4.9.7", tmp_path / f"{number}", names.address, SIZES)
            try:
                records = await asyncio.to_thread(pulled, broker, 0)
                assert [record.body for record in records] == group.acknowledged
            finally:
                await asyncio.to_thread(broker.stop)
    finally:
        await asyncio.to_thread(names.stop)
