"""Signed requests: the account of the requester, and its proof.

Owns what a signature covers and how it is computed; both ends use it. Pure. Invariant: no secret is part of a ``repr``
or of an error. Facts: AclClientRPCHook, AclUtils.combineRequestContent and AclSigner in 4.9.7.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"

_BLOCK: Final = 64
"""Bytes of a block of SHA-1."""


def sign(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """The signature of a request: all its fields but the signature, and its body."""
    return _key_of(secret_key).sign(fields, body).decode()


class SigningKey:
    """A secret key, ready for many signatures: the two states of SHA-1 from which HMAC by it goes on (RFC 2104).

    ``hmac`` computes them for each text, which takes longer than the rest.
    """

    __slots__ = ("_begun", "_outside")

    def __init__(self, secret_key: str) -> None:
        key, sha1 = secret_key.encode(), hashlib.sha1  # the signature of 4.9 is an HMAC with SHA-1
        block = (sha1(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self._begun = sha1(bytes([byte ^ 0x36 for byte in block]))
        self._outside = sha1(bytes([byte ^ 0x5C for byte in block]))

    def sign(self, fields: Mapping[str, str], body: bytes) -> bytes:
        """The signature of a request: all its fields but the signature, and its body."""
        return self.signature(_signed_text(fields).encode() + body)

    def signature(self, content: bytes) -> bytes:
        """The signature of what is signed."""
        inner = self._begun.copy()
        inner.update(content)
        return self._end(inner)

    def in_pieces(self, fields: Mapping[str, str], body: bytes, size: int) -> Iterator[bytes]:
        """The signature of a long request, after each ``size`` bytes an empty text: the last one is the signature."""
        inner = self._begun.copy()
        for content in (memoryview(_signed_text(fields).encode()), memoryview(body)):
            for at in range(0, len(content), size):
                inner.update(content[at : at + size])
                yield b""
        yield self._end(inner)

    def _end(self, inner: hashlib._Hash) -> bytes:
        outer = self._outside.copy()
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)


_key_of = functools.lru_cache(16)(SigningKey)
"""A client signs by one secret, again and again."""
_Pick = Callable[[Mapping[str, str]], Iterable[str]]
_picks: dict[tuple[str, ...], _Pick] = {}
"""What takes the signed values out of fields with these names: programs sign the same few forms again and again."""
_MOST_PICKS: Final = 256
_LONGEST_NAMES: Final = 1024


def _signed_text(fields: Mapping[str, str]) -> str:
    names = tuple(fields)
    pick = _picks.get(names)
    if pick is None:
        ordered = _in_order(fields)
        if not ordered or sum(map(len, names)) > _LONGEST_NAMES:
            return "".join([fields[name] for name in ordered])
        if len(_picks) >= _MOST_PICKS:
            _picks.clear()
        pick = _picks[names] = itemgetter(*ordered)
    return "".join(pick(fields))


def _in_order(fields: Mapping[str, str]) -> list[str]:
    """The names of the signed fields in the order in which they are signed."""
    names = sorted(fields) if "".join(fields).isascii() else sorted(fields, key=_in_java)
    return [name for name in names if name != SIGNATURE]


def _in_java(name: str) -> bytes:
    """Java orders texts by their UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The account of signed requests (SessionCredentials in Java: accessKey, secretKey and securityToken).

    Raises ValueError for an empty key. Its ``repr`` shows only the access key.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            missing = "access_key" if not self.access_key else "secret_key"
            raise ValueError(f"the {missing} is empty: requests are signed with an access key and its secret key")

    def __call__(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """The fields that sign a request with these fields and this body."""
        made = {ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            made[SECURITY_TOKEN] = self.security_token
        made[SIGNATURE] = sign({**fields, **made}, body, self.secret_key)
        return made

    def prepared(self, fields: Mapping[str, str], first: str, second: str) -> Callable[[bytes, bytes, bytes], bytes]:
        """What signs requests that differ from these signed ``fields`` in the values of two fields and the body.

        Given the two values and the body it returns the signature. ``first`` is signed before ``second``.
        """
        names = _in_order(fields)
        first_at, second_at = names.index(first), names.index(second)
        if first_at > second_at:
            raise ValueError(f"{second} is signed before {first}")
        before = "".join([fields[name] for name in names[:first_at]]).encode()
        between = "".join([fields[name] for name in names[first_at + 1 : second_at]]).encode()
        after = "".join([fields[name] for name in names[second_at + 1 :]]).encode()
        key = _key_of(self.secret_key)
        return lambda one, other, body: key.signature(b"".join((before, one, between, other, after, body)))
