"""`eruca tls init`: certificates that servers and clients take, and their renewal."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner

from eruca.remoting import BadTls, Tls
from eruca.remoting.tls_server import ClientAuth, ServerCertificate
from eruca.standalone.cli import main

RUN = CliRunner()


def init(folder: Path, *options: str) -> str:
    done = RUN.invoke(main, ["tls", "init", str(folder), *options])
    assert done.exit_code == 0, done.output
    return done.output


def refused(folder: Path, *options: str) -> str:
    done = RUN.invoke(main, ["tls", "init", str(folder), *options])
    assert done.exit_code == 1
    return done.output


async def handshake(folder: Path, server_name: str, *, client: Path | None = None, password: str | None = None) -> str:
    """The version that a server and a client with these files agree on."""
    own = ServerCertificate(
        certificate=str(folder / "server.pem"),
        key_file=folder / "server.key",
        key_password=password,
        client_auth=ClientAuth.require,
        ca_file=folder / "ca.pem",
    )
    client = client or folder
    other = Tls(
        ca_file=client / "ca.pem",
        certificate_file=client / "client.pem",
        key_file=client / "client.key",
        key_password=password,
    )

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=own.context())
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=other.context(), server_hostname=server_name
        )
        assert await reader.read() == b"hello"
        version: str = writer.get_extra_info("ssl_object").version()
        writer.close()
    return version


async def test_servers_and_clients_take_them(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    said = init(folder, "--host", "mq.example", "--host", "10.1.2.3", "--host", "::1", "--host", "mq.example")
    assert "a new authority" in said and "for mq.example, 10.1.2.3, ::1, client.pem" in said
    for name in ("mq.example", "10.1.2.3", "::1"):
        assert await handshake(folder, name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(folder, "other.example")
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in folder.iterdir()} == {
        **dict.fromkeys(("ca.key", "server.key", "client.key"), "0o600"),
        **dict.fromkeys(("ca.pem", "server.pem", "client.pem"), "0o644"),
    }
    assert folder.stat().st_mode & 0o077 == 0


def test_a_second_time_renews(tmp_path: Path) -> None:
    init(tmp_path, "--host", "mq.example", "--host", "10.1.2.3")
    former = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    said = init(tmp_path, "--days", "30")
    assert "a new authority" not in said and "mq.example, 10.1.2.3" in said
    changed = {file.name for file in tmp_path.iterdir() if file.read_bytes() != former[file.name]}
    assert changed == {"server.pem", "server.key", "client.pem", "client.key"}
    assert asyncio.run(handshake(tmp_path, "10.1.2.3"))


async def test_certificates_of_another_authority(tmp_path: Path) -> None:
    init(tmp_path / "one", "--host", "mq.example")
    init(tmp_path / "other", "--host", "mq.example")
    with pytest.raises(OSError):
        await handshake(tmp_path / "one", "mq.example", client=tmp_path / "other")


async def test_keys_with_a_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame\n")
    folder = tmp_path / "certificates"
    init(folder, "--host", "mq.example", "--password-file", str(tmp_path / "password"))
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in (folder / "server.key").read_bytes()
    assert await handshake(folder, "mq.example", password="open sesame")
    with pytest.raises(BadTls, match="keyPassword"):
        await handshake(folder, "mq.example")


def test_what_it_refuses(tmp_path: Path) -> None:
    assert "name the servers by --host" in refused(tmp_path / "none")
    assert "'ü.example' is no name and no address of a server" in refused(tmp_path / "odd", "--host", "ü.example")
    init(tmp_path, "--host", "mq.example")
    (tmp_path / "ca.key").rename(tmp_path / "away")
    assert "put the other back" in refused(tmp_path)
    (tmp_path / "ca.key").write_bytes((tmp_path / "server.key").read_bytes())
    assert "key does not belong to its certificate" in refused(tmp_path)
    (tmp_path / "ca.key").write_text("nonsense")
    assert "use another folder" in refused(tmp_path)


@pytest.mark.parametrize("host", ["a b", "", "mq_1!", "10.0.0.256", "a..b", "mq1:10911"])
def test_what_is_no_name_of_a_server_is_refused_and_nothing_is_written(tmp_path: Path, host: str) -> None:
    said = refused(tmp_path / "tls", "--host", "mq1", "--host", host)
    assert said.strip() == (
        f"eruca tls init: --host {host!r} is no name and no address of a server: write one, such as mq1.example"
    )
    assert not (tmp_path / "tls").exists()


def test_names_of_all_hosts_of_a_domain_and_addresses_are_taken(tmp_path: Path) -> None:
    init(tmp_path / "tls", "--host", "*.mq.example", "--host", "::1", "--host", "10.0.0.1", "--host", "mq_1.example")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "tls"
    said = refused(folder, "--host", "mq1")
    assert said.strip() == f"eruca tls init: {folder} cannot be used (Not a directory): name another place"
