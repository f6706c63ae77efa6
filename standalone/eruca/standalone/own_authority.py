"""The files of ``eruca tls init``: an authority of one's own, a certificate for servers, and one for clients.

Owns their names and what is kept: an authority that is there goes on, all else is issued again. Must not know who uses
them. Invariant: a key is readable by its owner alone, and no file is half a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from eruca.remoting.addresses import is_host
from eruca.remoting.certificates import Authority, Issued, hosts_of, write_private

CLIENT = "client"


class BadAuthority(Exception):
    """The files in the folder cannot be used; the message says what to do."""


class Made(NamedTuple):
    """What was made: whether the authority is new, and the names of the servers."""

    new_authority: bool
    hosts: list[str]


def init(folder: Path, hosts: Sequence[str], *, days: int, password: str | None = None) -> Made:
    """Write ``ca.pem``, ``ca.key``, ``server.pem``, ``server.key``, ``client.pem`` and ``client.key``.

    Without ``hosts`` a certificate that is there is renewed for its own. ``password`` encrypts the keys of servers and
    clients. Raises BadAuthority and OSError.
    """
    for name in hosts:
        if not is_host(name.removeprefix("*.")):
            raise BadAuthority(f"--host {name!r} is no name and no address of a server: write one, such as mq1.example")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    former = folder / "server.pem"
    try:
        names = list(dict.fromkeys(hosts)) or (hosts_of(former.read_bytes()) if former.exists() else [])
        if not names:
            raise BadAuthority("name the servers by --host, each with every name and address that clients connect to")
        authority = _authority(folder)
        made = authority or Authority.make()
        server, client = made.issue(names, days), made.issue_client(CLIENT, days)
    except ValueError as error:
        raise BadAuthority(f"{folder}: {error}; name hosts by names or addresses, or use another folder") from None
    if authority is None:
        _write(folder, "ca", made.issued, None)
    _write(folder, "server", server, password)
    _write(folder, CLIENT, client, password)
    return Made(authority is None, names)


def _authority(folder: Path) -> Authority | None:
    """The authority in a folder; None if there is none."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if certificate.exists() is not key.exists():
        raise BadAuthority(f"{folder} has one of ca.pem and ca.key alone: put the other back, or use another folder")
    return Authority.read(certificate.read_bytes(), key.read_bytes()) if key.exists() else None


def _write(folder: Path, name: str, issued: Issued, password: str | None) -> None:
    """The key first: a daemon that looks in between keeps the former pair."""
    write_private(folder / f"{name}.key", issued.key_pem(password))
    write_private(folder / f"{name}.pem", issued.certificate, mode=0o644)
