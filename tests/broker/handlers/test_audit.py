"""The audit log of a broker: each change that somebody asks for is one line, also if it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eruca.broker.handlers import TABLES
from eruca.protocol.codes import RequestCode
from eruca.protocol.message import offset_message_id
from tests.support.audits import Audited
from tests.support.desk import Desk

BY_CLIENTS = {10, 11, 15, 34, 35, 36, 37, 41, 42, 310, 320, 324, 325, 361}
"""Requests that change something, many times a second, in the course of sending and consuming."""


class Asked(NamedTuple):
    """A request that is served, and one of the same code that is refused; None where there is no such one."""

    fields: dict[str, Any] | None
    refused: dict[str, Any] | None
    target: str
    body: bytes = b""
    refused_body: bytes = b""


TOPIC = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102"}
ASKED = {
    50: Asked(None, {"accessKey": "somebody", "secretKey": "its-secret"}, "account somebody"),
    51: Asked(None, {"accessKey": "somebody"}, "account somebody"),
    53: Asked(None, {"globalWhiteAddrs": "10.0.0.*"}, "global white addresses"),
    17: Asked({**TOPIC, "topic": "Fresh"}, {**TOPIC, "topic": "a b"}, "topic Fresh"),
    25: Asked({}, {}, "settings brokerPermission", b"brokerPermission=4", b"listenPort=1"),
    200: Asked({}, {}, "group fresh", b'{"groupName":"fresh"}', b"{"),
    207: Asked({"groupName": "fresh"}, {}, "group fresh"),
    215: Asked({"topic": "Fresh"}, {"topic": "TBW102"}, "topic Fresh"),
    222: Asked(
        {"topic": "T", "group": "g", "timestamp": -1, "isForce": True, "queueId": 0, "offset": 2},
        {"topic": "Nowhere", "group": "g", "timestamp": -1, "isForce": True},
        "offsets of group g in topic T",
    ),
    306: Asked({}, None, "expired queues"),
    309: Asked(
        {"consumerGroup": "g", "clientId": "c", "msgId": "MSGID"},
        {"consumerGroup": "g", "clientId": "c", "msgId": "zz"},
        "consumption of message MSGID by c of group g",
    ),
    314: Asked(
        {"srcGroup": "g", "destGroup": "fresh", "topic": "T", "offline": True},
        {"srcGroup": "g", "destGroup": "a b", "topic": "T", "offline": True},
        "offsets of group fresh",
    ),
    316: Asked({}, None, "queues of topics that no longer exist"),
    323: Asked(None, {"msgId": "zz"}, "half message zz"),
    329: Asked({}, None, "expired files of the log"),
}


def test_every_request_reads_or_is_a_clients_or_is_audited() -> None:
    routes = {int(code): route for table in TABLES for code, route in table.handlers.items()}
    assert {code for code, route in routes.items() if route.changes is not None} >= set(ASKED)
    unknown = {code for code, route in routes.items() if not route.reads and route.changes is None} - BY_CLIENTS
    assert unknown == set(), "declare what it changes: @routes.on(..., changes=...)"


@pytest.mark.parametrize("code", sorted(ASKED), ids=lambda code: RequestCode(code).name)
async def test_one_line_for_each_request(desk: Desk, caplog: pytest.LogCaptureFixture, code: int) -> None:
    asked = ASKED[code]
    desk.topic("T")
    desk.store("T", 0, 0, 1, 2)
    desk.commit("g", "T", 1)
    if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        await desk.consumer("g", "T", peer=await desk.peer(answering=lambda _: (0, b"{}")))
    message = offset_message_id(desk.broker.store_host, 0)
    audited = Audited(caplog)
    if asked.fields is not None:
        fields = {name: message if value == "MSGID" else value for name, value in asked.fields.items()}
        assert (await desk.ask(code, fields, asked.body)).code == 0
        line = audited.line()
        assert line["target"] == asked.target.replace("MSGID", message)
        assert (line["request"], line["request_code"]) == (RequestCode(code).name, str(code))
        assert (line["remote"], line["account"], line["result"]) == (desk.operator.address, "none", "done")
    if asked.refused is not None:
        answer = await desk.ask(code, asked.refused, asked.refused_body)
        line = audited.line()
        assert answer.code != 0
        assert (line["request"], line["result"]) == (RequestCode(code).name, "refused")
        assert line["response_code"] == str(answer.code)


async def test_before_and_after(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited(caplog)
    await desk.ask(17, {**TOPIC, "topic": "Fresh"})
    made = audited.line()
    assert made["before"] == "nothing" and "readQueueNums=4" in made["after"]
    await desk.ask(17, {**TOPIC, "topic": "Fresh", "readQueueNums": 8})
    changed = audited.line()
    assert changed["before"] == made["after"] and "readQueueNums=8" in changed["after"]
    await desk.ask(215, {"topic": "Fresh"})
    gone = audited.line()
    assert (gone["before"], gone["after"]) == (changed["after"], "nothing")
    await desk.ask(25, {}, b"brokerPermission=4\nmaxTopicNum=7")
    settings = audited.line()
    assert settings["target"] == "settings brokerPermission, maxTopicNum"
    assert settings["before"] == "brokerPermission=6, maxTopicNum=20000"
    assert settings["after"] == "brokerPermission=4, maxTopicNum=7"


async def test_moved_offsets(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.topic("T", 40)
    desk.commit("g", "T", *[0] * 40)
    await desk.consumer("g", "T")
    audited = Audited(caplog)
    await desk.ask(222, {"topic": "T", "group": "g", "timestamp": -1, "isForce": True})
    line = audited.line()
    assert line["before"].startswith("queue 0: 0, queue 1: 0, ") and line["before"].endswith("queue 31: 0 and 8 more")
    assert line["after"].endswith("queue 31: 0 and 8 more")


async def test_an_offset_that_no_member_moves_back_is_a_line(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.topic("T")
    desk.commit("g", "T", 7)
    member = await desk.consumer("g", "T")
    audited = Audited(caplog)
    commit = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    for who, offset in ((member, 5), (desk.operator, 6), (member, 9)):
        assert (await who.ask(15, {**commit, "commitOffset": offset})).code == 0
    assert audited.lines() == []
    assert (await desk.operator.ask(15, {**commit, "commitOffset": 3})).code == 0
    line = audited.line()
    assert (line["target"], line["before"], line["after"]) == ("offset of group g in queue 0 of topic T", "9", "3")


async def test_a_change_that_is_not_on_the_disk_is_refused_in_the_log_too(
    desk: Desk, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    audited = Audited(caplog)
    (tmp_path / "store" / "config" / "topics.json.tmp").mkdir()
    answer = await desk.ask(17, {**TOPIC, "topic": "Fresh"})
    line = audited.line()
    assert answer.code == 1 and line["result"] == "refused" and "cannot be written to its disk" in line["reason"]
    (tmp_path / "store" / "config" / "topics.json.tmp").rmdir()
