"""Configurations that cannot work, or look wrong: each is refused or warned about in one sentence with its place.

Read as ``mqbroker --check -c broker.conf`` reads them; the first line of each file is line 3 of broker.conf.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from eruca.broker.config import BrokerConfig
from eruca.broker.services.checks import fits, works_here
from eruca.broker.store.marks import Lock
from eruca.remoting.command_line import command_line
from eruca.remoting.log_files import LogFile, paths_of
from eruca.remoting.log_settings import LogSettings
from eruca.remoting.settings import BadSetting
from eruca.remoting.sources import Start
from tests.support.etcd import EtcdCluster, needs_etcd
from tests.support.ports import free_broker_port, free_port

FOLDER = "storePathRootDir=%s\n"


def check(
    folder: Path, content: str | bytes, *arguments: str, environment: dict[str, str] | None = None
) -> Start[BrokerConfig]:
    file = folder / "broker.conf"
    data = content.encode() if isinstance(content, str) else content
    head = f"namesrvAddr=127.0.0.1:9876\nstorePathRootDir={folder}/store\nlistenPort=0\n".encode()
    file.write_bytes(head + data)
    flags = ["--check", "-c", str(file), *arguments]
    return command_line(BrokerConfig, "mqbroker", flags, environment or {}, fits=fits, works_here=works_here)


def faults_of(
    folder: Path, content: str | bytes, *arguments: str, environment: dict[str, str] | None = None
) -> tuple[str, ...]:
    with pytest.raises(BadSetting) as refused:
        check(folder, content, *arguments, environment=environment)
    return tuple(fault.replace(f"{folder}/", "") for fault in refused.value.faults)


def test_a_file_without_a_fault_is_one(tmp_path: Path) -> None:
    start = check(tmp_path, "brokerName=b\n")

    assert (start.warnings, start.shown) == ([], "mqbroker: the configuration has no fault\n")
    assert not (tmp_path / "store").exists(), "a check leaves nothing behind"


HOST = "write the address or name of this machine that others connect to, without a port"
NAME = "write a name of letters, digits, _, -, % and |, 127 characters at most"
LIST = "write host:port, several joined by ;"
PATH = "write an absolute path, without ~ and ${...}"
ROOM = "must leave room for the ports 2 below and 1 above it"

ETCD = "write the members of etcd, like http://10.0.0.1:2379;http://10.0.0.2:2379"

WRONG = [
    # etcd
    ("controllerAddr=10.0.0.1:9878", f"controllerAddr: '10.0.0.1:9878' is not allowed; {ETCD}"),
    ("controllerAddr=http://a:1;", f"controllerAddr: 'http://a:1;' is not allowed; {ETCD}"),
    ("minInSyncReplicas=0", "minInSyncReplicas: '0' is not allowed; write a whole number from 1 to 100"),
    (
        "haMaxTimeSlaveNotCatchup=999",
        "haMaxTimeSlaveNotCatchup: '999' is not allowed; write a whole number from 1000 to 86400000",
    ),
    ("brokerId=1\nenableControllerMode=true", "enableControllerMode needs an etcd: name its members in controllerAddr"),
    # numbers, words
    ("listenPort=x", "listenPort: 'x' is not allowed; write a whole number from 0 to 65535"),
    ("listenPort=", "listenPort: '' is not allowed; write a whole number from 0 to 65535"),
    ("listenPort=70000", "listenPort: '70000' is not allowed; write a whole number from 0 to 65535"),
    ("listenPort=-1", "listenPort: '-1' is not allowed"),
    ("listenPort=10911 # clients", "listenPort: '10911 # clients' is not allowed"),
    ("listenPort=1", f"listenPort 1 {ROOM}"),
    ("listenPort=2", f"listenPort 2 {ROOM}"),
    ("listenPort=65535", f"listenPort 65535 {ROOM}"),
    ("brokerId=one", "brokerId: 'one' is not allowed; write a whole number from 0 to 2147483647"),
    (f"haSlaveFallbehindMax={10**20}", f"haSlaveFallbehindMax: '{10**20}' is not allowed; write a number of 64 bits"),
    ("brokerRole=MASTER", "brokerRole: 'MASTER' is not allowed; write one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
    ("brokerRole=SLAVE\nbrokerId=0", "brokerId must be above 0 on a slave"),
    ("flushDiskType=sync_flush", "flushDiskType: 'sync_flush' is not allowed; write one of ASYNC_FLUSH, SYNC_FLUSH"),
    ("autoCreateTopicEnable=yes", "autoCreateTopicEnable: 'yes' is not allowed; write true or false"),
    ("autoCreateTopicEnable=1", "autoCreateTopicEnable: '1' is not allowed; write true or false"),
    ("brokerPermission=8", "brokerPermission: '8' is not allowed; write a whole number from 0 to 7"),
    ("defaultTopicQueueNums=0", "defaultTopicQueueNums: '0' is not allowed"),
    ("slaveTimeout=9999999999999", "slaveTimeout: '9999999999999' is not allowed; write a whole number from 1 to"),
    ("haSendHeartbeatInterval=0", "haSendHeartbeatInterval: '0' is not allowed; write a whole number from 10 to"),
    ("haTransferBatchSize=0", "haTransferBatchSize: '0' is not allowed; write a whole number from 256 to"),
    ("fileReservedTime=72h", "fileReservedTime: '72h' is not allowed"),
    ("deleteWhen=25", "deleteWhen: '25' is not allowed; write hours from 00 to 23 joined by ;"),
    ("deleteWhen=04:00", "deleteWhen: '04:00' is not allowed"),
    ("diskMaxUsedSpaceRatio=0.75", "diskMaxUsedSpaceRatio: '0.75' is not allowed; write a whole number from 10 to 95"),
    ("diskSpaceWarningLevelRatio=90", "diskSpaceWarningLevelRatio: '90' is not allowed; write a number from 0 to 1"),
    ("maxMessageSize=4M", "maxMessageSize: '4M' is not allowed; write a whole number from 1 to"),
    ("maxMessageSize=1_000", "maxMessageSize: '1_000' is not allowed"),
    ("mappedFileSizeCommitLog=4294967296", "mappedFileSizeCommitLog: '4294967296' is not allowed"),
    ("messageDelayLevel=1s,5s", "messageDelayLevel: '1s,5s' is not allowed; write numbers with s, m, h or d"),
    ("messageDelayLevel=", "messageDelayLevel: '' is not allowed"),
    # names
    ("brokerName=../../x", f"brokerName: '../../x' is not allowed; {NAME}"),
    ("brokerName=broker a", f"brokerName: 'broker a' is not allowed; {NAME}"),
    ("brokerName=broker-a\t", f"brokerName: 'broker-a\\t' is not allowed; {NAME}"),
    ("brokerClusterName=east\\nwest", f"brokerClusterName: 'east\\nwest' is not allowed; {NAME}"),
    ("brokerClusterName=", f"brokerClusterName: '' is not allowed; {NAME}"),
    ("brokerClusterName=Köln", f"brokerClusterName: 'Köln' is not allowed; {NAME}"),
    ("msgTraceTopicName=a/b", f"msgTraceTopicName: 'a/b' is not allowed; {NAME}"),
    ("regionId=a\\u0001b", "regionId: 'a\\x01b' is not allowed; write text"),
    # addresses
    ("brokerIP1=0.0.0.0", f"brokerIP1: '0.0.0.0' is not allowed; {HOST}"),
    ("brokerIP1=::", f"brokerIP1: '::' is not allowed; {HOST}"),
    ("brokerIP1=a b", f"brokerIP1: 'a b' is not allowed; {HOST}"),
    ("brokerIP1=127.0.0.1:10911", f"brokerIP1: '127.0.0.1:10911' is not allowed; {HOST}"),
    ("brokerIP1=10.0.0.256", f"brokerIP1: '10.0.0.256' is not allowed; {HOST}"),
    ("brokerIP1=http://broker", f"brokerIP1: 'http://broker' is not allowed; {HOST}"),
    ("brokerIP1=224.0.0.1", f"brokerIP1: '224.0.0.1' is not allowed; {HOST}"),
    ("brokerIP1=${HOST}", f"brokerIP1: '${{HOST}}' is not allowed; {HOST}"),
    ("brokerIP2=[::1]", f"brokerIP2: '[::1]' is not allowed; {HOST}"),
    ("bindAddress=127.0.0.1:10911", "bindAddress: '127.0.0.1:10911' is not allowed; write an address of this machine"),
    ("bindAddress=", "bindAddress: '' is not allowed; write an address of this machine, 0.0.0.0 or ::"),
    ("bindAddress=*", "bindAddress: '*' is not allowed"),
    ("haMasterAddress=nonsense", "haMasterAddress: 'nonsense' is not allowed; write host:port"),
    ("haMasterAddress=10.0.0.1:0", "haMasterAddress: '10.0.0.1:0' is not allowed; write host:port"),
    # paths
    ("storePathCommitLog=commitlog", f"storePathCommitLog: 'commitlog' is not allowed; {PATH}"),
    ("storePathCommitLog=~/log", f"storePathCommitLog: '~/log' is not allowed; {PATH}"),
    ("storePathCommitLog=/data/${user}/log", f"storePathCommitLog: '/data/${{user}}/log' is not allowed; {PATH}"),
    ("storePathCommitLog=/a,/b", "storePathCommitLog names several directories"),
    ("storePathCommitLog=/proc/none/log", "storePathCommitLog does not work: /proc"),
    ("storePathCommitLog=/dev/null/log", "storePathCommitLog names /dev/null/log, and /dev/null is no folder"),
    ("aclEnable=true\naclFile=/none/acl.yml", "aclFile does not work: "),
    ("aclEnable=true", "aclEnable needs a file of accounts: "),
    ("logFile=/proc/none", "logFile does not work: /proc"),
    ("logFile=/dev/null/broker.log", "logFile names /dev/null, and /dev/null is no folder"),
    ("metricsPort=12000\nlistenPort=12002", "metricsPort 12000 is listenPort - 2, too: set another one"),
    ("metricsBind=*", "metricsBind: '*' is not allowed; write an address of this machine"),
    ("storePathCommitLog=%d/log", "storePathCommitLog: '%d/log' names a credential of systemd, and there are none"),
    # values together
    (
        "mappedFileSizeCommitLog=65536\nmaxMessageSize=100000",
        "maxMessageSize does not fit: a file of the log (mappedFileSizeCommitLog) has 65536 bytes",
    ),
    ("maxIndexNum=100000000\nmaxHashSlotNum=500000000", "maxIndexNum and maxHashSlotNum make an index file of"),
    (
        "diskMaxUsedSpaceRatio=90\ndiskSpaceCleanForciblyRatio=0.8",
        "diskMaxUsedSpaceRatio is out of order: diskMaxUsedSpaceRatio (0.9) must not be above "
        "diskSpaceCleanForciblyRatio (0.8)",
    ),
    (
        "diskSpaceCleanForciblyRatio=0.95\ndiskSpaceWarningLevelRatio=0.9",
        "diskSpaceCleanForciblyRatio is out of order",
    ),
    (
        "haSendHeartbeatInterval=20000\nhaHousekeepingInterval=5000",
        "haSendHeartbeatInterval does not fit: a slave gives up a master after haHousekeepingInterval (5000 ms)",
    ),
    ("bindAddress=192.0.2.1", "bindAddress does not work, the broker cannot listen on 192.0.2.1:0 (listenPort)"),
    ("bindAddress=no.such.host.invalid", "bindAddress does not work, the broker cannot listen on no.such.host.invalid"),
]
"""Lines that are refused, the first or the only one by the sentence."""


@pytest.mark.parametrize(("lines", "sentence"), WRONG, ids=[lines.replace("\n", " ") for lines, _ in WRONG])
def test_a_wrong_value_is_refused_in_one_sentence_with_its_line(tmp_path: Path, lines: str, sentence: str) -> None:
    (fault,) = faults_of(tmp_path, f"{lines}\n")

    last = 3 + len(lines.splitlines())
    assert fault.startswith((f"broker.conf:4: {sentence}", f"broker.conf:{last}: {sentence}"))


ADDRESSES = [
    "foo",
    "127.0.0.1",
    "127.0.0.1:99999",
    "10.0.0.1:9876,10.0.0.2:9876",
    ":9876",
    "0.0.0.0:9876",
    ";",
    "a b:1",
]


@pytest.mark.parametrize("text", ADDRESSES)
def test_nameservers_that_are_no_addresses_are_refused_wherever_they_stand(tmp_path: Path, text: str) -> None:
    refused = f"namesrvAddr: {text!r} is not allowed; {LIST}"

    assert faults_of(tmp_path, "", "-n", text) == (f"-n: {refused}",)
    assert faults_of(tmp_path, "", environment={"NAMESRV_ADDR": text}) == (f"NAMESRV_ADDR: {refused}",)
    assert faults_of(tmp_path, "", environment={"ERUCA_NAMESRV_ADDR": text}) == (f"ERUCA_NAMESRV_ADDR: {refused}",)
    assert faults_of(tmp_path, "", "--set", f"namesrvAddr={text}") == (f"--set: {refused}",)


@pytest.mark.parametrize("path", ["", "store", "./store", "~/store", "/home/~rmq/store", "${user.home}/store", "/a "])
def test_a_root_folder_that_could_be_anywhere_is_refused(tmp_path: Path, path: str) -> None:
    refused = faults_of(tmp_path, "", "--set", f"storePathRootDir={path}")

    assert refused == (f"--set: storePathRootDir: {path!r} is not allowed; {PATH}",)


FILES = [
    ("brokerName=b\n".encode("utf-16"), "broker.conf:4: this is no text in UTF-8 (it is UTF-16, or binary)"),
    ("brokerName=b\n".encode("utf-16-le"), "broker.conf:4: this is no text in UTF-8"),
    (b"brokerName=b\n\0\0\n", "broker.conf:5: this is no text in UTF-8"),
    (b"brokerName=\\u12\n", "broker.conf: line 4: \\u must be followed by four hexadecimal digits"),
    (b"#" * (1 << 20), "cannot read broker.conf: it has more than 1048576 bytes"),
]


@pytest.mark.parametrize(("content", "sentence"), FILES, ids=["BOM", "UTF-16", "NUL", "escape", "large"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (fault,) = faults_of(tmp_path, content)

    assert fault.startswith(sentence)


@pytest.mark.parametrize("content", ["{\n}\n", "<broker>\n<port>1</port>\n", "[broker]\nport: 1\n", "a=1\nb=2\n"])
def test_a_file_of_which_nothing_is_known_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "other.conf"
    file.write_text(content)

    with pytest.raises(BadSetting, match=r"other\.conf:1: none of the \d keys in this file is known, the first is"):
        command_line(BrokerConfig, "mqbroker", ["-c", str(file)], {})


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for name, why in ((str(tmp_path), "Is a directory"), (f"{tmp_path}/none", "No such file"), ("", "Is a directory")):
        with pytest.raises(BadSetting, match=f"cannot read {name}: {why}"):
            command_line(BrokerConfig, "mqbroker", ["-c", name], {})


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbfbrokerName=b\r\n", b"\tbrokerName\t=\tb\r\n", b"# caf\xe9\nbrokerName=b"]
)
def test_what_editors_do_to_a_file_does_no_harm(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(content)

    start = command_line(BrokerConfig, "mqbroker", ["-c", str(file)], {})

    assert (start.config.broker_name, start.warnings) == ("b", [])


DOUBTFUL = [
    ("brokerNmae=b", "unknown key brokerNmae (did you mean brokerName?); it is ignored"),
    (
        "fileReservedTime=1\nfileReservedTime=2",
        "fileReservedTime is set again; the value of broker.conf:4 does not count",
    ),
    ("regionId=west ", "the value of regionId begins or ends with a blank, which is part of it: 'west '"),
    ("brokerId=3", "brokerId 3 does not count: a master has 0; set brokerId=0, or brokerRole=SLAVE for a slave"),
    ("brokerPermission=4", "brokerPermission 4 lets nobody write: 6 is for both"),
    ("brokerPermission=2", "brokerPermission 2 lets nobody read: 6 is for both"),
    ("brokerPermission=1", "brokerPermission 1 lets nobody write or read: 6 is for both"),
    ("haMasterAddress=127.0.0.1:10912", "haMasterAddress counts on a slave only"),
    ("fileReservedTime=0", "fileReservedTime is 0: each file is deleted"),
    ("channelExpiredTimeout=1000", "channelExpiredTimeout is shorter than the 30000 ms between two heartbeats"),
    ("registerNameServerPeriod=1", "registerNameServerPeriod is taken as 10000"),
    ("diskMaxUsedSpaceRatio=95", "diskMaxUsedSpaceRatio is out of order"),
    ("mappedFileSizeCommitLog=65536", "mappedFileSizeCommitLog does not fit"),
    ("haHousekeepingInterval=1000", "haHousekeepingInterval does not fit"),
    ("enableDLegerCommitLog=true", "enableDLegerCommitLog=true has no effect: there is no DLedger here"),
    ("brokerIP1=no.such.host.invalid", "brokerIP1 names no.such.host.invalid, which this machine cannot resolve"),
]


@pytest.mark.parametrize(("lines", "sentence"), DOUBTFUL, ids=[lines.replace("\n", " ") for lines, _ in DOUBTFUL])
def test_a_doubtful_value_is_a_warning_with_its_line(tmp_path: Path, lines: str, sentence: str) -> None:
    (warning,) = check(tmp_path, f"{lines}\n").warnings

    place, _, said = warning.replace(f"{tmp_path}/", "").partition(": ")
    assert place in ("broker.conf:4", "broker.conf:5") and said.startswith(sentence)


def test_every_fault_is_said_at_once(tmp_path: Path) -> None:
    found = faults_of(
        tmp_path,
        "brokerName=a b\nbrokerIP1=0.0.0.0\n",
        "-n",
        "foo",
        "--set",
        "bindAddress=192.0.2.1",
        environment={"ERUCA_FILE_RESERVED_TIME": "x"},
    )

    assert [fault.partition(": ")[0] for fault in found] == [
        "broker.conf:4",
        "broker.conf:5",
        "ERUCA_FILE_RESERVED_TIME",
        "-n",
        "--set",
    ]


@pytest.mark.parametrize(
    ("step", "what"),
    [(0, "listenPort"), (-2, "the VIP port, listenPort - 2"), (1, "the HA port, listenPort + 1")],
)
def test_a_port_that_is_taken_is_named_with_what_it_is_for(tmp_path: Path, step: int, what: str) -> None:
    port = free_broker_port()
    with socket.create_server(("127.0.0.1", port + step)):
        (fault,) = faults_of(tmp_path, f"listenPort={port}\nbindAddress=127.0.0.1\n")

    where = f"cannot listen on 127.0.0.1:{port + step} ({what}): Address already in use; stop what holds it (ss -tanp "
    assert f"listenPort does not work, the broker {where}" in fault and fault.endswith("or set another listenPort")


def test_a_file_in_the_place_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")

    for arguments in (("--check",), ()):
        with pytest.raises(BadSetting, match=r"--set: storePathRootDir names .*/store is no folder: name a"):
            command_line(
                BrokerConfig, "mqbroker", [*arguments, "--set", f"storePathRootDir={tmp_path}/store"], {}, fits=fits
            )


def test_a_metrics_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (fault,) = faults_of(tmp_path, f"metricsPort={port}\n")

    assert fault.startswith(f"broker.conf:4: metricsPort does not work, the daemon cannot listen on 127.0.0.1:{port}")


@pytest.mark.parametrize("name", ["log", "log/broker.log"], ids=["a folder", "a file"])
def test_a_log_that_another_process_writes_is_refused_and_one_that_is_not_there_is_not_made(
    tmp_path: Path, name: str
) -> None:
    settings = LogSettings(log_file=f"{tmp_path}/{name}")
    assert check(tmp_path, f"logFile={tmp_path}/{name}\n").warnings == [] and not (tmp_path / "log").exists()
    (tmp_path / "log").mkdir()
    held = LogFile(paths_of(settings, "broker")[""], 0, 0, lambda path, fault: None)
    files = sorted((tmp_path / "log").iterdir())
    try:
        (fault,) = faults_of(tmp_path, f"logFile={tmp_path}/{name}\n")
        assert fault == (
            "broker.conf:4: logFile does not work: log/broker.log cannot be written (another process writes it); "
            "name a folder of this daemon's own, which its user may write"
        )
        assert sorted((tmp_path / "log").iterdir()) == files == [tmp_path / "log" / "broker.log"]
    finally:
        held.close()
    assert check(tmp_path, f"logFile={tmp_path}/{name}\n").warnings == []


def test_the_log_of_a_broker_that_runs_with_this_store_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    lock = Lock(tmp_path / "store")
    held = LogFile(tmp_path / "broker.log", 0, 0, lambda path, fault: None)
    try:
        (warning,) = check(tmp_path, f"logFile={tmp_path}/broker.log\n").warnings
        assert "the ports and the files of the log, which it may hold, were not tried" in warning
    finally:
        held.close()
        lock.release()


def test_a_user_without_a_home_needs_a_folder() -> None:
    config = BrokerConfig()
    config.store.store_path_root_dir = "~/store"

    sentences = [each.sentence for each in fits(config, ()) if each.is_fault]
    assert sentences == ["has no default, as this user has no home directory: set it to an absolute path"]


@needs_etcd
@pytest.mark.processes
def test_with_controller_mode_a_check_looks_which_members_of_etcd_answer(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", 1) as etcd:
        (url,), closed = etcd.urls, f"http://127.0.0.1:{free_port()}"
        settings = f"brokerId=1\nbrokerRole=SYNC_MASTER\nenableControllerMode=true\ncontrollerAddr={url}"

        (fault,) = faults_of(tmp_path, f"brokerRole=SYNC_MASTER\nenableControllerMode=true\ncontrollerAddr={url}\n")
        assert "brokerId must be above 0 with enableControllerMode, and each broker of the name has its own" in fault
        assert check(tmp_path, f"{settings}\n").warnings == []
        loses = f"{settings}\nbrokerRole=ASYNC_MASTER\nallAckInSyncStateSet=false\n"
        again, of_role, of_set = check(tmp_path, loses).warnings
        assert "brokerRole is set again" in again
        assert "brokerRole is ASYNC_MASTER: a failover may lose messages that were acknowledged" in of_role
        assert "allAckInSyncStateSet is false: a failover may lose messages that were acknowledged" in of_set
        (fault,) = faults_of(tmp_path, f"{settings}\nallAckInSyncStateSet=false\nminInSyncReplicas=2\n")
        assert "inSyncReplicas must not be below minInSyncReplicas" in fault
        (warning,) = check(tmp_path, f"{settings};{closed}\n").warnings
        assert f"controllerAddr names {closed}, which does not answer" in warning
    (fault,) = faults_of(tmp_path, f"{settings}\n")
    assert f"controllerAddr names {url}, which does not answer: etcd does not answer" in fault
