"""TLS of connecting peers: trusted certificates, the own certificate, and the reasons of failed handshakes.

Owns the settings, the context built of them, and the error texts; and, for servers too, the files of a certificate with
its key: they are read when the context is built, and again if one of them was replaced. Knows no listening sockets.
Invariant: a server's certificate is checked unless ``verify=False`` is set; no password is ever shown.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple, Protocol

from eruca.protocol.errors import ProtocolError
from eruca.protocol.x509 import validity

HELLO = b"\x16\x03"
"""How TLS begins, and no frame and no report of a slave."""

File = str | PathLike[str] | None
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class TlsWords(NamedTuple):
    """What a person sets to mend TLS, as the sentences about a failed connection call it."""

    on: str
    off: str
    trust: str
    certificate: str
    """The own certificate and its key."""
    name: str
    """What is done about a certificate for another host, after "or"."""


WORDS = TlsWords(
    on="tls=Tls(...), tls.enable=true",
    off="tls=None, tls.enable=false",
    trust="ca_file (tls.client.trustCertPath)",
    certificate="certificate_file and key_file (tls.client.certPath, tls.client.keyPath)",
    name="say which one is expected with server_name",
)
"""Those of programs and daemons."""


class BadTls(ValueError):
    """An unusable TLS setting; the message names it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """The TLS settings of connections.

    Args:
        ca_file: the certificates that are trusted, PEM (tls.client.trustCertPath); None trusts this system's.
        certificate_file: this client's certificate and its chain, PEM, for servers that ask for one (mutual TLS).
        key_file: the key of that certificate, PEM; None where the certificate's file has it.
        key_password: of an encrypted key.
        verify: whether a server must have a trusted certificate. Without it anyone can impersonate the server.
        check_hostname: whether the certificate must name the host (or address) that was connected to. Brokers are
            connected to as they registered, mostly by address.
        server_name: the name that every server's certificate must have instead.
    """

    ca_file: File = None
    certificate_file: File = None
    key_file: File = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True
    server_name: str | None = None

    @property
    def certificate(self) -> File:
        """The file of the own certificate."""
        return self.certificate_file

    @property
    def files(self) -> Sequence[File]:
        """All files."""
        return (self.ca_file, self.certificate_file, self.key_file)

    def context(self) -> ssl.SSLContext:
        """The context of these settings. Raises BadTls for unusable files."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            raise BadTls(f'the certificates in ca_file="{self.ca_file}" cannot be read: {_reason(error)}') from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify and self.check_hostname
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_file is not None:
            KeyPair(self.certificate_file, self.key_file, self.key_password).load(context)
        elif self.key_file is not None:
            raise BadTls("key_file is given without certificate_file: a key proves nothing without its certificate")
        return context


class KeyPair(NamedTuple):
    """A certificate and its key, which may be in the same file; ``names`` are those of the three settings in errors."""

    certificate: str | PathLike[str]
    key: File
    password: str | None
    names: tuple[str, str, str] = ("certificate_file", "key_file", "key_password")

    def load(self, context: ssl.SSLContext) -> None:
        """Make it the own certificate of a context. Raises BadTls."""
        certificate, key, password_name = self.names

        def password() -> str:
            if not self.password:
                raise BadTls(f'the key of "{self.certificate}" is encrypted: give its {password_name}')
            return self.password

        try:
            context.load_cert_chain(self.certificate, self.key, password)
        except (OSError, ValueError) as error:
            if isinstance(error, BadTls):
                raise
            raise BadTls(
                f'{certificate}="{self.certificate}" and {key}="{self.key or self.certificate}" cannot be used: '
                f"{_reason(error)}; PEM files that belong together are expected, and the {password_name} of an "
                "encrypted key"
            ) from None


def expiry(certificate: str | PathLike[str]) -> int | None:
    """When the first certificate in a file expires, in seconds since 1970; None if the file has none."""
    try:
        with open(certificate, encoding="ascii", errors="replace") as file:
            text = file.read()
        start = text.index(_BEGIN)
        block = text[start : text.index(_END, start)] + _END
        return validity(ssl.PEM_cert_to_DER_cert(block)).end
    except (OSError, ValueError, ProtocolError):
        return None


def tls_arguments(
    tls: ssl.SSLContext | TlsFiles | None, host: str, timeout: float, server_name: str | None = None
) -> dict[str, Any]:
    """The arguments of ``create_connection`` to a host, whose certificate must name it, or ``server_name``."""
    if tls is None:
        return {}
    return {
        "ssl": tls.context() if isinstance(tls, TlsFiles) else tls,
        "server_hostname": server_name or host,
        "ssl_handshake_timeout": timeout,
    }


class TlsSource(Protocol):
    """Settings whose context is built of files: ``Tls``, or those of a server."""

    @property
    def certificate(self) -> File:
        """The file of the own certificate."""

    @property
    def files(self) -> Sequence[File]:
        """All files."""

    def context(self) -> ssl.SSLContext:
        """The context. Raises BadTls."""


class TlsFiles:
    """The context of some settings over the life of a program: replaced files apply to new connections.

    If the files are unusable at that moment (a new certificate whose key is not written yet), the context stays as it
    was; ``fault`` holds the reason, and the next connection tries again. ``expires_at`` is when the own certificate
    expires, in seconds since 1970; None without one. Raises BadTls if the files are unusable at first.
    """

    def __init__(self, tls: TlsSource) -> None:
        self._tls = tls
        self.fault: str | None = None
        self.expires_at: int | None = None
        self._seen = self._look()
        self._context = self._load()

    @property
    def present(self) -> ssl.SSLContext:
        """The context as it was last read."""
        return self._context

    def context(self) -> ssl.SSLContext:
        """The context, read again if a file was replaced."""
        if self._look() != self._seen:
            try:
                self.read()
            except BadTls as error:
                self.fault = f"its files were replaced and the former ones are in use, since {error}"
        return self._context

    def read(self) -> list[str]:
        """Read the files again; returns a sentence if they were replaced. Raises BadTls; then the context stays."""
        seen = self._look()
        self._context = self._load()
        replaced, self._seen, self.fault = seen != self._seen, seen, None
        return ["new connections use the replaced certificates"] if replaced else []

    def paths(self) -> list[str | PathLike[str]]:
        """The files."""
        return [file for file in self._tls.files if file is not None]

    def _load(self) -> ssl.SSLContext:
        context = self._tls.context()
        self.expires_at = expiry(self._tls.certificate) if self._tls.certificate is not None else None
        return context

    def _look(self) -> list[tuple[int, ...] | None]:
        """What identifies the present version of each file; None for a missing one."""
        found: list[tuple[int, ...] | None] = []
        for file in self.paths():
            try:
                one = os.stat(file)
            except OSError:
                found.append(None)
            else:
                found.append((one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns))
        return found


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def why_no_handshake(error: Exception, words: TlsWords = WORDS) -> str | None:
    """Why a TLS handshake failed, and what to do; None if the error has another cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message
        if "ostname mismatch" in said or "address mismatch" in said:
            return (
                f"its certificate is for another host ({said.rstrip('.')}): connect by a name that it has, or "
                f"{words.name}"
            )
        if "expired" in said or "not yet valid" in said:
            return f"its certificate is not valid now ({said}): the server needs another one, unless a clock is wrong"
        return f"its certificate is not trusted ({said}): name the CA that signed it with {words.trust}"
    if isinstance(error, ssl.SSLError) and "WRONG_VERSION_NUMBER" not in str(error):
        refused = why_not_accepted(error, words)
        if refused is not None:
            return refused
        if not isinstance(error, ssl.SSLEOFError):
            return f"the TLS handshake failed ({_reason(error)})"
    if isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return (
            "the server broke off the TLS handshake: it may serve no TLS (tls.server.mode=disabled in RocketMQ); "
            f"then connect without TLS ({words.off})"
        )
    return None


def why_not_accepted(error: BaseException | None, words: TlsWords = WORDS) -> str | None:
    """Why a server rejected this client's certificate; None if the error has another cause."""
    text = str(error).upper()
    if not isinstance(error, ssl.SSLError) or "ALERT" not in text:
        return None
    if any(word in text for word in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")):
        return (
            f"the server does not accept this client's certificate ({_reason(error)}): give {words.certificate} of one "
            "that it trusts"
        )
    return None


def why_ended(error: Exception | None, words: TlsWords = WORDS, *, heard: bool, encrypted: bool) -> str:
    """The likely cause of an ended connection, to follow "the connection ended"; empty if unknown.

    ``heard``: the peer had sent something.
    """
    refused = why_not_accepted(error, words)
    if refused is not None:
        return f": {refused}"
    if heard:
        return ""
    if not encrypted:
        return f", before the peer said anything: if it serves TLS only, TLS must be set here, too ({words.on})"
    return (
        ", before the peer said anything: if it asks for certificates, one that it trusts must be set here, by "
        f"{words.certificate}"
    )
