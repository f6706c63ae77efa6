"""A broker as a process with access control: its files are read at the start and again, and no line holds a secret."""

from __future__ import annotations

import asyncio
import io
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.admin.cli import run
from tests.support.eruca import ErucaCluster

pytestmark = pytest.mark.processes

ACCOUNTS = """\
# The accounts of the lab.
accounts:
- accessKey: operator
  secretKey: zqx-operators
  admin: true
- accessKey: RocketMQ
  secretKey: 12345678
- accessKey: octalist
  secretKey: 07654321
"""


class Lab:
    """A cluster whose broker has accounts, and an operator with one."""

    def __init__(self, home: Path) -> None:
        self.file = home / "conf" / "plain_acl.yml"
        self.file.parent.mkdir()
        self.file.write_text(ACCOUNTS)
        self._tools = home / "conf" / "tools.yml"
        self._home = home
        self.cluster = ErucaCluster(home, {"aclEnable": "true", "rocketmqHome": str(home)})
        self.said: list[str] = []

    def mqadmin(self, command: str, *options: str, access_key: str = "operator", secret: str = "zqx-operators") -> str:
        """What a command printed, or why it failed."""
        self._tools.write_text(f"accessKey: {access_key}\nsecretKey: {secret}\n")
        out, err = io.StringIO(), io.StringIO()
        line = (command, "-n", self.cluster.address, "-b", self.cluster.broker.address, *options)
        asyncio.run(run(line, {"ROCKETMQ_HOME": str(self._home)}, out, err))
        self.said.append(out.getvalue() + err.getvalue())
        return self.said[-1]

    @property
    def log(self) -> str:
        return self.cluster.broker.process.output

    def wait_for(self, words: str, number: int = 1) -> None:
        self.cluster.broker.process.wait_until(lambda: self.log.count(words) >= number, words)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.cluster:
        yield lab


def test_files_are_read_again_and_a_broken_one_keeps_the_former_accounts(lab: Lab) -> None:
    versions = ("clusterAclConfigVersion",)
    assert "the account RocketMQ has the secretKey that RocketMQ ships" in lab.log
    assert "plain_acl.yml:9:14: Java's broker reads another secretKey here" in lab.log
    assert "success" in lab.mqadmin(*versions)
    assert "No acl config for newcomer" in lab.mqadmin(*versions, access_key="newcomer", secret="zqx-newcomers")

    lab.file.write_text(f"{ACCOUNTS}- {{accessKey: newcomer, secretKey: zqx-newcomers, monitor: true}}\n")
    lab.wait_for("account newcomer added")
    assert "success" in lab.mqadmin(*versions, access_key="newcomer", secret="zqx-newcomers")

    lab.file.write_text(f"{ACCOUNTS}- secretKey: *zqx-newcomers\n")
    lab.cluster.broker.process.signal(signal.SIGHUP)
    lab.wait_for("reload_failed")
    assert "plain_acl.yml:10:14: this is no YAML" in lab.log
    assert "success" in lab.mqadmin(*versions, access_key="newcomer", secret="zqx-newcomers")


def test_no_secret_leaves_the_broker(lab: Lab) -> None:
    update = ("updateAclConfig", "-a", "newcomer", "-s")
    assert "success" in lab.mqadmin(*update, "zqx-newcomers", "-t", "T=PUB")
    assert "209" in lab.mqadmin(*update, "zqx")
    assert "209" in lab.mqadmin(*update, "zqx-newcomers", "-t", "T=ALL")
    assert "Check signature failed" in lab.mqadmin(*update, "zqx-newcomers", secret="zqx-others")
    assert "Need admin permission" in lab.mqadmin(*update, "zqx-more", access_key="newcomer", secret="zqx-newcomers")
    assert "CVE-2024-23321" in lab.mqadmin("getAclConfig")
    assert "success" in lab.mqadmin("deleteAclConfig", "-a", "newcomer")
    lab.wait_for("DELETE_ACL_CONFIG")
    assert "deleteAclConfig: it has no account newcomer (code 210 from" in lab.mqadmin(
        "deleteAclConfig", "-a", "newcomer"
    )

    assert "zqx" in lab.file.read_text()
    for text in (lab.log, *lab.said):
        assert "zqx" not in text and "12345678" not in text and "07654321" not in text
