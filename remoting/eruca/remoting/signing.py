"""What a request gets on its way out: the names that the peer knows, then the signature, which covers them.

Owns which fields of a request are signed; how is the signer's knowledge. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eruca.protocol import frame
from eruca.protocol.header import Header

Signer = Callable[[Mapping[str, str], bytes], Mapping[str, str]]
"""Given all fields and the body of a request, the fields that sign it."""
Renamer = Callable[[Header], Header]
"""Given the header of a request, one with the names that the peer knows; it must not change the one it gets."""

_NEVER_SIGNED = "_UNIQUE_KEY_QUERY"
"""A field that 4.9 leaves out of the signature and 5.x does not: a signed request goes without it (it only bounds)."""


def sign(
    signer: Signer, header: Header | None, extra: Mapping[str, str] | None, serialization: int, body: bytes
) -> dict[str, str]:
    """All fields of a signed request."""
    fields = {**(header.fields() if header is not None else {}), **(extra or {})}
    fields.pop(_NEVER_SIGNED, None)
    if serialization == frame.ROCKETMQ:  # an empty text is null after it, and Java signs that as "null"
        fields = {name: text for name, text in fields.items() if text}
    fields.update(signer(fields, body))
    return fields
