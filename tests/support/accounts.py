"""Accounts for tests of access control: the file that has them, and peers that sign.

Owns names, keys and permissions; every secret is the access key with ``-secret`` behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from structlog.testing import capture_logs

from eruca.protocol.signature import Credentials
from tests.support.every_code import Asked
from tests.support.peers import Answered, Peer

CLASS = "org.apache.rocketmq.acl.common.AclException: "
"""How the remark of each refusal by access control begins, on both sides."""


class Account(NamedTuple):
    """An account of a file; ``lines`` are its YAML besides its keys."""

    name: str
    lines: tuple[str, ...] = ()

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.name, f"{self.name}-secret")

    def signed(self, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> dict[str, str]:
        """The fields of a request with the account's signature."""
        texts = {name: str(value) for name, value in (fields or {}).items()}
        return {**texts, **self.credentials(texts, body)}


NOBODY = Account("without-rights")
PUBLISHER = Account("publisher", ("topicPerms:", "- T=PUB"))
SUBSCRIBER = Account("subscriber", ("topicPerms:", "- T=SUB", "groupPerms:", "- G=SUB"))
MONITOR = Account("monitoring", ("monitor: true",))
BROKER = Account("brokers", ("broker: true",))
ADMIN = Account("administrator", ("admin: true",))
ALL = (NOBODY, PUBLISHER, SUBSCRIBER, MONITOR, BROKER, ADMIN)

WHITE, LISTED = "127.0.0.2", "127.0.0.3"
"""Addresses of this machine: one from which everything is allowed, one of a broker that does not sign."""


def write_accounts(
    home: Path,
    accounts: Iterable[Account] = ALL,
    *,
    white: Iterable[str] = (WHITE,),
    brokers: Iterable[str] = (LISTED,),
) -> Path:
    """The file of these accounts below a home; returns the home."""
    lines = ["globalWhiteRemoteAddresses:", *(f"- {each}" for each in white)]
    lines += ["brokerAddresses:", *(f"- {each}" for each in brokers), "accounts:"]
    for account in accounts:
        keys = account.credentials
        lines += [f"- accessKey: {keys.access_key}", f"  secretKey: {keys.secret_key}"]
        lines += [f"  {line}" for line in account.lines]
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text("\n".join(lines) + "\n")
    return home


class Signing:
    """A peer whose requests are signed by whichever account the test names."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def ask(
        self, account: Account | None, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> Answered:
        """Send a request, unsigned without an account, and wait for its answer."""
        return await self.peer.ask(code, dict(fields or {}) if account is None else account.signed(fields, body), body)


def refused(answer: Answered) -> str | None:
    """The text of the refusal, if it is one of access control."""
    if answer.remark is None or not answer.remark.startswith(CLASS):
        return None
    assert answer.code == 1 and answer.body == b""
    return answer.remark.removeprefix(CLASS).rpartition(", ")[0]


async def one_line_for_each_refusal(peer: Signing, changes: Iterable[int], requests: Mapping[int, Asked]) -> None:
    """Ask for each of the changes without an account, and with one that may not: the audit log has one line each."""
    for code in requests.keys() & changes:
        for account in (None, NOBODY):
            with capture_logs() as said:
                assert refused(await peer.ask(account, code, *requests[code])), code
            lines = [line for line in said if line["event"] in ("change", "access_refused")]
            assert [(line["event"], line["request_code"]) for line in lines] == [("access_refused", code)]
