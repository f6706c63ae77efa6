"""Accounts by request (50 to 54): what operators change is in the file and holds at once; secrets are not given out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eruca.remoting.access.permissions import SUB
from tests.support.audits import Audited
from tests.support.desk import START, Desk

ACCOUNTS = "accounts: [{accessKey: ordinary, secretKey: marked-secret}]\n"
UPDATE, DELETE, VERSIONS, WHITE, SHOW = 50, 51, 52, 53, 54


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Desk]:
    """A broker with access control; the operator's address needs no account."""
    folder = tmp_path / "conf" / "acl"
    folder.mkdir(parents=True)
    (folder / "operators.yml").write_text("globalWhiteRemoteAddresses: [127.0.0.1]\n")
    main_of(tmp_path).write_text(ACCOUNTS)
    desk = Desk(tmp_path)
    desk.config.access.acl_enable = True
    desk.config.rocketmq_home = str(tmp_path)
    async with desk:
        yield desk


def main_of(folder: Path) -> Path:
    return folder / "conf" / "plain_acl.yml"


async def test_an_account_comes_changes_and_goes(guarded: Desk) -> None:
    file, accounts = main_of(guarded.folder), guarded.broker.accounts
    assert accounts is not None

    fields = {"accessKey": "newcomer", "secretKey": "01234567", "topicPerms": "A=SUB", "admin": "false"}
    assert (await guarded.ask(UPDATE, fields)).code == 0
    found = accounts.get("newcomer")
    assert found is not None and (found.secret_key, found.topic("A")) == ("01234567", SUB)

    assert (await guarded.ask(UPDATE, {"accessKey": "newcomer", "secretKey": "another-secret"})).code == 0
    written = yaml.safe_load(file.read_text())
    assert written["accounts"][1] == {
        "accessKey": "newcomer",
        "secretKey": "another-secret",
        "admin": False,
        "topicPerms": ["A=SUB"],
    }
    assert written["dataVersion"] == [{"counter": 2, "timestamp": START}]

    assert (await guarded.ask(DELETE, {"accessKey": "newcomer"})).code == 0
    assert accounts.get("newcomer") is None
    answer = await guarded.ask(DELETE, {"accessKey": "newcomer"})
    assert (answer.code, answer.remark) == (
        210,
        "The accesskey[newcomer] corresponding to accessConfig has been deleted failed.",
    )


async def test_white_addresses(guarded: Desk) -> None:
    assert guarded.broker.accounts is not None
    other = guarded.folder / "conf" / "acl" / "operators.yml"

    for addresses, file in (("10.0.0.*,10.0.1.1", ""), ("127.0.0.1,10.0.2.{1,2}", str(other))):
        fields = {"globalWhiteAddrs": addresses, "aclFileFullPath": file}
        assert (await guarded.ask(WHITE, {name: text for name, text in fields.items() if text})).code == 0

    assert [guarded.broker.accounts.white(f"10.0.{n}.1") for n in range(4)] == [True, True, True, False]
    for fields in ({"globalWhiteAddrs": "10.0.0"}, {"globalWhiteAddrs": "*", "aclFileFullPath": "/etc/passwd"}):
        assert (await guarded.ask(WHITE, fields)).code == 211


async def test_white_addresses_are_audited_with_those_before(guarded: Desk, caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited(caplog)
    lines = []
    for addresses in ("10.0.0.*", "10.0.1.1,10.0.2.1", ""):
        assert (await guarded.ask(WHITE, {"globalWhiteAddrs": addresses})).code == 0
        line = audited.line()
        lines.append((line["before"], line["after"]))

    assert lines == [("nothing", "10.0.0.*"), ("10.0.0.*", "10.0.1.1,10.0.2.1"), ("10.0.1.1,10.0.2.1", "nothing")]


async def test_versions_of_all_files(guarded: Desk) -> None:
    await guarded.ask(UPDATE, {"accessKey": "ordinary", "secretKey": "newer-secret"})

    answer = await guarded.ask(VERSIONS, {})

    fields = {name: answer.fields[name] for name in ("brokerName", "brokerAddr", "clusterName")}
    assert fields == {"brokerName": "broker-a", "brokerAddr": guarded.broker.address, "clusterName": "Lab"}
    other = guarded.folder / "conf" / "acl" / "operators.yml"
    changed, never = {"counter": 1, "timestamp": START}, {"counter": 0, "timestamp": other.stat().st_mtime_ns // 10**6}
    assert json.loads(answer.fields["version"]) == changed
    assert json.loads(answer.fields["allAclFileVersion"]) == {
        str(other): never,
        str(main_of(guarded.folder)): changed,
    }


async def test_secrets_are_not_given_out(guarded: Desk) -> None:
    answer = await guarded.ask(SHOW, {})

    assert (answer.code, answer.body) == (16, b"")
    assert "CVE-2024-23321" in (answer.remark or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"accessKey": "newcomer", "secretKey": "marked"},
        {"accessKey": "short", "secretKey": "marked-secret"},
        {"accessKey": "newcomer", "secretKey": "marked-secret", "topicPerms": "A"},
        {"accessKey": "newcomer", "secretKey": "marked-secret", "whiteRemoteAddress": "nowhere"},
    ],
)
async def test_what_cannot_be_is_refused_without_the_secret(guarded: Desk, fields: dict[str, Any]) -> None:
    answer = await guarded.ask(UPDATE, fields)

    assert answer.code == 209
    assert answer.remark and "marked" not in answer.remark
    assert main_of(guarded.folder).read_text() == ACCOUNTS


async def test_a_file_that_cannot_be_written_is_told(guarded: Desk) -> None:
    folder = main_of(guarded.folder).with_name("plain_acl.yml.tmp")
    folder.mkdir()

    answer = await guarded.ask(UPDATE, {"accessKey": "ordinary", "secretKey": "newer-secret"})

    assert answer.code == 209
    assert (answer.remark or "").startswith("the access file cannot be written (")
    found = guarded.broker.accounts.get("ordinary") if guarded.broker.accounts else None
    assert found is not None and found.secret_key == "marked-secret"


async def test_without_access_control_each_has_its_code_and_a_sentence(desk: Desk) -> None:
    asked = {
        UPDATE: {"accessKey": "newcomer", "secretKey": "its-secret"},
        DELETE: {"accessKey": "newcomer"},
        VERSIONS: {},
        WHITE: {"globalWhiteAddrs": "*"},
        SHOW: {},
    }
    answers = {code: await desk.ask(code, fields) for code, fields in asked.items()}

    assert {code: answer.code for code, answer in answers.items()} == {50: 209, 51: 210, 52: 1, 53: 211, 54: 16}
    for code in (UPDATE, DELETE, VERSIONS, WHITE):
        assert (answers[code].remark or "").startswith("access control is off at this broker")
