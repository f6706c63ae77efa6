"""Whether the etcd of ``controllerAddr`` answers, for ``mqbroker --check``: each member by itself, with a majority.

Owns what is tried, and the sentences. A broker that runs asks etcd in ``services.failover``. Invariant: nothing is
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from eruca.broker.coordination.trust import ControllerTls
from eruca.remoting.settings import Finding
from eruca.remoting.tls import BadTls, TlsFiles
from eruca.remoting.tls_server import open_keys

NO_H11 = "needs h11 to ask etcd: pip install 'eruca[failover]'"
_KEY = "/eruca/1/"


def etcd_findings(addresses: str, trust: ControllerTls) -> Iterator[Finding]:
    """What is wrong with the members: those that do not answer are a fault if they are all, else a warning."""
    urls = addresses.split(";")
    if open_keys([trust.controller_key_path or None]):
        yield Finding(
            "controllerKeyPath", f"names {trust.controller_key_path}, which others may read: chmod 600", False
        )
    try:
        tls = trust.files() if "https:" in addresses else None
    except BadTls as unusable:
        yield Finding("controllerTrustCertPath", f"and controllerCertPath do not work: {unusable}")
        return
    try:
        faults = asyncio.run(_faults(urls, tls))
    except ImportError:
        return  # ``fits`` has said so
    for url, fault in faults.items():
        yield Finding("controllerAddr", f"names {url}, which does not answer: {fault}", len(faults) == len(urls))


async def _faults(urls: list[str], tls: TlsFiles | None) -> dict[str, str]:
    """Why members do not answer, by their addresses."""
    found = await asyncio.gather(*(_fault(url, tls) for url in urls))
    return {url: fault for url, fault in zip(urls, found, strict=True) if fault is not None}


async def _fault(url: str, tls: TlsFiles | None) -> str | None:
    from eruca.broker.coordination.etcd import Etcd
    from eruca.broker.coordination.port import Unavailable

    try:
        etcd = Etcd([url], tls)
    except ValueError as fault:
        return str(fault)
    try:
        await etcd.read(_KEY)
    except Unavailable as fault:
        return str(fault)
    finally:
        await etcd.close()
    return None
