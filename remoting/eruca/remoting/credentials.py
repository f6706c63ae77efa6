"""The account by which a program signs what it asks of others: ``conf/tools.yml`` below a RocketMQ home.

Owns where the account is and how it is read; ``eruca.protocol.signature`` signs. Must not know who asks, or whom.
Invariant: no secret is part of an error or a line of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eruca.protocol.signature import Credentials

TOOLS_FILE = "conf/tools.yml"


def read_credentials(home: str | None) -> Credentials | None:
    """The account below a home; None without a home, a file or an account in it. Raises ValueError with a sentence."""
    if not home:
        return None
    file = Path(home) / TOOLS_FILE
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    return parse_credentials(text, str(file))


def parse_credentials(text: str, where: str) -> Credentials | None:
    """The account in a text of that form; None where it has none. Raises ValueError with a sentence about ``where``."""
    account = _read_yaml(text)
    keys = account.get("accessKey", ""), account.get("secretKey", "")
    if not any(keys):
        return None
    try:
        return Credentials(*keys, account.get("securityToken") or None)
    except ValueError:
        raise ValueError(f"{where} needs both accessKey and secretKey, or neither") from None


class OwnAccount:
    """The account of a daemon, which may change while it runs: a signer of its requests (``rpc_hooks.Signer``).

    Without an account requests are sent unsigned. Raises ValueError if the file cannot be read.
    """

    def __init__(self, home: str | None) -> None:
        self._home = home
        self._credentials = read_credentials(home)

    def __call__(self, fields: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The fields that sign a request."""
        return {} if self._credentials is None else self._credentials(fields, body)

    def files(self) -> list[Path]:
        """What it is read from."""
        return [Path(self._home) / TOOLS_FILE] if self._home else []

    def read(self) -> list[str]:
        """Read it again; returns what has changed. Raises ValueError, and then stays as it was."""
        former, self._credentials = self._credentials, read_credentials(self._home)
        if former == self._credentials:
            return []
        if self._credentials is None:
            return ["requests to other servers are not signed any more"]
        return [f"requests to other servers are signed by the account {self._credentials.access_key}"]


def _read_yaml(text: str) -> dict[str, str]:
    """The pairs of a flat YAML file; nested pairs are skipped, as an account has none."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name[:1] not in ("", " ", "#", "-"):
            pairs[name.strip()] = _scalar(value.strip())
    return pairs


def _scalar(text: str) -> str:
    if text[:1] in ("'", '"'):
        return text[1:].partition(text[0])[0]
    return "" if text.startswith("#") else text.partition(" #")[0].strip()
