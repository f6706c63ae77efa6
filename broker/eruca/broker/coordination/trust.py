"""TLS to etcd: whom a broker trusts there, by which certificate it is known, and why a handshake failed.

Owns the settings (keys of Eruca's own) and the sentences. Files that are replaced apply to new connections. Must not
know what is asked. Invariant: etcd's certificate is always checked, with its name.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from eruca.remoting.settings import setting
from eruca.remoting.tls import Tls, TlsFiles


@dataclass(kw_only=True)
class ControllerTls:
    """TLS to the members of controllerAddr that have https."""

    controller_trust_cert_path: str | None = setting(None, path=True)
    """The file of the authorities whose etcd is trusted, for https in controllerAddr; empty: those of the system. A key
    of Eruca's own."""
    controller_cert_path: str | None = setting(None, path=True)
    """The file of this broker's certificate for an etcd that asks for one (its --client-cert-auth). A key of Eruca's
    own."""
    controller_key_path: str | None = setting(None, path=True)
    """The file of the key of that certificate; empty: the certificate's file has it. A key of Eruca's own."""
    controller_key_password: str | None = setting(None, secret=True)
    """The password of that key. A key of Eruca's own."""

    @property
    def named(self) -> bool:
        """Whether anything is set."""
        return any((self.controller_trust_cert_path, self.controller_cert_path, self.controller_key_path))

    def files(self) -> TlsFiles:
        """What connections to etcd are made with. Raises BadTls for unusable files."""
        return TlsFiles(
            Tls(
                ca_file=self.controller_trust_cert_path or None,
                certificate_file=self.controller_cert_path or None,
                key_file=self.controller_key_path or None,
                key_password=self.controller_key_password or None,
            )
        )


UNHEARD = (
    "it closed the connection before it answered, as an etcd does that does not trust this broker's certificate: name "
    "one in controllerCertPath and controllerKeyPath"
)
"""Why a connection with TLS ended that never said anything."""


def why_no_tls(fault: Exception) -> str | None:
    """Why TLS with a member of etcd failed, and what to do; None for another fault."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        said = fault.verify_message.rstrip(".")
        if "mismatch" in said:
            return f"its certificate is for another host ({said}): write an address that it has in controllerAddr"
        if "expired" in said or "not yet valid" in said:
            return f"its certificate is not valid now ({said}): etcd needs another one, unless a clock is wrong"
        return f"its certificate is not trusted ({said}): name the CA that signed it in controllerTrustCertPath"
    if not isinstance(fault, ssl.SSLError):
        return None
    text = str(fault).upper()
    if "ALERT" in text and any(word in text for word in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")):
        return (
            "it does not accept this broker without a certificate that it trusts: name one in controllerCertPath and "
            "controllerKeyPath"
        )
    if "WRONG_VERSION_NUMBER" in text or isinstance(fault, ssl.SSLEOFError):
        return "it speaks no TLS: write http:// for it in controllerAddr, or have etcd serve TLS (--cert-file)"
    return f"the TLS handshake failed ({fault.reason or fault})"
