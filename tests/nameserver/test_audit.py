"""The audit log of a nameserver: each change that somebody asks for is one line, also if it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eruca.nameserver.app import Nameserver
from eruca.nameserver.handlers import routes
from eruca.protocol.codes import RequestCode
from tests.support.audits import Audited
from tests.support.peers import Peer

BY_BROKERS = {103, 322}
"""Requests by which brokers stay registered: 103 has a line if it is of a new broker or address."""
BROKER = {"brokerName": "b", "brokerAddr": "127.0.0.1:10911", "clusterName": "Lab", "brokerId": 0}


class Asked(NamedTuple):
    """A request that is served, and one of the same code that is refused."""

    fields: dict[str, Any]
    refused: dict[str, Any]
    target: str
    before: str = ""
    after: str = ""
    body: bytes = b""
    refused_body: bytes = b""


LONG = "x" * (3 << 19)
ASKED = {
    100: Asked(
        {"namespace": "n", "key": "k", "value": "v"},
        {"namespace": "n", "key": "k", "value": LONG},
        "value k of namespace n",
        "nothing",
        "v",
    ),
    102: Asked({"namespace": "n", "key": "k"}, {"namespace": "n"}, "value k of namespace n", "nothing", "nothing"),
    104: Asked(BROKER, {}, "broker b with id 0 at 127.0.0.1:10911", "nothing", "nothing"),
    205: Asked({"brokerName": "b"}, {}, "write permission of broker b", "", "withdrawn in 0 topics"),
    216: Asked({"topic": "T"}, {}, "topic T", "nothing", "nothing"),
    318: Asked(
        {},
        {},
        "settings productEnvName",
        "productEnvName=center",
        "productEnvName=lab",
        b"productEnvName=lab",
        b"listenPort=1",
    ),
    327: Asked({"brokerName": "b"}, {}, "write permission of broker b", "", "given in 0 topics"),
}


@pytest.fixture
async def admin(nameserver: Nameserver) -> Any:
    peer = await Peer().connect(nameserver.address)
    yield peer
    await peer.close()


@pytest.fixture
def unwritable(nameserver: Nameserver) -> None:
    """Something else is where the key-value file is written."""
    Path(f"{nameserver.config.kv_config_path}.tmp").mkdir(parents=True)


def test_every_request_reads_or_is_a_brokers_or_is_audited() -> None:
    assert {code for code, route in routes.handlers.items() if route.changes is not None} == set(ASKED)
    assert {code for code, each in routes.handlers.items() if not each.reads and each.changes is None} == BY_BROKERS


@pytest.mark.parametrize("code", sorted(ASKED), ids=lambda code: RequestCode(code).name)
async def test_one_line_for_each_request(admin: Peer, caplog: pytest.LogCaptureFixture, code: int) -> None:
    asked, audited = ASKED[code], Audited(caplog)
    assert (await admin.ask(code, asked.fields, asked.body)).code == 0
    line = audited.line()
    assert (line["request"], line["request_code"]) == (RequestCode(code).name, str(code))
    assert (line["remote"], line["account"], line["result"]) == (admin.address, "none", "done")
    assert (line["target"], line.get("before", ""), line["after"]) == (asked.target, asked.before, asked.after)

    answer = await admin.ask(code, asked.refused, asked.refused_body)
    line = audited.line()
    assert answer.code != 0
    assert (line["request"], line["result"]) == (RequestCode(code).name, "refused")
    assert line["response_code"] == str(answer.code)


async def test_a_broker_that_registers_is_a_line_when_it_is_new_or_elsewhere(
    admin: Peer, nameserver: Nameserver, caplog: pytest.LogCaptureFixture
) -> None:
    audited = Audited(caplog)
    for expected in (["nothing", "127.0.0.1:10911"], []):
        assert (await admin.ask(103, {**BROKER, "haServerAddr": "127.0.0.1:10912"})).code == 0
        lines = audited.lines()
        assert len(lines) == bool(expected) and all(f"after='{expected[1]}'" in line for line in lines)
    nameserver.config.allow_broker_takeover = True
    moved = {**BROKER, "brokerAddr": "127.0.0.1:10921", "haServerAddr": "127.0.0.1:10922"}
    assert (await admin.ask(103, moved)).code == 0
    line = audited.line()
    assert line["target"] == "broker b with id 0 at 127.0.0.1:10921"
    assert (line["before"], line["after"]) == ("127.0.0.1:10911", "127.0.0.1:10921")


async def test_a_value_that_cannot_be_written_is_a_line(
    admin: Peer, unwritable: None, caplog: pytest.LogCaptureFixture
) -> None:
    audited = Audited(caplog)
    assert (await admin.ask(100, {"namespace": "n", "key": "k", "value": "v"})).code == 1
    assert audited.line()["result"] == "refused"
