"""Contexts: clusters that an operator names once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.admin.conftest import Done, Lab


@pytest.fixture
def home(lab: Lab, tmp_path: Path) -> dict[str, str]:
    """An environment in which only contexts name a cluster."""
    return {"NAMESRV_ADDR": "", "XDG_CONFIG_HOME": str(tmp_path / "config")}


async def test_a_context_names_a_cluster(lab: Lab, home: dict[str, str], tmp_path: Path) -> None:
    async def run(*line: str, **more: str) -> Done:
        return await lab.mqadmin(*line, environment={**home, **more})

    assert await run("context", "add", "lab", "-n", lab.nameserver) == (
        0,
        "context lab added, and in use from now on: mqadmin context use none ends that\n",
        "",
    )
    assert await run("context", "add", "away", "-n", "127.0.0.1:1") == (0, "context away added\n", "")
    assert (tmp_path / "config/mqadmin/contexts.json").stat().st_mode & 0o777 == 0o600
    assert (await run("context", "list")).out.splitlines() == [
        "  away                 127.0.0.1:1",
        f"* lab                  {lab.nameserver}",
    ]
    rows = json.loads((await run("context", "list", "-o", "json")).out)["items"]
    assert [(row["name"], row["current"]) for row in rows] == [("away", False), ("lab", True)]
    assert (await run("-o", "jsonl", "context", "show")).out.startswith('{"name":"lab","current":true,')
    assert (await run("context", "show", "away", "--output", "csv")).out.splitlines()[1].startswith("away,false,127.0")
    assert (await run("context", "show", "nowhere", "-o", "json")).status == 4
    assert (await run("context", "list", "-o", "html")).status == 2
    assert (await run("topicList")).status == 0
    assert await run("context", "use", "away") == (0, "context away\n", "")
    assert (await run("topicList")).status == 1
    assert (await run("topicList", MQADMIN_CONTEXT="lab")).status == 0
    assert (await run("topicList", "-n", lab.nameserver)).status == 0
    assert (await run("topicList", NAMESRV_ADDR=lab.nameserver)).status == 0
    assert (await run("topicList", ROCKETMQ_NAMESRV_ADDR=lab.nameserver)).status == 0
    assert (await run("topicList", ROCKETMQ_NAMESRV_ADDR="127.0.0.1:1", NAMESRV_ADDR=lab.nameserver)).status == 0
    assert await run("context", "use", "-") == (0, "context lab\n", "")
    assert await run("context", "use", "none") == (0, "context none\n", "")
    assert (await run("topicList")).status != 0
    assert await run("context", "rm", "away") == (0, "context away removed\n", "")
    assert "away" not in (await run("context", "list")).out


async def test_a_context_has_habits(lab: Lab, home: dict[str, str]) -> None:
    await lab.topic("Orders")
    await lab.member("shop", "Orders")
    add = ("context", "add", "prod", "-n", lab.nameserver, "--ask", "--output", "jsonl")
    assert (await lab.mqadmin(*add, environment=home)).status == 0
    assert (await lab.mqadmin("topicList", environment=home)).out.startswith('{"topic":')
    delete = ("deleteTopic", "-t", "Orders", "-c", "DefaultCluster")
    alone = await lab.mqadmin(*delete, environment=home)
    assert (alone.status, alone.out) == (1, "")
    assert "nobody is here to be asked" in alone.err
    asked = await lab.mqadmin(*delete, environment=home, answers="n\n")
    assert "[prod] topic Orders is consumed. Delete it with all its messages? [y/N] " in asked.err


async def test_an_account_comes_from_a_file_or_a_command(lab: Lab, home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "account.yml"
    file.write_text("accessKey: me\nsecretKey: its-secret\n")
    for name, option, value in (("file", "--account", str(file)), ("command", "--account-command", f"cat {file}")):
        add = ("context", "add", name, "-n", lab.nameserver, option, value)
        assert (await lab.mqadmin(*add, environment=home)).status == 0
        done = await lab.mqadmin("topicList", environment={**home, "MQADMIN_CONTEXT": name})
        assert done.status == 0, done
        assert "its-secret" not in (await lab.mqadmin("context", "show", name, environment=home)).out
    file.write_text("accessKey: me\n")
    for name in ("file", "command"):
        done = await lab.mqadmin("topicList", environment={**home, "MQADMIN_CONTEXT": name})
        assert done.status == 1
        assert "needs both accessKey and secretKey, or neither" in done.err


WRONG = [
    (["use", "prd"], 4, "there is no context prd; did you mean prod?"),
    (["use", "-"], 4, "no other context was in use before"),
    (["rm", "x"], 4, "there is no context x"),
    (["add", "prod", "-n", "a:1"], 1, "there is a context prod already: mqadmin context rm prod"),
    (["add", "two words", "-n", "a:1"], 2, "'two words' is no name of a context: letters, digits, '.', '_' and '-'"),
    (["add", "new"], 2, "option -n (--namesrvAddr) is required"),
    (["add", "new", "-n", "http://a"], 2, "a nameserver is named as host:port, without 'http://'"),
    (["add", "new", "-n", "a:1", "--output", "xml"], 2, "option --output takes apache, table, wide"),
    (["shrug"], 2, "usage: mqadmin context list [-o FORM] | show [NAME]"),
]


@pytest.mark.parametrize(("line", "status", "sentence"), WRONG)
async def test_what_is_wrong_is_one_sentence(
    lab: Lab, home: dict[str, str], line: list[str], status: int, sentence: str
) -> None:
    await lab.mqadmin("context", "add", "prod", "-n", lab.nameserver, environment=home)
    done = await lab.mqadmin("context", *line, environment=home)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith(f"mqadmin context: {sentence}")


@pytest.mark.parametrize("content", [b"{", b'{"contexts":{"\xff":{}}}', b"[" * 100_000])
async def test_a_file_that_is_damaged_is_named(lab: Lab, home: dict[str, str], tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config" / "mqadmin" / "contexts.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    done = await lab.mqadmin("topicList", environment=home)
    assert (done.status, done.out) == (1, "")
    assert str(file) in done.err


async def test_an_account_goes_to_its_own_cluster_alone(lab: Lab, home: dict[str, str], tmp_path: Path) -> None:
    account = tmp_path / "gone.yml"
    line = ("context", "add", "prod", "-n", "127.0.0.1:1;127.0.0.1:2", "--account", str(account))
    assert (await lab.mqadmin(*line, environment=home)).status == 0
    elsewhere = await lab.mqadmin("topicList", "-n", lab.nameserver, environment=home)
    assert (elsewhere.status, elsewhere.err) == (0, "")
    own = await lab.mqadmin("topicList", "-n", "127.0.0.1:2", environment=home)
    assert (own.status, "gone.yml cannot be read" in own.err) == (1, True)
