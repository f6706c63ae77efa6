"""The broker as a whole: ports, registration with nameservers, stop and restart, and its command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import string
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.config import BrokerRole, FlushDiskType
from eruca.broker.services import registration
from eruca.broker.services.ports import take_ports
from eruca.broker.state.state_file import StateUnreadable
from eruca.broker.store import StoreLocked, native
from eruca.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from eruca.remoting.descriptors import raise_limit
from eruca.remoting.listener import PortTaken
from tests.support.desk import START, Desk
from tests.support.names import Names
from tests.support.pairs import eventually

PUT_KV, SEND_V2, CREATE = 100, 310, 17


@pytest.fixture
async def registered(tmp_path: Path, names: Names) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = names.server.address
    async with desk:
        yield desk


def message(topic: str) -> dict[str, object]:
    return dict(zip("abcdefgh", ("pg", topic, "TBW102", 4, 0, 0, START, 0), strict=True))


# ---------------------------------------------------------------------- registration


async def test_a_broker_that_started_is_known_with_its_system_topics(registered: Desk, names: Names) -> None:
    assert await names.brokers() == {"broker-a": {0: registered.app.address}}
    for topic, queues, perm in (
        ("TBW102", 8, 7),
        ("Lab", 16, 7),
        ("broker-a", 1, 7),
        ("SELF_TEST_TOPIC", 1, 6),
        ("BenchmarkTest", 1024, 6),
        ("OFFSET_MOVED_EVENT", 1, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("Lab_REPLY_TOPIC", 1, 6),
    ):
        route = await names.route(topic)
        assert route is not None
        (queue,) = route.queue_datas
        assert (queue.read_queue_nums, queue.write_queue_nums, queue.perm) == (queues, queues, perm), topic


async def test_a_topic_that_came_by_sending_is_known_soon(registered: Desk, names: Names) -> None:
    assert (await registered.ask(SEND_V2, message("New"), b"x")).code == 0
    route = await names.route("New")  # the broker's one-way request left before its answer to the send
    assert route is not None and route.queue_datas[0].write_queue_nums == 4


async def test_a_topic_that_an_operator_made_is_known_when_that_is_answered(registered: Desk, names: Names) -> None:
    fields = {
        "topic": "Made",
        "defaultTopic": "TBW102",
        "readQueueNums": 3,
        "writeQueueNums": 3,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    assert (await registered.ask(CREATE, fields)).code == 0
    assert await names.route("Made") is not None


async def test_a_broker_that_may_not_be_written_to_says_so_of_every_topic(registered: Desk, names: Names) -> None:
    await registered.ask(25, {}, b"brokerPermission=4\n")
    route = await names.route("TBW102")
    assert route is not None and route.queue_datas[0].perm == 4
    await registered.ask(25, {}, b"brokerPermission=6\n")
    route = await names.route("TBW102")
    assert route is not None and route.queue_datas[0].perm == 7


async def test_topics_become_ordered_ones_by_the_nameservers_word(registered: Desk, names: Names) -> None:
    registered.topic("Steps")
    await names.peer.ask(PUT_KV, {"namespace": "ORDER_TOPIC_CONFIG", "key": "Steps", "value": "broker-a:1"})
    await registered.broker.registration.register_all()
    assert registered.broker.topics.is_order("Steps") and not registered.broker.topics.is_order("TBW102")


async def test_a_broker_that_stops_is_forgotten_at_once(registered: Desk, names: Names) -> None:
    await registered.app.stop()
    assert await names.brokers() == {}
    assert await names.route("TBW102") is None


async def test_a_nameserver_that_was_away_gets_to_know_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RETRY_AFTER", 0.05)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = f"127.0.0.1:{port}"
    async with desk:  # does not wait for it
        assert not desk.broker.registration.registered
        for _ in range(2):  # it comes, goes and comes again
            names = await Names(tmp_path, port).start()
            await eventually(lambda: bool(desk.broker.registration.registered))
            assert await names.brokers() == {"broker-a": {0: desk.app.address}}
            await names.stop()
            await eventually(lambda: not desk.broker.registration.registered)


def _counted(calls: Counter[str], name: str, method: Callable[..., object], *given: object, **named: object) -> object:
    calls[name] += 1
    return method(*given, **named)


async def test_without_force_register_a_nameserver_is_told_what_it_does_not_know(
    tmp_path: Path, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave without a master asks often, so this need not wait for registerNameServerPeriod."""
    monkeypatch.setattr(registration, "RETRY_AFTER", 0.01)
    table, calls = names.server.table, Counter[str]()
    for name in ("register", "is_changed"):
        monkeypatch.setattr(table, name, partial(_counted, calls, name, getattr(table, name)))
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = names.server.address
    desk.config.force_register = False
    desk.config.store.broker_role, desk.config.broker_id = BrokerRole.SLAVE, 1
    async with desk:
        await eventually(lambda: calls["is_changed"] >= 3)
        assert calls["register"] == 1, "the version that it has is the newest"
        desk.broker.topics.renew()
        await eventually(lambda: calls["register"] == 2)


async def test_every_nameserver_is_told(tmp_path: Path, names: Names) -> None:
    other = await Names(tmp_path / "other").start()
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = f"{names.server.address}; {other.server.address}"
    await desk.start()
    await desk.ask(SEND_V2, message("New"), b"x")
    for each in (names, other):
        assert await each.brokers() == {"broker-a": {0: desk.app.address}}
        assert await each.route("New") is not None
    await desk.stop()
    assert await names.brokers() == await other.brokers() == {}
    await other.stop()


async def test_the_compressed_form_says_the_same(tmp_path: Path, names: Names) -> None:
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = names.server.address
    desk.config.compressed_register = True
    async with desk:
        assert await names.route("TBW102") is not None


def topics(count: int, name: Callable[[int], str]) -> TopicConfigSerializeWrapper:
    """So many topics, as a master or a file has them."""
    every = [TopicConfig(topic_name=name(number)) for number in range(count)]
    return TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1, timestamp=START),
        topic_config_table={each.topic_name: each for each in every},
    )


async def test_a_broker_with_ninety_thousand_topics_is_registered_after_its_restart(
    tmp_path: Path, names: Names
) -> None:
    """More than maxTopicNum, from before there was a bound: their registration was too long for a frame once."""
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    every = topics(90_000, lambda number: f"%RETRY%some-group-{number}")
    assert len(every.encode()) > 15 << 20
    (folder / "topics.json").write_bytes(every.encode())
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = names.server.address
    with capture_logs() as said:
        await desk.start()
    try:
        await eventually(lambda: bool(desk.broker.registration.registered))
        assert await names.route("%RETRY%some-group-89999") is not None
        assert [line["topics"] for line in said if line["event"] == "registration_compressed"] == [
            len(desk.broker.topics)
        ]
        answer = await desk.ask(SEND_V2, message("New"), b"x")
        assert answer.code == 1 and "maxTopicNum allows 20000" in (answer.remark or "")
        assert (await desk.ask(SEND_V2, message("%RETRY%some-group-7"), b"x")).code == 0
    finally:
        await desk.stop()


@pytest.mark.slow
async def test_a_table_that_no_nameserver_takes_is_said_once(tmp_path: Path, names: Names) -> None:
    letters = random.Random(7)
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = names.server.address
    async with desk:
        await eventually(lambda: bool(desk.broker.registration.registered))
        vast = topics(200_000, lambda _: "".join(letters.choices(string.ascii_letters, k=127)))
        with capture_logs() as said:
            desk.broker.topics.take_over(vast)
            for _ in range(3):
                await desk.broker.registration.register_all()
                desk.broker.registration.announce()
                await desk.ask(106, within=60)  # meanwhile the broker saves 200,000 topics
        assert [line["event"] for line in said if line["event"].startswith("registration")] == ["registration_too_long"]
        few = topics(3, lambda number: f"T{number}")
        few.data_version = few.data_version.following(START)
        desk.broker.topics.take_over(few)
        await desk.broker.registration.register_all()
        assert await names.route("T2") is not None


# ---------------------------------------------------------------------- ports


def test_free_ports_lie_together() -> None:
    ports = take_ports("127.0.0.1", 0)
    main, vip, ha = ports.numbers
    assert (vip, ha) == (main - 2, main + 1) and ports.adjacent
    with pytest.raises(PortTaken, match=f"cannot listen on 127.0.0.1:{main}"):
        ports.main.listen()
        take_ports("127.0.0.1", main)
    ports.close()


def test_free_ports_lie_together_where_connections_hold_nearly_all_even_ones() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    host, numbers = "127.0.0.9", [port for port in range(low, high) if port % 2 == 0 and port % 200]
    if raise_limit() < len(numbers) + 1000:
        pytest.skip("needs as many descriptors as there are ports")
    with contextlib.ExitStack() as held:
        for number in numbers:
            with contextlib.suppress(OSError):  # another process holds it at all addresses
                held.enter_context(socket.socket()).bind((host, number))
        ports = take_ports(host, 0)
    assert ports.adjacent
    ports.close()


@pytest.mark.parametrize("port", [1, 65535])
def test_a_port_without_room_beside_it(port: int) -> None:
    with pytest.raises(PortTaken, match=f"listenPort {port} must leave room"):
        take_ports("127.0.0.1", port)


# ---------------------------------------------------------------------- stop and start


async def test_everything_is_there_after_a_restart(desk: Desk) -> None:
    await desk.ask(SEND_V2, message("Mine"), b"kept")
    await desk.consumer("g", "Mine")
    await desk.ask(15, {"consumerGroup": "g", "topic": "Mine", "queueId": 0, "commitOffset": 1})
    version = desk.broker.topics.version
    await desk.restart()
    assert desk.broker.store.recovery.clean
    assert desk.broker.topics.version == version
    assert {"Mine", "%RETRY%g"} <= set(desk.broker.topics)
    assert desk.broker.groups.get("g") is not None
    assert desk.broker.offsets.query("g", "Mine", 0) == 1
    assert (await desk.ask(SEND_V2, message("Mine"), b"more")).fields["queueOffset"] == "1"


async def test_a_second_broker_on_the_same_store_is_refused(desk: Desk, tmp_path: Path) -> None:
    other = Desk(tmp_path)
    with pytest.raises(StoreLocked):
        await other.start()
    assert (await desk.ask(SEND_V2, message("T"), b"x")).code == 0


async def test_state_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "topics.json").write_bytes(b'{"dataVersion')
    with pytest.raises(StateUnreadable, match=r"topics\.json"):
        await desk.start()


async def test_a_stop_during_a_flood_keeps_what_was_answered(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
    await desk.start()
    answered = 0

    async def flood() -> None:
        nonlocal answered
        while True:
            answer = await desk.ask(SEND_V2, message("T"), b"x")
            answered += answer.code == 0
            if answered >= 200:
                flooded.set()

    flooded = asyncio.Event()
    senders = [asyncio.create_task(flood()) for _ in range(8)]
    await flooded.wait()
    await desk.stop_app()
    for sender in senders:
        sender.cancel()
    await asyncio.gather(*senders, return_exceptions=True)
    kept = answered
    await desk.start()
    assert desk.broker.store.recovery.clean
    assert desk.broker.store.max_offset("T", 0) >= kept
    await desk.stop()


# ---------------------------------------------------------------------- the command


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "listenPort = 0\nbrokerIP1: 127.0.0.1\nbrokerName=b\nautoCreateTopicEnable=true\nnoSuchKey=1\n"
        f"storePathRootDir={tmp_path / 'store'}\nmappedFileSizeCommitLog=1048576\n"
        "maxMessageSize=65536\nmaxIndexNum=512\nmaxHashSlotNum=128\n"
    )
    roots = Path(__file__).parents[2]
    path = os.pathsep.join(str(roots / name) for name in ("protocol", "remoting", "broker"))

    def run(*arguments: str, program: Sequence[str] = ("-m", "eruca.broker")) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


@pytest.mark.processes
def test_the_command_starts_tells_and_stops(command: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = command("-c", "broker.conf", "-n", "127.0.0.1:1")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("The broker[b, 127.0.0.1:")
    assert line.endswith("] boot success. serializeType=JSON and name server is 127.0.0.1:1\n")
    assert (tmp_path / "store" / "abort").exists()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "noSuchKey" in errors
    assert f"native_step={native.on}" in errors
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.processes
@pytest.mark.parametrize("absent", [True, False])
def test_a_broker_for_which_no_native_step_was_compiled_says_how_to_get_it(
    command: Callable[..., subprocess.Popen[str]], absent: bool
) -> None:
    hide = "import sys; sys.modules['eruca.broker.store._native'] = None; " if absent else ""
    process = command("-c", "broker.conf", program=("-c", f"{hide}from eruca.broker.app import main; main()"))
    assert process.stdout is not None
    assert "boot success" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert ("native_step_absent" in errors) is (absent or native.absent)
    assert ("install again with a C compiler" in errors) is (absent or native.absent)


@pytest.mark.processes
def test_the_command_shows_its_settings(command: Callable[..., subprocess.Popen[str]]) -> None:
    shown, _ = command("-c", "broker.conf", "-p").communicate(timeout=20)
    settings = dict(line.split("=", 1) for line in shown.splitlines())
    assert settings["listenPort"] == "0"
    assert settings["brokerName"] == "b"
    assert settings["flushDiskType"] == "ASYNC_FLUSH"
    assert settings["waitTimeMillsInSendQueue"] == "200"
    shown, _ = command("-c", "broker.conf", "-m").communicate(timeout=20)
    assert "brokerClusterName=DefaultCluster" in shown and "waitTimeMillsInSendQueue" not in shown


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "flushDiskType=SOMETIMES\n",
            "flushDiskType: 'SOMETIMES' is not allowed; write one of ASYNC_FLUSH, SYNC_FLUSH",
        ),
        ("listenPort=1\n", "listenPort 1 must leave room for the ports 2 below and 1 above it"),
        ("messageDelayLevel=1s 2x\n", "messageDelayLevel: '1s 2x' is not allowed; write numbers with s, m, h or d"),
        (
            "storePathCommitLog=/a,/b\n",
            "storePathCommitLog names several directories, and this broker keeps",
        ),
    ],
)
def test_a_start_that_cannot_be_says_why_in_one_sentence(
    command: Callable[..., subprocess.Popen[str]], tmp_path: Path, text: str, said: str
) -> None:
    with (tmp_path / "broker.conf").open("a") as conf:
        conf.write(text)
    process = command("-c", "broker.conf")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 78
    (line,) = [line for line in errors.splitlines() if "warning" not in line]
    assert line.startswith("mqbroker: broker.conf:") and said in line


@pytest.mark.processes
@pytest.mark.parametrize("text", [None, "accounts: [\n", "accounts: [{accessKey: ordinary, secretKey: marked}]\n"])
def test_access_control_without_usable_accounts_is_no_start(
    command: Callable[..., subprocess.Popen[str]], tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "accounts.yml"
    if text is not None:
        file.write_text(text)

    process = command("-c", "broker.conf", "--set", "aclEnable=true", "--set", f"aclFile={file}")
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 78
    last = errors.splitlines()[-1]
    assert last.startswith("mqbroker: ") and str(file) in last and "marked" not in errors


@pytest.mark.processes
def test_known_java_keys_start_without_a_warning(tmp_path: Path, command: Callable[..., subprocess.Popen[str]]) -> None:
    with (tmp_path / "broker.conf").open("a") as conf:
        conf.write("sendMessageThreadPoolNums=16\nuseEpollNativeSelector=true\ntransientStorePoolEnable=false\n")
    _, errors = command("-c", "broker.conf", "-p", "-n", "127.0.0.1:1").communicate(timeout=20)
    (only,) = errors.splitlines()
    assert "noSuchKey" in only


@pytest.mark.processes
def test_a_promise_that_cannot_be_kept_is_warned_about(
    tmp_path: Path, command: Callable[..., subprocess.Popen[str]]
) -> None:
    with (tmp_path / "broker.conf").open("a") as conf:
        conf.write("enableDLegerCommitLog=true\n")
        conf.write("disableConsumeIfConsumerReadSlowly=true\nenableConsumeQueueExt=true\n")
    _, errors = command("-c", "broker.conf", "-p").communicate(timeout=20)
    for words in (
        "enableDLegerCommitLog=true has no effect",
        "disableConsumeIfConsumerReadSlowly=true has no effect",
        "enableConsumeQueueExt=true has no effect",
    ):
        assert words in errors


def test_a_broker_listens_on_all_addresses_of_both_kinds_by_two_colons_and_by_name() -> None:
    for host, peers in (("::", ("127.0.0.1", "::1")), ("localhost", ("127.0.0.1",))):
        ports = take_ports(host, 0)
        for each in ports:
            each.listen()
        for peer in peers:
            socket.create_connection((peer, ports.numbers[0])).close()
        ports.close()
