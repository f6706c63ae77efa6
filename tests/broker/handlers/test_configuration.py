"""The configuration over the wire: 26 shows it, 25 changes what may change while the broker runs."""

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from eruca.broker.config import BrokerConfig
from eruca.protocol import properties
from eruca.remoting.settings import BadSetting, Setting, settings_of
from eruca.remoting.sources import read
from tests.support.desk import Desk
from tests.support.pairs import eventually

CHANGE, SHOW = 25, 26
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]

EXPORTED = """
brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums flushDiskType maxMessageSize
messageDelayLevel msgTraceTopicName slaveReadEnable traceOn traceTopicEnable useTLS autoCreateTopicEnable
autoCreateSubscriptionGroup
"""


async def shown(desk: Desk) -> dict[str, str]:
    answer = await desk.ask(SHOW)
    assert answer.code == 0
    return properties.parse(answer.body.decode())


def with_file(text: str) -> Callable[[Desk], None]:
    def prepare(desk: Desk) -> None:
        desk.file = desk.folder / "broker.conf"
        desk.file.write_text(text)

    return prepare


# ---------------------------------------------------------------------- 26


async def test_every_setting_is_shown_and_the_exported_ones_are_among_them(desk: Desk) -> None:
    table = await shown(desk)
    assert set(EXPORTED.split()) <= set(table)
    assert (table["brokerName"], table["brokerClusterName"], table["brokerRole"]) == ("broker-a", "Lab", "ASYNC_MASTER")
    assert (table["fileReservedTime"], table["traceOn"]) == ("72", "true")
    assert "haMasterAddress" not in table, "a setting without a value is left out"


async def test_the_version_rises_with_each_change(desk: Desk) -> None:
    first = json.loads((await desk.ask(SHOW)).fields["version"])
    assert first["counter"] == 0
    await desk.ask(CHANGE, body=b"traceOn=false")
    assert json.loads((await desk.ask(SHOW)).fields["version"]) == {"counter": 1, "timestamp": desk.now}


async def test_unknown_keys_of_the_file_are_named_without_their_values(prepared: Prepared) -> None:
    """A broker cannot know which of them is a secret."""
    keys = ("myOwnKey", "tls.server.keyPassphrase", "accessKey_Secret", "sslKeyPass", "accessKey", "passwd")
    desk = await prepared(with_file("".join(f"{key}=hush\n" for key in keys)))
    answer = await desk.ask(SHOW)
    table = properties.parse(answer.body.decode())
    assert {key: table.get(key) for key in keys} == dict.fromkeys(keys, "")
    assert b"hush" not in answer.body


async def test_ports_are_shown_as_they_are_bound(desk: Desk) -> None:
    assert desk.config.server.listen_port == 0, "any free port was asked for"
    table = await shown(desk)
    assert table["listenPort"] == desk.broker.address.rpartition(":")[2]
    assert table["haListenPort"] == desk.broker.ha_address.rpartition(":")[2]


# ---------------------------------------------------------------------- 25


def live_numbers() -> dict[str, Setting]:
    """The numbers that may change at run time."""
    known = settings_of(BrokerConfig)
    return {key: item for key, item in known.items() if item.rules.live and item.kind in (int, float)}


def test_every_number_that_may_change_at_run_time_has_bounds() -> None:
    open_ones = [key for key, item in live_numbers().items() if None in (item.rules.at_least, item.rules.at_most)]
    assert len(live_numbers()) > 20 and open_ones == []


@pytest.mark.parametrize("end", ["at_least", "at_most"])
async def test_at_the_bounds_of_every_number_a_broker_serves_on(desk: Desk, end: str) -> None:
    """Whether it takes sends and serves pulls is up to the operator; nothing may fail with another error."""
    desk.topic("T")
    wanted = {key: getattr(item.rules, end) for key, item in live_numbers().items()}
    text = "".join(f"{key}={value}\n" for key, value in wanted.items())
    assert (await desk.ask(CHANGE, body=text.encode())).code == 0
    fields = {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": desk.now, "h": 0}
    answers = [await desk.ask(310, fields, b"x"), await desk.ask(11, PULL), await desk.ask(28), await desk.ask(SHOW)]
    assert [answer.code for answer in answers[2:]] == [0, 0]
    assert not [answer.remark for answer in answers if "Error" in (answer.remark or "")]


async def test_a_time_that_no_calendar_has_is_refused(desk: Desk) -> None:
    """Each send failed with a traceback once."""
    desk.topic("T")
    answer = await desk.ask(CHANGE, body=b"startAcceptSendRequestTimeStamp=9223372036854775807")
    assert (answer.code, answer.remark) == (
        1,
        "startAcceptSendRequestTimeStamp: '9223372036854775807' is not allowed; write a whole number from 0 to "
        "253370764800000",
    )
    assert (await desk.ask(CHANGE, body=b"startAcceptSendRequestTimeStamp=253370764800000")).code == 0
    fields = {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": desk.now, "h": 0}
    answer = await desk.ask(310, fields, b"x")
    assert (answer.code, (answer.remark or "")[:37]) == (1, "broker unable to service, until 9999-")


@pytest.mark.parametrize(
    "key",
    [
        "haSendHeartbeatInterval",
        "haHousekeepingInterval",
        "haTransferBatchSize",
        "haSlaveFallbehindMax",
        "slaveTimeout",
    ],
)
@pytest.mark.parametrize("value", ["0", "-1"])
def test_numbers_of_replication_are_above_0(key: str, value: str) -> None:
    """A heartbeat every 0 ms, or frames of 0 bytes, took all of a core once there was a slave."""
    with pytest.raises(BadSetting, match=f"{key}: '{value}' is not allowed; write a whole number(,| from)"):
        read(BrokerConfig, text=f"{key}={value}\n")


async def test_a_change_holds_at_once(desk: Desk) -> None:
    answer = await desk.ask(CHANGE, body=b"autoCreateTopicEnable=false\nfileReservedTime=48\n")
    assert answer.code == 0
    table = await shown(desk)
    assert (table["autoCreateTopicEnable"], table["fileReservedTime"]) == ("false", "48")
    assert desk.broker.config.auto_create_topic_enable is False
    assert desk.broker.store.config.file_reserved_time == 48


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        ("fileReservedTime=soon", "fileReservedTime: 'soon' is not allowed; write a whole number from 0 to 8760000"),
        ("brokerPermission=9", "brokerPermission: '9' is not allowed; write a whole number from 0 to 7"),
        ("deleteWhen=24", "deleteWhen: '24' is not allowed; write hours from 00 to 23 joined by ;"),
        ("traceOn=maybe", "traceOn: 'maybe' is not allowed; write true or false"),
        ("fileReservedTim=48", "unknown key fileReservedTim (did you mean fileReservedTime?)"),
        ("brokerName=b", "brokerName cannot be changed while the daemon runs; set it in the configuration file"),
        ("listenPort=1", "listenPort cannot be changed while the daemon runs"),
        ("namesrvAddr=evil:9876", "namesrvAddr cannot be changed while the daemon runs"),
        ("x=\\u12", "the settings cannot be read: line 1"),
    ],
)
async def test_what_cannot_be_taken_is_refused_and_nothing_is_changed(desk: Desk, body: str, remark: str) -> None:
    before = await shown(desk)
    answer = await desk.ask(CHANGE, body=f"traceOn=false\n{body}".encode() if "\\u" not in body else body.encode())
    assert answer.code == 1
    assert remark in (answer.remark or "")
    assert await shown(desk) == before


@pytest.mark.parametrize(
    "body",
    ["storePathRootDir=/etc", "storePathCommitLog=/tmp/x", "rocketmqHome=/tmp", "storePathDLedgerCommitLog=/x"],
)
async def test_no_path_is_changed_from_remote(desk: Desk, body: str) -> None:
    before = await shown(desk)
    answer = await desk.ask(CHANGE, body=f"traceOn=false\n{body}".encode())
    assert answer.code == 16
    assert (answer.remark or "").startswith("Can not update config in black list.")
    assert await shown(desk) == before


async def test_a_change_is_kept_in_the_file_and_the_rest_of_it_stays(prepared: Prepared) -> None:
    desk = await prepared(with_file("# my broker\nfileReservedTime = 72\n\nmyOwnKey=7  # not a comment\n"))
    file = desk.folder / "broker.conf"
    file.chmod(0o640)
    assert (await desk.ask(CHANGE, body=b"fileReservedTime=48\ntraceOn=false")).code == 0
    assert file.read_text() == ("# my broker\nfileReservedTime=48\n\nmyOwnKey=7  # not a comment\ntraceOn=false\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in desk.folder.iterdir()) == ["broker.conf", "store"]


async def test_a_file_behind_a_link_is_the_one_that_is_written(prepared: Prepared) -> None:
    def linked(desk: Desk) -> None:
        (desk.folder / "real.conf").write_text("traceOn=true\n")
        desk.file = desk.folder / "broker.conf"
        desk.file.symlink_to("real.conf")

    desk = await prepared(linked)
    assert (await desk.ask(CHANGE, body=b"traceOn=false")).code == 0
    assert (desk.folder / "broker.conf").is_symlink()
    assert (desk.folder / "real.conf").read_text() == "traceOn=false\n"


async def test_two_operators_at_once_both_have_their_change_kept(prepared: Prepared) -> None:
    """While the first change is being written, the second waits: it would amend the file as it was before the first.

    A pipe in place of the file: who reads it waits for the test.
    """
    desk = await prepared(with_file("traceOn=true\n"))
    file = desk.folder / "broker.conf"
    file.unlink()
    os.mkfifo(file)
    first = asyncio.ensure_future(desk.ask(CHANGE, body=b"fileReservedTime=48", within=20))
    second = asyncio.ensure_future((await desk.peer()).ask(CHANGE, body=b"traceOn=false", within=20))
    await eventually(lambda: desk.config.store.file_reserved_time == 48 and not desk.config.trace_on)
    await asyncio.to_thread(file.write_text, "traceOn=true\n")
    assert [(await each).code for each in (first, second)] == [0, 0]
    assert file.read_text() == "traceOn=false\nfileReservedTime=48\n"


async def test_a_file_that_is_gone_is_said(prepared: Prepared) -> None:
    desk = await prepared(with_file("traceOn=true\n"))
    (desk.folder / "broker.conf").unlink()
    answer = await desk.ask(CHANGE, body=b"traceOn=false")
    assert answer.code == 1
    assert (answer.remark or "").startswith("the new configuration holds until the broker stops, but cannot be written")
    assert (await shown(desk))["traceOn"] == "false"


async def test_a_latin_1_file_stays_one(prepared: Prepared) -> None:
    def latin(desk: Desk) -> None:
        desk.file = desk.folder / "broker.conf"
        desk.file.write_bytes(b"# Stra\xdfe\ntraceOn=true\n")

    desk = await prepared(latin)
    assert (await desk.ask(CHANGE, body=b"traceOn=false")).code == 0
    assert (desk.folder / "broker.conf").read_bytes() == b"# Stra\xdfe\ntraceOn=false\n"


async def test_an_empty_change_changes_nothing(prepared: Prepared) -> None:
    desk = await prepared(with_file("traceOn=true\n"))
    assert (await desk.ask(CHANGE)).code == 0
    assert desk.broker.configuration.version.counter == 0
    assert (desk.folder / "broker.conf").read_text() == "traceOn=true\n"


PULL = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 1,
}


async def test_taking_the_brokers_permission_is_felt_by_the_next_pull(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0)
    assert (await desk.ask(11, PULL)).code == 0
    assert (await desk.ask(CHANGE, body=b"brokerPermission=2")).code == 0
    assert (await desk.ask(11, PULL)).code == 16


async def test_a_smaller_reply_is_felt_by_the_next_pull(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, 1, 2)
    assert (await desk.ask(11, PULL)).fields["nextBeginOffset"] == "3"
    assert (await desk.ask(CHANGE, body=b"maxTransferCountOnMessageInMemory=1")).code == 0
    assert (await desk.ask(11, PULL)).fields["nextBeginOffset"] == "1"


async def test_taking_automatic_topics_is_felt_by_the_next_send(desk: Desk) -> None:
    def message(topic: str) -> dict[str, object]:
        return {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": desk.now, "h": 0}

    assert (await desk.ask(310, message("First"), b"x")).code == 0
    assert (await desk.ask(CHANGE, body=b"autoCreateTopicEnable=false")).code == 0
    assert (await desk.ask(310, message("Second"), b"x")).code == 17
    assert (await desk.ask(310, message("First"), b"x")).code == 0
    assert (await desk.ask(CHANGE, body=b"autoCreateTopicEnable=true")).code == 0
    assert (await desk.ask(310, message("Second"), b"x")).code == 0


@pytest.mark.parametrize("hours", ["04", "4", "04;16", "00;23;", " 5 ; 6 "])
async def test_hours_of_deletion_may_change(desk: Desk, hours: str) -> None:
    assert (await desk.ask(CHANGE, body=f"deleteWhen={hours}".encode())).code == 0
    assert desk.broker.store.config.delete_when == hours.lstrip()


async def test_a_change_that_no_file_keeps_is_answered_with_a_sentence(desk: Desk, tmp_path: Path) -> None:
    answer = await desk.ask(CHANGE, body=b"traceOn=false")
    assert (answer.code, answer.remark) == (
        0,
        "the change lasts until the broker stops: it has no configuration file (-c) that could keep it",
    )

    desk.broker.configuration.file = tmp_path / "broker.conf"
    desk.broker.configuration.file.write_text("")
    answer = await desk.ask(CHANGE, body=b"traceOn=false")
    assert (answer.code, answer.remark) == (0, None)


async def test_a_change_that_does_not_fit_what_was_given_is_refused(desk: Desk) -> None:
    """Else the next start would refuse the file in which it was saved."""
    desk.broker.configuration.given.update(["diskSpaceCleanForciblyRatio"])

    answer = await desk.ask(CHANGE, body=b"diskMaxUsedSpaceRatio=90")

    assert answer.code == 1 and "must not be above diskSpaceCleanForciblyRatio (0.85)" in (answer.remark or "")
    assert desk.broker.config.store.disk_max_used_space_ratio == 75
