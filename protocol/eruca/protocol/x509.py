"""The validity of an X.509 certificate, read from its DER bytes.

Owns the few steps through ASN.1 that lead there (RFC 5280, 4.1). Knows no keys, names and signatures: OpenSSL judges
those. Raises ProtocolError for bytes that are no certificate.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from eruca.protocol.errors import ProtocolError

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_FORMATS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}


class Validity(NamedTuple):
    """From when until when a certificate is valid, in seconds since 1970."""

    begin: int
    end: int


class _Value(NamedTuple):
    tag: int
    start: int
    end: int


def validity(der: bytes) -> Validity:
    """The validity of a certificate. Raises ProtocolError."""
    certificate = _value(der, 0, _SEQUENCE)
    body = _value(der, certificate.start, _SEQUENCE)
    at = body.start
    if _value(der, at).tag == _VERSION:
        at = _value(der, at).end
    for _ in ("serial number", "signature algorithm", "issuer"):
        at = _value(der, at).end
    both = _value(der, at, _SEQUENCE)
    begin = _value(der, both.start)
    return Validity(_moment(der, begin), _moment(der, _value(der, begin.end)))


def _value(der: bytes, at: int, tag: int | None = None) -> _Value:
    """The value that begins at ``at``, which has this tag."""
    try:
        found, size, start = der[at], der[at + 1], at + 2
    except IndexError:
        raise ProtocolError("a certificate ends too early") from None
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start])
    if start + size > len(der):
        raise ProtocolError("a certificate ends too early")
    if tag is not None and found != tag:
        raise ProtocolError(f"no certificate has the tag {found} where {tag} belongs")
    return _Value(found, start, start + size)


def _moment(der: bytes, value: _Value) -> int:
    text = der[value.start : value.end]
    try:
        parsed = datetime.strptime(text.decode("ascii"), _FORMATS[value.tag])
    except (KeyError, ValueError):
        raise ProtocolError(f"no time of a certificate is written as {text!r}") from None
    return int(parsed.replace(tzinfo=UTC).timestamp())
