"""The settings of TLS under Apache's names, for servers, for their connections to others, and for mqadmin.

Owns the keys, their defaults, and what contradicts (TlsSystemConfig and TlsHelper in 4.9.7). Unlike there: no
certificate, no TLS; a certificate made for a test only where that is asked for; servers are verified, and clients where
they are asked for certificates. Must not know ports.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

from eruca.remoting.settings import Finding, setting
from eruca.remoting.tls import BadTls, Tls, TlsSource
from eruca.remoting.tls_server import ClientAuth, ServerCertificate, TlsMode, open_keys

TLS_FILE = "/etc/rocketmq/tls.properties"


@dataclass(kw_only=True)
class TlsClientSettings:
    """TLS of connections to servers."""

    tls_enable: bool | None = setting(None, key="tls.enable")
    """Unset, a daemon encrypts its connections where tls.server.mode is enforcing, as in 4.9."""
    tls_test_mode_enable: bool = setting(False, key="tls.test.mode.enable")
    """A throw-away certificate of the servers, and no verification of others: for tests."""
    tls_client_key_path: str | None = setting(None, key="tls.client.keyPath", path=True)
    """The file of the key of this daemon as a client of others."""
    tls_client_key_password: str | None = setting(None, key="tls.client.keyPassword", secret=True)
    """The password of that key."""
    tls_client_cert_path: str | None = setting(None, key="tls.client.certPath", path=True)
    """The file of the certificate of this daemon as a client of others."""
    tls_client_auth_server: bool = setting(True, key="tls.client.authServer")
    """Whether the certificates of servers are verified."""
    tls_client_trust_cert_path: str | None = setting(None, key="tls.client.trustCertPath", path=True)
    """The file of the authorities whose servers are trusted; empty: those of the system."""
    tls_client_check_hostname: bool = setting(True, key="tls.client.checkHostname")
    """Whether the certificate of a server must contain its address. A key of Eruca's own."""

    @property
    def client(self) -> Tls:
        """The settings of encrypted connections."""
        test = self.tls_test_mode_enable
        return Tls(
            ca_file=self.tls_client_trust_cert_path or None,
            certificate_file=None if test else self.tls_client_cert_path or None,
            key_file=None if test else self.tls_client_key_path or None,
            key_password=self.tls_client_key_password or None,
            verify=not test and self.tls_client_auth_server,
            check_hostname=self.tls_client_check_hostname,
        )


@dataclass(kw_only=True)
class TlsSettings(TlsClientSettings):
    """TLS of a daemon."""

    tls_config_file: str = setting(TLS_FILE, key="tls.config.file", path=True, more="tls.")
    """A file with more of these settings."""
    tls_server_mode: TlsMode | None = setting(None, key="tls.server.mode", important=True)
    """Unset: disabled without a certificate, else permissive."""
    tls_server_need_client_auth: ClientAuth = setting(ClientAuth.none, key="tls.server.need.client.auth")
    """Whether clients are asked for certificates, and whether they need one."""
    tls_server_key_path: str | None = setting(None, key="tls.server.keyPath", path=True)
    """The file of the key of the servers."""
    tls_server_key_password: str | None = setting(None, key="tls.server.keyPassword", secret=True)
    """The password of that key."""
    tls_server_cert_path: str | None = setting(None, key="tls.server.certPath", path=True)
    """The file of the certificate of the servers."""
    tls_server_auth_client: bool = setting(True, key="tls.server.authClient")
    """Whether the certificates of clients are checked: only true is possible where they are asked for."""
    tls_server_trust_cert_path: str | None = setting(None, key="tls.server.trustCertPath", path=True)
    """The file of the authorities whose clients are trusted."""
    tls_server_handshakes_per_second: int = setting(500, key="tls.server.handshakesPerSecond", at_least=0)
    """TLS handshakes in a second, at most; 0 for any number. A handshake takes about 1 ms of CPU."""
    tls_server_handshakes_per_second_per_address: int = setting(
        50, key="tls.server.handshakesPerSecondPerAddress", at_least=0
    )
    """TLS handshakes of one address (IPv6: of a /64 block) in a second, at most; 0 for any number."""
    tls_ha_server_mode: TlsMode | None = setting(None, key="tls.ha.server.mode")
    """The mode of the HA port; unset: tls.server.mode. Apache's slaves speak no TLS."""
    tls_ha_enable: bool | None = setting(None, key="tls.ha.enable")
    """Whether a slave encrypts its connection to the master's HA port; unset: tls.enable."""

    @property
    def mode(self) -> TlsMode:
        """The mode of the ports."""
        if self.tls_server_mode is not None:
            return self.tls_server_mode
        named = self.tls_server_cert_path or self.tls_test_mode_enable
        return TlsMode.permissive if named else TlsMode.disabled

    @property
    def ha_mode(self) -> TlsMode:
        """The mode of the HA port."""
        return self.mode if self.tls_ha_server_mode is None else self.tls_ha_server_mode

    @property
    def enabled(self) -> bool:
        """Whether connections to others are encrypted."""
        return self.mode is TlsMode.enforcing if self.tls_enable is None else self.tls_enable

    @property
    def ha_enabled(self) -> bool:
        """Whether the connection to a master's HA port is encrypted."""
        return self.enabled if self.tls_ha_enable is None else self.tls_ha_enable

    @property
    def serves(self) -> bool:
        """Whether a port of this daemon takes encrypted connections."""
        return TlsMode.disabled is not self.mode or TlsMode.disabled is not self.ha_mode

    def findings(self) -> Iterator[Finding]:
        """What of servers contradicts, or cannot be done by this installation."""
        if self.serves:
            yield from self._contradictions()
            if importlib.util.find_spec("uvloop") is None:
                yield Finding(
                    "tls.server.mode",
                    "needs uvloop, without which each encrypted connection takes 280 KiB: pip install 'eruca[broker]', "
                    "or set tls.server.mode=disabled",
                )

    def _contradictions(self) -> Iterator[Finding]:
        if not self.tls_server_cert_path and not self.tls_test_mode_enable:
            yield Finding(
                "tls.server.mode",
                "needs a certificate: set tls.server.certPath and tls.server.keyPath ('eruca tls init' makes them), or "
                "tls.server.mode=disabled",
            )
        asks = self.tls_server_need_client_auth is not ClientAuth.none
        if asks and not (self.tls_server_auth_client and self.tls_server_trust_cert_path):
            yield Finding(
                "tls.server.need.client.auth",
                f"{self.tls_server_need_client_auth.name} would take any certificate: name the CA of the clients in "
                "tls.server.trustCertPath, with tls.server.authClient=true, or write none",
            )

    def check(self) -> None:
        """Raise BadTls if there are findings."""
        found = [f"{each.key} {each.sentence}" for each in self.findings()]
        if found:
            raise BadTls("\n".join(found))

    def unusable(self) -> Iterator[Finding]:
        """Which files cannot be used on this machine, and which keys others may read."""
        if any(self.findings()):
            return
        keys = {"tls.server.keyPath": self.tls_server_key_path, "tls.client.keyPath": self.tls_client_key_path}
        for key, path in keys.items():
            if open_keys([path or None]):
                yield Finding(key, f"names {path}, which others may read: chmod 600", False)
        sources: list[tuple[str, TlsSource]] = []
        if self.serves and not self.tls_test_mode_enable:
            sources.append(("tls.server.certPath", self.certificate()))
        if self.enabled or self.ha_enabled:
            sources.append(("tls.client.certPath", self.client))
        for key, source in sources:
            try:
                source.context()
            except BadTls as fault:
                yield Finding(key, f"does not work: {fault}")

    def certificate(self) -> ServerCertificate:
        """The certificate of the servers, where one is named."""
        return ServerCertificate(
            certificate=self.tls_server_cert_path or "",
            key_file=self.tls_server_key_path or None,
            key_password=self.tls_server_key_password or None,
            client_auth=self.tls_server_need_client_auth,
            ca_file=self.tls_server_trust_cert_path or None,
        )
