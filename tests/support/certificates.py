"""Certificates for tests: an authority, a server's and a client's certificate, as PEM files in a folder."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


class Certificates:
    """What one authority signed; the server's certificate is for 127.0.0.1 and the name `broker.example`.

    With `server_until` it is valid until then. `authority` is that of others.
    """

    def __init__(
        self,
        folder: Path,
        server_names: tuple[str, ...] = ("127.0.0.1", "broker.example"),
        server_until: datetime | None = None,
        authority: trustme.CA | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = authority if authority is not None else trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca_file))
        self._server = self.authority.issue_cert(*server_names, not_after=server_until)
        self.server = _write(folder, "server", self._server)
        self.client = _write(folder, "client", self.authority.issue_cert("client.example"))

    def server_context(self, *, ask_clients: bool = False) -> ssl.SSLContext:
        """What a server of this process accepts connections with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server.configure_cert(context)
        if ask_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            self.authority.configure_trust(context)
        return context


class Pair:
    """A certificate and its key; `key` is PKCS#8, `encrypted_key` the same under the password `open-sesame`."""

    def __init__(self, certificate: Path, key: Path, encrypted_key: Path) -> None:
        self.certificate = certificate
        self.key = key
        self.encrypted_key = encrypted_key


PASSWORD = "open-sesame"


def _write(folder: Path, name: str, made: trustme.LeafCert) -> Pair:
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.locked.key")
    pair.certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
    for file, how in (
        (pair.key, serialization.NoEncryption()),
        (pair.encrypted_key, serialization.BestAvailableEncryption(PASSWORD.encode())),
    ):
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    return pair
