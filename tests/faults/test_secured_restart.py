"""A rolling restart of two masters and two slaves with accounts and TLS everywhere: no send fails."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import pytest

from eruca.client import ClientSettings, Tls
from tests.support.accounts import ADMIN, BROKER, Account, write_accounts
from tests.support.certificates import Certificates
from tests.support.mqadmin_calls import mqadmin
from tests.support.pairs import BROKERS, Pairs, eventually
from tests.support.programme import ENOUGH
from tests.support.traffic import TOPIC, Reader, Traffic

pytestmark = [pytest.mark.processes, pytest.mark.slow, ENOUGH]

CLIENTS = Account("clients", ("topicPerms:", f"- {TOPIC}=PUB|SUB", "groupPerms:", "- readers=PUB|SUB"))


def use_account(home: Path, account: Account) -> None:
    """Let programs with this home sign as an account."""
    keys = account.credentials
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {keys.access_key}\nsecretKey: {keys.secret_key}\n")


class SecuredPairs(Pairs):
    """Every connection is encrypted, every request signed; an operator looks at it with mqadmin."""

    def __init__(self, home: Path) -> None:
        self.certificates = Certificates(home / "tls")
        write_accounts(home / "daemons", (ADMIN, BROKER, CLIENTS), white=(), brokers=())
        use_account(home / "daemons", BROKER)
        use_account(home / "operator", ADMIN)
        self._operator = home / "operator"
        server = self.certificates.server
        settings = {
            "rocketmqHome": str(home / "daemons"),
            "aclEnable": "true",
            "tls.server.mode": "enforcing",
            "tls.server.certPath": str(server.certificate),
            "tls.server.keyPath": str(server.key),
        }
        trust = {"tls.enable": "true", "tls.client.trustCertPath": str(self.certificates.ca_file)}
        super().__init__(home, {**settings, **trust}, settings)

    def client(self, name: str) -> ClientSettings:
        """The settings of a client with its account."""
        return ClientSettings(
            nameserver=self.address,
            instance_name=name,
            credentials=CLIENTS.credentials,
            tls=Tls(ca_file=str(self.certificates.ca_file)),
        )

    async def mqadmin(self, *arguments: str) -> str:
        """What a command of the operator prints."""
        trust = f"-Dtls.enable=true -Dtls.client.trustCertPath={self.certificates.ca_file}"
        environment = {"ROCKETMQ_HOME": str(self._operator), "JAVA_OPT": trust}
        return (await mqadmin(arguments, environment))[1]

    def known(self, name: str) -> list[bool]:
        """As mqadmin sees it (called in a thread)."""

        async def printed() -> list[str]:
            return [await self.mqadmin("clusterList", "-n", f"127.0.0.1:{port}") for port in self.name_ports]

        return [self.broker_address(name) in text for text in asyncio.run(printed())]

    def runtime(self, name: str) -> dict[str, str]:
        """As mqadmin sees it (called in a thread)."""
        said = asyncio.run(self.mqadmin("brokerStatus", "-n", self.address, "-b", self.broker_address(name)))
        return dict(re.findall(r"(?m)^(\w+)\s*: ?(.*)$", said))

    async def create_topic(self, topic: str, queues: int) -> None:
        """By mqadmin."""
        what = ("-t", topic, "-r", str(queues), "-w", str(queues))
        said = await self.mqadmin("updateTopic", "-n", self.address, "-c", "Pairs", *what)
        assert "success" in said, said


def replicates(pairs: Pairs, slave: str) -> bool:
    return "replicating" in pairs.brokers[slave].output


async def test_no_send_fails_while_all_restart_with_accounts_and_tls(tmp_path: Path) -> None:
    async with SecuredPairs(tmp_path) as pairs:
        await pairs.create_topic(TOPIC, 4)
        await pairs.followed()
        assert Pairs.known(pairs, "a") == [False, False], "without TLS nobody is answered"
        async with Reader(pairs.address, "readers", pairs.client("reader")) as reader:
            async with Traffic(pairs.address, settings=pairs.client("sender")) as traffic:
                await traffic.more(100)
                for number in range(2):
                    await pairs.restart_nameserver(number)
                    await traffic.more(30)
                for name in reversed(BROKERS):
                    await pairs.stop(name)
                    await pairs.start(name)
                    await eventually(partial(replicates, pairs, f"{name[0]}-slave"))
                    await traffic.more(100)
            await pairs.followed()
            await reader.has(set(traffic.acknowledged))
    assert traffic.failures == []
    print(
        f"{len(traffic.acknowledged)} acknowledged, all consumed, 0 failed; "
        f"longest without an answer {traffic.pause:.2f} s, slowest send {traffic.slowest:.2f} s"
    )
