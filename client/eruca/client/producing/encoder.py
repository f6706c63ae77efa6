"""What writes the requests of sends to one queue: a template, the names of a namespace, a signature, a serialization.

Every choice about the header of a send is made here, once for each queue and kind of send. What is written is byte for
byte what ``Connection.encode`` writes for the same header, which is used wherever there is no template.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from eruca.client.message import AFTER_ID, BEFORE_ID
from eruca.client.namespaces import Names
from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.signature import SIGNATURE, Credentials
from eruca.protocol.templates import BORN_FIELD, BORN_LENGTH, PROPERTIES_FIELD, Template, send_template, template_of
from eruca.remoting import Connection
from eruca.remoting.rpc_hooks import fields_to_sign

Encode = Callable[[bytes, str, int, bytes], bytes]
"""Given the digits of the born timestamp, properties, opaque and body: everything of a frame before the body.

Raises ProtocolError when the frame would be too long."""

_SAMPLE_BORN: Final = "9" * BORN_LENGTH
_SAMPLE_TEXT: Final = "sample"
_SAMPLE_OPAQUE: Final = 7


class IdTemplates(NamedTuple):
    """Templates of requests whose properties begin with a unique id; their first value is the born timestamp."""

    around_id: Template
    """For properties that hold the id and ``WAIT`` only: its second value is the id."""
    from_id: Template
    """For other properties: its second value is the id and what ``quote`` gives for the text behind it."""
    quote: Callable[[str], bytes]


class Encoder(NamedTuple):
    """Writes the requests of one kind to one queue."""

    encode: Encode
    templates: IdTemplates | None = None
    """Write the same as ``encode`` for born timestamps of BORN_LENGTH digits."""


def encoder_of(
    connection: Connection, names: Names, endpoint: Endpoint[SendMessageV2, Any], header: SendMessageV2, flag: int
) -> Encoder:
    """The encoder of sends that differ from ``header`` in born timestamp and properties only."""

    def encode(born: bytes, properties: str, opaque: int, body: bytes) -> bytes:
        header.born_timestamp, header.properties = int(born), properties
        return connection.encode(endpoint, header, body, opaque, flag)

    if connection.offers:  # its serialization may change
        return Encoder(encode)
    renamed = names.header(header) if names.rename else header
    assert isinstance(renamed, SendMessageV2)
    if connection.signer is None:
        template = send_template(connection.serialization, endpoint.code, flag, renamed)
        return Encoder(encode) if template is None else _by_template(template, names, encode)
    if isinstance(connection.signer, Credentials):
        signed = _signed(connection.signer, connection.serialization, endpoint.code, flag, renamed, names, encode)
        if signed is not None:
            return Encoder(signed)
    return Encoder(encode)


def _by_template(template: Template, names: Names, otherwise: Encode) -> Encoder:
    fill, quote, edit = template.fill, template.quote, names.send_properties

    def encode(born: bytes, properties: str, opaque: int, body: bytes) -> bytes:
        if len(born) != BORN_LENGTH:
            return otherwise(born, properties, opaque, body)
        return fill(opaque, born, quote(properties), len(body))

    def encode_renamed(born: bytes, properties: str, opaque: int, body: bytes) -> bytes:
        if len(born) != BORN_LENGTH:
            return otherwise(born, properties, opaque, body)
        return fill(opaque, born, quote(edit(properties)), len(body))

    from_id = template.around(BEFORE_ID, "")
    if names.namespace:
        around_id = template.around(BEFORE_ID, edit(AFTER_ID))
        return Encoder(encode_renamed, IdTemplates(around_id, from_id, lambda text: quote(edit(text))))
    return Encoder(encode, IdTemplates(template.around(BEFORE_ID, AFTER_ID), from_id, quote))


def _signed(
    account: Credentials,
    serialization: int,
    code: int,
    flag: int,
    header: SendMessageV2,
    names: Names,
    otherwise: Encode,
) -> Encode | None:
    """The encoder of signed sends; None where there is no template of them."""
    sample = msgspec.structs.replace(header, born_timestamp=int(_SAMPLE_BORN), properties=_SAMPLE_TEXT)
    fields = fields_to_sign(sample, None, serialization)
    fields |= account(fields, b"")
    whole = frame.encode(serialization, code, _SAMPLE_OPAQUE, flag, None, 0, None, fields)
    template = template_of(serialization, whole[8:], PROPERTIES_FIELD, SIGNATURE)
    if template is None:
        return None
    values = template.quote(_SAMPLE_TEXT), template.quote(fields[SIGNATURE])
    born_at = template.before.rfind(_BORN[serialization] + _SAMPLE_BORN.encode())
    if born_at < 0 or template.fill(_SAMPLE_OPAQUE, *values, 0) != whole:
        return None
    born_at += len(_BORN[serialization])
    head, tail = template.before[:born_at], template.before[born_at + BORN_LENGTH :]
    sign = account.prepared(fields, BORN_FIELD, PROPERTIES_FIELD)
    edit = names.send_properties if names.namespace else None
    quote = template.quote
    of_born: tuple[bytes, Template] = _SAMPLE_BORN.encode(), template

    def encode(born: bytes, properties: str, opaque: int, body: bytes) -> bytes:
        nonlocal of_born
        if len(born) != BORN_LENGTH:
            return otherwise(born, properties, opaque, body)
        if of_born[0] != born:
            of_born = born, template._replace(before=head + born + tail)
        if edit is not None:
            properties = edit(properties)
        signature = sign(born, properties.encode(), body)
        return of_born[1].fill(opaque, quote(properties), signature, len(body))

    return encode


_BORN: Final = {frame.JSON: b'"g":"', frame.ROCKETMQ: b"\0\1g\0\0\0\x0d"}
"""What stands before the born timestamp in a header."""
