"""TLS of one daemon: that of its ports, that of its connections to others, and how long its certificates are valid.

Owns what is built of the settings at the start, read again when files are replaced, and the lines about keys that
others may read and certificates that expire. Must not know what the ports serve. Invariant: nothing is built, read or
looked at that the settings do not ask for.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

from eruca.remoting.clock import now_ms
from eruca.remoting.log import log
from eruca.remoting.reloads import Reloads
from eruca.remoting.tls import BadTls, TlsFiles
from eruca.remoting.tls_server import ServerCertificate, TlsMode, TlsPort, TlsServer, open_keys
from eruca.remoting.tls_settings import TlsSettings
from eruca.remoting.tls_test_mode import make_test_certificate

DAYS = (30, 7, 1)
"""Days before its end when a certificate gets a line each, and one more when it has expired."""
LOOK_EVERY = 3600.0
"""Seconds."""
DAY = 86_400


class DaemonTls:
    """What one daemon has of TLS.

    ``server`` is None without encrypted ports, ``client`` and ``ha_client`` without encrypted connections to others.
    ``clock`` returns ms since 1970. Raises BadTls.
    """

    def __init__(self, settings: TlsSettings, *, clock: Callable[[], int] = now_ms) -> None:
        settings.check()
        self._settings = settings
        self._clock = clock
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._said: dict[str, tuple[int, int]] = {}
        """For which end of each certificate which of DAYS got its line."""
        self.server = self._server() if settings.serves else None
        files = self._client() if settings.enabled or settings.ha_enabled else None
        self.client = files if settings.enabled else None
        self.ha_client = files if settings.ha_enabled else None
        self._files = {"client": files, "server": self.server.files if self.server is not None else None}

    def _server(self) -> TlsServer:
        settings = self._settings
        certificate = settings.certificate()
        if settings.tls_test_mode_enable:
            certificate = self._throw_away(certificate)
        for path in open_keys([settings.tls_server_key_path, settings.tls_client_key_path]):
            log.warning("tls_key_readable", file=str(path), advice="others may read this key: chmod 600")
        return TlsServer(
            certificate,
            rate=settings.tls_server_handshakes_per_second,
            rate_of_address=settings.tls_server_handshakes_per_second_per_address,
        )

    def _client(self) -> TlsFiles:
        try:
            return TlsFiles(self._settings.client)
        except BadTls as error:
            raise BadTls(f"tls.client.certPath, tls.client.keyPath and tls.client.trustCertPath: {error}") from None

    def _throw_away(self, certificate: ServerCertificate) -> ServerCertificate:
        self._folder = tempfile.TemporaryDirectory(prefix="eruca-tls-")
        file = Path(self._folder.name) / "test.pem"
        make_test_certificate(file)
        log.warning("tls_test_mode", advice="clients cannot verify this server: set tls.test.mode.enable=false")
        return dataclasses.replace(certificate, certificate=str(file), key_file=None, key_password=None)

    @property
    def port(self) -> TlsPort | None:
        """TLS of the ports for clients."""
        return self._port(self._settings.mode)

    @property
    def ha_port(self) -> TlsPort | None:
        """TLS of the HA port."""
        return self._port(self._settings.ha_mode)

    def _port(self, mode: TlsMode) -> TlsPort | None:
        if self.server is None or mode is TlsMode.disabled:
            return None
        return TlsPort(self.server, mode is TlsMode.enforcing)

    def register(self, reloads: Reloads) -> None:
        """Have the files read again when they were replaced."""
        for name, files in self._files.items():
            if files is not None:
                reloads.add(f"certificates of the {name}", files.read, files=files.paths)

    # ------------------------------------------------------------------ expiry

    def seconds_left(self) -> dict[str, int]:
        """For how long the certificates are valid that are in use, of the ``server`` and of the ``client``."""
        now = self._clock() // 1000
        return {
            name: files.expires_at - now
            for name, files in self._files.items()
            if files is not None and files.expires_at is not None
        }

    async def watch(self) -> None:
        """Leave a line when a certificate is soon to expire, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> None:
        """Leave a line for each certificate that has come closer to its end than one of DAYS."""
        for name, left in self.seconds_left().items():
            files = self._files[name]
            assert files is not None and files.expires_at is not None
            reached = min((days for days in (*DAYS, 0) if left <= days * DAY), default=None)
            if reached is None or self._said.get(name) == (files.expires_at, reached):
                continue
            self._said[name] = files.expires_at, reached
            if reached:
                log.warning("tls_certificate_expires", certificate=name, days=left // DAY, advice=_RENEW)
            else:
                log.error("tls_certificate_expired", certificate=name, advice=_RENEW)


_RENEW = "replace its files: they are read again without a restart"
