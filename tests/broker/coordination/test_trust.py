"""TLS to etcd: a member with a certificate, one that asks for ours, and one clear sentence for what does not fit."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from eruca.broker.config import BrokerConfig
from eruca.broker.coordination.etcd import Etcd
from eruca.broker.coordination.port import Unavailable
from eruca.broker.coordination.trust import ControllerTls
from eruca.broker.services.checks import fits
from eruca.broker.services.etcd_check import etcd_findings
from tests.support.certificates import PASSWORD, Certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "tls")


@asynccontextmanager
async def member(tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    """A member of etcd without a key; its address, without the scheme."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            while (await reader.readexactly(4)) == b"POST":
                await reader.readuntil(b"}")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.transport.abort()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def asked(url: str, trust: ControllerTls) -> str:
    """What comes of a read: nothing, or why it failed."""
    etcd = Etcd([url], trust.files(), attempt=5.0)
    try:
        assert await etcd.read("/k") is None
    except Unavailable as fault:
        return str(fault)
    finally:
        await etcd.close()
    return ""


def trusting(certificates: Certificates, *, known: bool = True) -> ControllerTls:
    """Settings that name the authority, and a certificate of ours if etcd is to know us."""
    own, password = (certificates.client, PASSWORD) if known else (None, None)
    return ControllerTls(
        controller_trust_cert_path=str(certificates.ca_file),
        controller_cert_path=str(own.certificate) if own is not None else None,
        controller_key_path=str(own.encrypted_key) if own is not None else None,
        controller_key_password=password,
    )


async def test_a_member_with_a_certificate_of_a_named_authority_is_asked(certificates: Certificates) -> None:
    async with member(certificates.server_context()) as address:
        assert await asked(f"https://{address}", trusting(certificates, known=False)) == ""


async def test_a_member_that_asks_for_a_certificate_gets_ours(certificates: Certificates) -> None:
    async with member(certificates.server_context(ask_clients=True)) as address:
        assert await asked(f"https://{address}", trusting(certificates)) == ""
        refused = await asked(f"https://{address}", trusting(certificates, known=False))
    assert refused == (
        f"etcd does not answer: https://{address}: it closed the connection before it answered, as an etcd does that "
        "does not trust this broker's certificate: name one in controllerCertPath and controllerKeyPath"
    )


async def test_another_authority_is_said(certificates: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    async with member(certificates.server_context()) as address:
        assert await asked(f"https://{address}", trusting(other)) == (
            f"etcd does not answer: https://{address}: its certificate is not trusted (unable to get local issuer "
            "certificate): name the CA that signed it in controllerTrustCertPath"
        )


async def test_a_certificate_of_another_host_is_said(tmp_path: Path) -> None:
    elsewhere = Certificates(tmp_path / "elsewhere", ("etcd.example",))
    async with member(elsewhere.server_context()) as address:
        said = await asked(f"https://{address}", trusting(elsewhere))
    assert "its certificate is for another host" in said and "write an address that it has in controllerAddr" in said


async def test_a_member_without_tls_is_said(certificates: Certificates) -> None:
    async with member(None) as address:
        said = await asked(f"https://{address}", trusting(certificates))
    assert "it speaks no TLS: write http:// for it in controllerAddr" in said


async def test_a_replaced_authority_applies_to_the_next_connection(certificates: Certificates, tmp_path: Path) -> None:
    trust = trusting(certificates, known=False)
    other = Certificates(tmp_path / "other")
    async with member(certificates.server_context()) as first, member(other.server_context()) as second:
        etcd, files = Etcd([f"https://{first}"], tls := trust.files(), attempt=5.0), Path(certificates.ca_file)
        assert await etcd.read("/k") is None
        shutil.copy(other.ca_file, files)
        moved = Etcd([f"https://{second}"], tls, attempt=5.0)
        assert await moved.read("/k") is None
        await etcd.close()
        await moved.close()


async def test_a_check_of_the_settings_says_what_is_wrong(certificates: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    async with member(certificates.server_context()) as address:
        url = f"https://{address}"

        async def findings(trust: ControllerTls) -> list[str]:
            found = await asyncio.to_thread(lambda: [*etcd_findings(url, trust)])
            return [f"{each.key} {each.sentence}" for each in found if each.is_fault]

        assert await findings(trusting(certificates)) == []
        (untrusted,) = await findings(trusting(other))
        assert untrusted.startswith(f"controllerAddr names {url}, which does not answer: ")
        assert "name the CA that signed it in controllerTrustCertPath" in untrusted
        (missing,) = await findings(ControllerTls(controller_trust_cert_path=str(tmp_path / "none.pem")))
        assert "cannot be read: No such file or directory" in missing


def test_certificates_without_https_are_warned_of() -> None:
    config = BrokerConfig(enable_controller_mode=True, controller_addr="http://127.0.0.1:2379", broker_id=1)
    config.controller_tls = ControllerTls(controller_trust_cert_path="ca.pem")
    found = [f"{each.key} {each.sentence}" for each in fits(config, ())]
    assert "controllerAddr has no https, so the certificates named for it are not used" in found
