"""Certificates: an authority of one's own, and what it issues for servers and clients.

Owns keys (of the curve P-256, as PKCS#8) and the extensions that TLS asks for. Needs the package cryptography (the
extra ``eruca[tls]``): only commands import it, never a daemon. Invariant: a key is readable by its owner alone, from
its first byte on.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eruca.remoting.operating_system import open_file

DAYS = 397
"""How long a certificate is valid, unless another time is asked for."""
AUTHORITY_DAYS = 3650
_EARLIER = timedelta(hours=1)
"""How long before it was made a certificate is valid, for clocks that are behind."""
_PEM = serialization.Encoding.PEM


class Issued(NamedTuple):
    """A certificate and its key."""

    certificate: bytes
    """PEM."""
    key: ec.EllipticCurvePrivateKey

    def key_pem(self, password: str | None = None) -> bytes:
        """The key as PKCS#8, encrypted with a password."""
        how: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            how = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, how)


class Authority:
    """An authority: its certificate is what others trust."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def make(cls, name: str = "Eruca", days: int = AUTHORITY_DAYS) -> Self:
        """A new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        named = _name(f"{name} CA {os.urandom(4).hex()}")
        builder = _builder(named, named, key, days).add_extension(x509.BasicConstraints(True, 0), critical=True)
        return cls(builder.add_extension(_usage(signs=True), critical=True).sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> Self:
        """An authority from its PEM files. Raises ValueError."""
        found = serialization.load_pem_private_key(key, None)
        read = x509.load_pem_x509_certificate(certificate)
        if not isinstance(found, ec.EllipticCurvePrivateKey) or found.public_key() != read.public_key():
            raise ValueError("the authority's key does not belong to its certificate")
        return cls(read, found)

    @property
    def issued(self) -> Issued:
        """The authority's own certificate and key."""
        return Issued(self._certificate.public_bytes(_PEM), self._key)

    def issue(self, hosts: Sequence[str], days: int = DAYS) -> Issued:
        """A certificate of a server with these names and addresses."""
        names: list[x509.GeneralName] = [_host(each) for each in hosts]
        return self._issue(hosts[0], days, x509.SubjectAlternativeName(names))

    def issue_client(self, name: str, days: int = DAYS) -> Issued:
        """A certificate of a client."""
        return self._issue(name, days, None)

    def _issue(self, name: str, days: int, names: x509.SubjectAlternativeName | None) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(_name(name), self._certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        if names is not None:  # a server is a client of nameservers and masters, too
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(of_authority, critical=False)
        return Issued(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM), key)


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file of this ``mode``, by default for this user alone, in place of an existing one. Raises OSError."""
    aside = path.with_name(path.name + ".tmp")
    aside.unlink(missing_ok=True)
    with open(open_file(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def hosts_of(certificate: bytes) -> list[str]:
    """The names and addresses of a server's certificate. Raises ValueError."""
    try:
        found = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in found.value]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(text: str) -> x509.GeneralName:
    """Raises ValueError for what is no name of a host."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
