"""TLS of connecting peers: trusted certificates, the own certificate, and the reasons of failed handshakes.

Owns the settings, the context built of them, and the error texts. Reads the files when the context is built, and again
for a new connection if one of them was replaced.
Invariant: a server's certificate is checked unless ``verify=False`` is set; no password is ever shown.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from os import PathLike

File = str | PathLike[str] | None


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

    def context(self) -> ssl.SSLContext:
        """The context of these settings. Raises BadTls for unusable files."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            raise BadTls(f'the certificates in ca_file="{self.ca_file}" cannot be read: {_reason(error)}') from None
        context.check_hostname = self.verify and self.check_hostname
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_file is not None:
            self._load_certificate(context, self.certificate_file)
        elif self.key_file is not None:
            raise BadTls("key_file is given without certificate_file: a key proves nothing without its certificate")
        return context

    def _load_certificate(self, context: ssl.SSLContext, file: str | PathLike[str]) -> None:
        def password() -> str:
            if self.key_password is None:
                raise BadTls(f'the key of "{file}" is encrypted: give its key_password')
            return self.key_password

        try:
            context.load_cert_chain(file, self.key_file, password)
        except (OSError, ValueError) as error:
            if isinstance(error, BadTls):
                raise
            raise BadTls(
                f'certificate_file="{file}" and key_file="{self.key_file or file}" cannot be used: {_reason(error)}; '
                "PEM files that belong together are expected, and the key_password of an encrypted key"
            ) from None


class TlsFiles:
    """The context of some settings over the life of a program: replaced files apply to new connections.

    If the files are unusable at that moment (a new certificate whose key is not written yet), the context stays as it
    was; ``fault`` holds the reason, and the next connection tries again. Raises BadTls if they are unusable at first.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._seen = self._look()
        self._context = tls.context()
        self.fault: str | None = None

    def context(self) -> ssl.SSLContext:
        """The present context."""
        seen = self._look()
        if seen != self._seen:
            try:
                self._context = self._tls.context()
            except BadTls as error:
                self.fault = f"its files were replaced and the former ones are in use, since {error}"
            else:
                self._seen, self.fault = seen, None
        return self._context

    def _look(self) -> list[tuple[int, ...] | None]:
        """What identifies the present version of each file; None for a missing one."""
        found: list[tuple[int, ...] | None] = []
        for file in (self._tls.ca_file, self._tls.certificate_file, self._tls.key_file):
            try:
                one = os.stat(file) if file is not None else None
            except OSError:
                one = None
            found.append(None if one is None else (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns))
        return found


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def why_no_handshake(error: Exception) -> str | None:
    """Why a TLS handshake failed; None if the error has another cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message
        if "ostname mismatch" in said or "address mismatch" in said:
            return (
                f"its certificate is for another host ({said.rstrip('.')}): connect by a name that it has, or say "
                "which one is expected with server_name"
            )
        if "expired" in said or "not yet valid" in said:
            return f"its certificate is not valid now ({said}): the server needs another one, unless a clock is wrong"
        return f"its certificate is not trusted ({said}): name the CA that signed it with ca_file"
    if isinstance(error, ssl.SSLError) and "WRONG_VERSION_NUMBER" not in str(error):
        refused = why_not_accepted(error)
        if refused is not None:
            return refused
        if not isinstance(error, ssl.SSLEOFError):
            return f"the TLS handshake failed ({_reason(error)})"
    if isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return "the server broke off the TLS handshake: it may serve no TLS (tls.server.mode=disabled in RocketMQ)"
    return None


def why_not_accepted(error: BaseException | None) -> str | None:
    """Why a server rejected this client's certificate; None if the error has another cause."""
    text = str(error).upper()
    if not isinstance(error, ssl.SSLError) or "ALERT" not in text:
        return None
    if any(word in text for word in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")):
        return (
            f"the server does not accept this client's certificate ({_reason(error)}): give certificate_file and "
            "key_file of one that it trusts"
        )
    return None


def why_ended(error: Exception | None, *, heard: bool, encrypted: bool) -> str:
    """The likely cause of an ended connection, to follow "the connection ended"; empty if unknown.

    ``heard``: the peer had sent something.
    """
    refused = why_not_accepted(error)
    if refused is not None:
        return f": {refused}"
    if heard:
        return ""
    if not encrypted:
        return ", before the peer said anything: if it serves TLS only, TLS must be set here, too"
    return ", before the peer said anything: if it asks for certificates, certificate_file must be set here"
