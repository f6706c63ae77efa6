"""TLS of listening ports: which connection gets a handshake, which is refused, and the certificate of the servers.

Owns the look at the first byte, the mode of a port, the rate of handshakes, and the counts and lines of what was
refused (NettyRemotingServer.HandshakeHandler in 4.9.7). Must not know what is served. Invariants: nothing older than
TLS 1.2, no renegotiation; where certificates of clients are asked for they are checked; the first byte of a connection
arrives within 30 s and a handshake ends within 10 s, or the connection does.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from eruca.remoting.addresses import block_of
from eruca.remoting.log import log
from eruca.remoting.rates import Rate
from eruca.remoting.tls import HELLO, BadTls, File, KeyPair, TlsFiles

FIRST_BYTE_WITHIN = 30.0
"""Seconds, as for a frame that is incomplete."""
HANDSHAKE_WITHIN = 10.0
"""Seconds."""
_LOOK_AGAIN = 1.0
"""Seconds that a thread waits for a byte, where the event loop watches no sockets."""
PLAIN, LIMIT, TIMEOUT, CERTIFICATE, FAILED = "plain", "limit", "timeout", "certificate", "failed"
"""Why a connection was refused: it was plain where only TLS is served, there were too many handshakes, the handshake
took too long, the client's certificate, or another failure of the handshake."""
REASONS = (PLAIN, LIMIT, TIMEOUT, CERTIFICATE, FAILED)
_NOT_PLAIN = "it speaks plain text where only TLS is served: it must set tls.enable=true (tls in Python)"
_TOO_MANY = "too many handshakes: see tls.server.handshakesPerSecond and tls.server.handshakesPerSecondPerAddress"
_OLD = ("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "WRONG_SSL_VERSION")


class TlsMode(Enum):
    """Which connections a port takes: plain ones, both kinds, or encrypted ones."""

    disabled = "disabled"
    permissive = "permissive"
    enforcing = "enforcing"


class ClientAuth(Enum):
    """Whether clients are asked for a certificate; ``optional`` takes clients without one, too."""

    none = "none"
    optional = "optional"
    require = "require"


_VERIFY = {
    ClientAuth.none: ssl.CERT_NONE,
    ClientAuth.optional: ssl.CERT_OPTIONAL,
    ClientAuth.require: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCertificate:
    """The certificate of servers, its key, and what they demand of clients; all files are PEM.

    ``ca_file`` has the authorities whose clients are taken where ``client_auth`` asks for certificates.
    """

    certificate: str
    key_file: File = None
    key_password: str | None = field(default=None, repr=False)
    client_auth: ClientAuth = ClientAuth.none
    ca_file: File = None

    @property
    def files(self) -> Sequence[File]:
        """All files."""
        return (self.certificate, self.key_file, self.ca_file)

    def context(self) -> ssl.SSLContext:
        """The context. Raises BadTls."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.num_tickets = 0  # clients resume no sessions
        names = ("tls.server.certPath", "tls.server.keyPath", "tls.server.keyPassword")
        KeyPair(self.certificate, self.key_file, self.key_password, names).load(context)
        if self.client_auth is not ClientAuth.none:
            self._trust(context)
        return context

    def _trust(self, context: ssl.SSLContext) -> None:
        context.verify_mode = _VERIFY[self.client_auth]
        try:
            context.load_verify_locations(self.ca_file)
        except (OSError, ValueError, TypeError) as error:
            raise BadTls(
                f'the certificates in tls.server.trustCertPath="{self.ca_file}" cannot be read: {error}'
            ) from None


class TlsServer:
    """What the encrypted ports of one daemon share.

    ``handshakes`` counts those that succeeded, ``plain`` the connections without one, ``refused`` those that were
    refused, by reason.
    """

    def __init__(
        self,
        certificate: ServerCertificate,
        *,
        rate: int,
        rate_of_address: int,
        first_byte_within: float = FIRST_BYTE_WITHIN,
        handshake_within: float = HANDSHAKE_WITHIN,
    ) -> None:
        self.files = TlsFiles(certificate)
        self.handshakes = 0
        self.plain = 0
        self.refused: Counter[str] = Counter()
        self.first_byte_within = first_byte_within
        self.handshake_within = handshake_within
        self._rate = Rate(rate)
        self._rate_of_address = Rate(rate_of_address)

    def may_begin(self, address: str) -> bool:
        """Whether a peer may have a handshake now."""
        return self._rate_of_address.take(block_of(address)) and self._rate.take("")

    def refuse(self, address: str, reason: str, sentence: str) -> None:
        """Count a connection that is refused, and leave a line."""
        self.refused[reason] += 1
        log.warning("tls_refused", remote=address, kind=reason, reason=sentence)


@dataclass(frozen=True, slots=True)
class TlsPort:
    """TLS of one port."""

    server: TlsServer
    enforcing: bool

    async def serve(self, sock: socket.socket, protocol: asyncio.BaseProtocol, address: str) -> None:
        """Give an accepted connection to its protocol, encrypted if the peer begins a handshake.

        Raises OSError if it ends before, or is refused.
        """
        sock.setblocking(False)
        try:
            async with asyncio.timeout(self.server.first_byte_within):
                first = await _first_byte(sock)
        except TimeoutError:
            log.warning("half_frame_closed", remote=address, reason="it has said nothing since it connected")
            raise
        if not first:
            raise ConnectionResetError("it ended before it said anything")
        loop = asyncio.get_running_loop()
        if first == HELLO[:1]:
            if not self.server.may_begin(address):
                raise self._refusal(address, LIMIT, _TOO_MANY)
            await self._handshake(sock, protocol, address)
        elif self.enforcing:
            raise self._refusal(address, PLAIN, _NOT_PLAIN)
        else:
            self.server.plain += 1
            await loop.connect_accepted_socket(lambda: protocol, sock)

    async def _handshake(self, sock: socket.socket, protocol: asyncio.BaseProtocol, address: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                sock,
                ssl=self.server.files.present,
                ssl_handshake_timeout=self.server.handshake_within,
            )
        except OSError as error:
            raise self._refusal(address, *_cause(error)) from None
        self.server.handshakes += 1

    def _refusal(self, address: str, reason: str, sentence: str) -> OSError:
        self.server.refuse(address, reason, sentence)
        return ConnectionAbortedError(sentence)


async def _first_byte(sock: socket.socket) -> bytes:
    """The first byte of a connection, which stays unread; nothing if the connection has ended. Raises OSError."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            pass
        readable: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(sock, _wake, readable)
        except NotImplementedError:  # the ProactorEventLoop of Windows
            await loop.run_in_executor(None, select.select, [sock], [], [], _LOOK_AGAIN)
            continue
        try:
            await readable
        finally:
            with contextlib.suppress(NotImplementedError):
                loop.remove_reader(sock)


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def _cause(error: OSError) -> tuple[str, str]:
    """Why a handshake failed: the reason to count, and a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CERTIFICATE, f"its certificate is not accepted: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        if "taking longer" in str(error):
            return TIMEOUT, "it did not end the handshake in time"
        return FAILED, "it left during the handshake: it may not trust this server's certificate"
    text = str(error).upper()
    if "DID_NOT_RETURN_A_CERTIFICATE" in text:
        return CERTIFICATE, "it has no certificate, and tls.server.need.client.auth=require asks for one"
    if any(word in text for word in _OLD):
        return FAILED, "it speaks nothing newer than TLS 1.1: TLS 1.2 is the least"
    if "ALERT" in text and ("CERTIFICATE" in text or "UNKNOWN_CA" in text):
        return FAILED, f"it does not trust this server's certificate ({_words(error)}): it needs the CA of that"
    return FAILED, f"the handshake failed ({_words(error)})"


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def open_keys(files: Sequence[File]) -> list[Path]:
    """Those files that other users may read, or their group may write."""
    paths = [Path(file) for file in files if file is not None]
    return [path for path in paths if path.exists() and path.stat().st_mode & 0o027]
