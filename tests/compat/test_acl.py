"""Accounts of Apache's and of Eruca's broker: the same changes by request, the same files, each read by the other.

Apache's is of 4.9.7, its home holds ``conf/plain_acl.yml`` as that of Eruca's does. Requests are made by both mqadmins,
which sign by ``conf/tools.yml``.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from eruca.admin.cli import run
from eruca.admin.examples import examples_of
from eruca.client import ClientSettings, Credentials, PullConsumer
from eruca.client.errors import AccessDenied
from eruca.protocol.api import GET_MAX_OFFSET
from eruca.protocol.headers.offsets import QueueOf
from eruca.remoting.access.accounts import Accounts
from eruca.remoting.access.yaml_nodes import reads_otherwise
from tests.compat.conftest import Cluster, start
from tests.compat.transcript import Outcome
from tests.support.java import Judge

OPERATOR = Credentials("operator", "operators-secret")
ORDINARY = Credentials("ordinary", "its-secret-key")
ACCOUNTS = """\
# The accounts of the lab.
accounts:
- accessKey: operator
  secretKey: operators-secret
  admin: true
- accessKey: ordinary
  secretKey: its-secret-key
  whiteRemoteAddress:
  defaultTopicPerm: PUB|SUB
"""
TRICKY = [
    *("012345678", "1234567e5", "12345678", "1_234_567", "0x1234567", "1234567.", "2024-01-31", "12:30:45.678"),
    *(
        "-1234567",
        "+1234567",
        "0b101010111100110111101111",
        "truehearted",
        "10.0.0.7",
        "1.5e10.2",
        "00ab-secret",
        "07777777777",
        "1234:34:56",
    ),
    *("20240131", "2024-1-31T10:00:00Z", "0o1234567", "1234567E", "_1234567", "123456789012345678901"),
]
"""Texts that look like something else to YAML."""
QUOTED = [
    *TRICKY,
    *(
        "a secret: #7",
        "it's \\n so",
        'a"quoted"b',
        "Öl-大きさ-😀",
        "- dashes",
        "{braces}",
        "tab\tulator",
        "a\u2028b-c-d",
    ),
]

Mqadmin = Callable[..., Outcome]


def prepare(home: Path, accounts: str = ACCOUNTS) -> Path:
    conf = home / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(accounts)
    (conf / "tools.yml").write_text(f"accessKey: {OPERATOR.access_key}\nsecretKey: {OPERATOR.secret_key}\n")
    return home


def guarded(kind: str, home: Path) -> Cluster:
    return start(kind, home, {"aclEnable": "true", **({"rocketmqHome": str(home)} if kind == "eruca" else {})})


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Apache's mqadmin, which signs."""
    with Judge("4.9.7", prepare(tmp_path_factory.mktemp("operator"))) as judge:
        yield judge


@pytest.fixture
def tools(operator: Judge, tmp_path: Path) -> dict[str, Mqadmin]:
    """Apache's mqadmin and Eruca's, which sign."""

    def java(*line: str) -> Outcome:
        done = operator.call("admin", line=list(line))
        return Outcome(line, done["stdout"], done["stderr"], done["exit"])

    home = prepare(tmp_path / "tools")

    def python(*line: str) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        status = asyncio.run(run(line, {"ROCKETMQ_HOME": str(home)}, out, err))
        return Outcome(line, out.getvalue(), err.getvalue(), status)

    return {"java": java, "python": python}


def session(mqadmin: Mqadmin, cluster: Cluster) -> Iterator[tuple[str, Any]]:
    """What each command printed, and what was in the file then; without what differs from run to run."""

    def neutral(text: str) -> str:
        text = text.replace(cluster.broker.address, "BROKER").replace(str(cluster.home), "HOME")
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
        text = re.sub(r"^\S*PlainAccessConfig@\w+", "", text, flags=re.M)  # an object of Java, which tells nothing
        return re.sub(r" +$", "", text, flags=re.M).removesuffix("\n")  # Eruca's ends each line

    def done(command: str, *options: str) -> tuple[str, Any]:
        outcome = mqadmin(command, "-n", cluster.address, *options)
        file = yaml.safe_load((cluster.home / "conf" / "plain_acl.yml").read_text())
        for version in file.get("dataVersion", []):
            assert version["timestamp"] > 1_700_000_000_000
            version["timestamp"] = "TIME"
        codes = re.findall(r"(?:CODE: ?|\(code )(\d+)", outcome.stderr)[:1]
        return neutral(outcome.stdout), (codes, file)

    broker = ("-b", cluster.broker.address)
    yield done("updateAclConfig", *broker, "-a", "newcomer", "-s", "012345678", "-t", "A=PUB,B=SUB|PUB", "-g", "g=SUB")
    yield done(
        "updateAclConfig", *broker, "-a", "newcomer", "-s", "0x12345678", "-i", "DENY", "-u", "SUB", "-m", "true"
    )
    yield done("updateAclConfig", "-c", "JudgeCluster", "-a", "ordinary", "-s", "yes-a-secret: #", "-w", "10.0.0.*")
    yield done("updateAclConfig", *broker, "-a", "newcomer", "-s", "short")
    yield done("updateAclConfig", *broker, "-a", "newcomer", "-s", "012345678", "-t", "A")
    yield done("updateAclConfig", *broker, "-a", "newcomer", "-s", "012345678", "-t", "A=PUB,B=ALL")
    yield done("updateGlobalWhiteAddr", *broker, "-g", "10.0.1.*,10.0.2.1")
    yield done("updateGlobalWhiteAddr", "-c", "JudgeCluster", "-g", "10.0.3.1-9")
    yield done("updateGlobalWhiteAddr", *broker, "-g", "*", "-p", "/nowhere.yml")
    yield done("clusterAclConfigVersion", *broker)
    yield done("clusterAclConfigVersion", "-c", "JudgeCluster")
    yield done("deleteAclConfig", *broker, "-a", "newcomer")
    yield done("deleteAclConfig", *broker, "-a", "newcomer")
    yield done("deleteAclConfig", "-c", "JudgeCluster", "-a", "ordinary")


def test_the_same_changes_by_either_mqadmin_at_either_broker(tools: dict[str, Mqadmin], tmp_path: Path) -> None:
    seen = {}
    for name, mqadmin in tools.items():
        for kind in ("apache", "eruca"):
            with guarded(kind, prepare(tmp_path / name / kind)) as cluster:
                seen[name, kind] = list(session(mqadmin, cluster))

    for first, *others in zip(*seen.values(), strict=True):
        assert others == [first] * 3
    assert [codes for _, (codes, _) in seen["python", "eruca"]] == [[]] * 3 + [["209"]] * 3 + [[]] * 2 + [
        ["211"],
        [],
        [],
    ] + [[], ["210"], []]
    for name in tools:
        text = (tmp_path / name / "eruca" / "conf" / "plain_acl.yml").read_text()
        assert text.startswith("# The accounts of the lab.\naccounts:\n- accessKey: operator\n")


def test_secrets_are_shown_by_apache_alone(tools: dict[str, Mqadmin], tmp_path: Path) -> None:
    with guarded("apache", prepare(tmp_path / "apache")) as cluster:
        shown = {}
        for name, mqadmin in tools.items():
            whole = [
                mqadmin("getAclConfig", "-n", cluster.address, *place)
                for place in (("-b", cluster.broker.address), ("-c", "JudgeCluster"))
            ]
            shown[name] = [(outcome.stdout, outcome.stderr, outcome.exit) for outcome in whole]
        assert shown["python"] == shown["java"]
        assert f"  secretKey         : {ORDINARY.secret_key}\n" in shown["python"][0][0]
        for example in examples_of("getAclConfig"):
            line = example.line.replace("10.0.0.1:10911", cluster.broker.address).replace(
                "DefaultCluster", "JudgeCluster"
            )
            outcome = tools["python"](*line.split(), "-n", cluster.address)
            assert (outcome.exit, outcome.stderr) == (0, "") and ORDINARY.secret_key in outcome.stdout, outcome

    with guarded("eruca", prepare(tmp_path / "eruca")) as cluster:
        for mqadmin in tools.values():
            outcome = mqadmin("getAclConfig", "-n", cluster.address, "-b", cluster.broker.address)
            assert ORDINARY.secret_key not in outcome.stdout + outcome.stderr
            assert "CVE-2024-23321" in outcome.stderr and "16" in outcome.stderr


async def accepts(cluster: Cluster, account: Credentials) -> bool:
    """Whether a broker takes the signature of an account."""
    async with PullConsumer(settings=ClientSettings(nameserver=cluster.address, credentials=account)) as puller:
        try:
            await puller.session.call(cluster.broker.address, GET_MAX_OFFSET, QueueOf(topic="TBW102", queue_id=0))
        except AccessDenied as refused:
            assert "Check signature failed" in str(refused)
            return False
    return True


async def test_java_reads_what_is_written_by_the_editor(tmp_path: Path, operator: Judge) -> None:
    """The same texts are the secrets of accounts for both, whoever has written the file."""
    with (
        guarded("eruca", prepare(tmp_path / "eruca")) as eruca,
        guarded("apache", prepare(tmp_path / "apache")) as apache,
    ):
        for number, secret in enumerate(QUOTED):
            for cluster in (eruca, apache):
                line = ["updateAclConfig", "-n", cluster.address, "-b", cluster.broker.address, "-m", "true"]
                done = operator.call("admin", line=[*line, "-a", f"account-{number}", "-s", secret])
                assert "success" in done["stdout"], (secret, done)
    files = [home / "conf" / "plain_acl.yml" for home in (tmp_path / "eruca", tmp_path / "apache")]
    by_eruca, by_apache = (Accounts(file.parent.parent) for file in files)
    for number, secret in enumerate(QUOTED):
        for accounts in (by_eruca, by_apache):
            found = accounts.get(f"account-{number}")
            assert found is not None and (found.secret_key, found.admin) == (secret, True)

    with guarded("apache", prepare(tmp_path / "other", files[0].read_text())) as apache:
        denied = [
            secret
            for number, secret in enumerate(QUOTED)
            if not await accepts(apache, Credentials(f"account-{number}", secret))
        ]
    assert denied == []


LOCAL = [
    *("127.0.0.1", "127.0.0.*", "127.0.*.*", "127.*.*.*", "127.0.0.1-9", "127.0.0-3.*", "127.0-1.*.*", "127.0.0.{1,2}"),
    *("127.0.0.2,127.0.0.1", "*", "*.*.*.*", "*:*:*:*:*:*:*:*", "127.0.0.0-255"),
]
ELSEWHERE = [
    *("", "127.0.0.2", "127.0.1.*", "127.1.*.*", "12.*.*.*", "127.0.0.2-9", "127.0.1-3.*", "127.0.0.{2,3}", "::1"),
    *("127.0.0.2,127.0.0.11", "2001:db8:*", "2001:db8::1-f", "2::ac5:78:1-200:*", "::{1,2}", "2001:db8::7,::1"),
]


@pytest.mark.parametrize("kind", ["apache", "eruca"])
async def test_white_addresses_of_accounts(kind: str, tmp_path: Path) -> None:
    patterns = [*LOCAL, *ELSEWHERE]
    accounts = "".join(
        f"- {{accessKey: account-{at}, secretKey: its-secret, whiteRemoteAddress: '{pattern}'}}\n"
        for at, pattern in enumerate(patterns)
    )
    with guarded(kind, prepare(tmp_path, ACCOUNTS + accounts)) as cluster:
        taken = [
            pattern
            for at, pattern in enumerate(patterns)
            if await accepts(cluster, Credentials(f"account-{at}", "not-its-secret"))
        ]

    assert taken == LOCAL


async def test_which_secrets_java_reads_otherwise_without_quotes(tmp_path: Path) -> None:
    lines = [f"- accessKey: account-{at}\n  secretKey: {secret}\n  admin: true\n" for at, secret in enumerate(TRICKY)]
    with guarded("apache", prepare(tmp_path / "apache", ACCOUNTS + "".join(lines))) as apache:
        differ = [
            secret
            for at, secret in enumerate(TRICKY)
            if not await accepts(apache, Credentials(f"account-{at}", secret))
        ]
        assert await accepts(apache, ORDINARY)
        assert not await accepts(apache, replace(ORDINARY, secret_key="another-secret"))

    assert set(differ) == {secret for secret in TRICKY if reads_otherwise(secret)}
