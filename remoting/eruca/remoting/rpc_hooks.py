"""The last changes of an outgoing request: the names of a namespace, then the signature, which covers them.

Owns which fields of a request are signed; the signer computes the signature (RPCHook in 4.9.7). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eruca.protocol import frame
from eruca.protocol.header import Header

Signer = Callable[[Mapping[str, str], bytes], Mapping[str, str]]
"""Returns the fields that sign a request, given all its fields and its body."""
Renamer = Callable[[Header], Header]
"""Returns the header with the names that the peer knows; it must not change its argument."""

_NEVER_SIGNED = "_UNIQUE_KEY_QUERY"
"""4.9 omits this field from the signature, 5.x does not: a signed request is sent without it (it is only a limit)."""


def sign(
    signer: Signer, header: Header | None, extra: Mapping[str, str] | None, serialization: int, body: bytes
) -> dict[str, str]:
    """All fields of a signed request."""
    fields = fields_to_sign(header, extra, serialization)
    fields.update(signer(fields, body))
    return fields


def fields_to_sign(header: Header | None, extra: Mapping[str, str] | None, serialization: int) -> dict[str, str]:
    """The fields of a request before it is signed."""
    fields = {**(header.fields() if header is not None else {}), **(extra or {})}
    fields.pop(_NEVER_SIGNED, None)
    if serialization == frame.ROCKETMQ:  # an empty text is null after it, and Java signs that as "null"
        fields = {name: text for name, text in fields.items() if text}
    return fields
