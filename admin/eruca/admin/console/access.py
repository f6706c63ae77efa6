"""Access control: which brokers have it, and how old their files of accounts are. No secret is ever asked for."""

from __future__ import annotations

from eruca.admin.client import Admin
from eruca.admin.console.topics import masters
from eruca.admin.console.visit import Visit, page
from eruca.admin.errors import PeerRefused
from eruca.admin.lookups import ask_each
from eruca.admin.results.access import AccessFile, access_files
from eruca.admin.results.answer import Table, errors_of


class AccessPage(Table[AccessFile], frozen=True, kw_only=True, rename="camel"):
    """The files of accounts at each master."""

    without: dict[str, str]
    """What brokers without access control say, by their names."""


@page("/access", "access.html")
async def access(visit: Visit) -> AccessPage:
    """Asks each master for the versions of its files (52)."""
    addresses = await masters(visit.admin)
    asked = await ask_each({name: _files(visit.admin, address) for name, address in addresses.items()})
    return AccessPage(
        items=[each for files in asked.answers.values() if not isinstance(files, str) for each in files],
        without={name: files for name, files in asked.answers.items() if isinstance(files, str)},
        errors=errors_of(asked.errors, "whether it has access control is not known"),
    )


async def _files(admin: Admin, address: str) -> list[AccessFile] | str:
    """The files; what the broker says instead where it has no access control."""
    try:
        return await access_files(admin, address)
    except PeerRefused as refused:
        return str(refused)
