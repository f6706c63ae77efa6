"""What writes the requests of sends to one queue: a template, the names of a namespace, a signature, a serialization.

Every choice about the header of a send is made here, once for each queue and kind of send. What is written is byte for
byte what ``Connection.encode`` writes for the same header, which is used wherever there is no template.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from eruca.client.message import AFTER_ID, BEFORE_ID
from eruca.client.namespaces import Names
from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.signature import SIGNATURE, Credentials
from eruca.protocol.templates import (
    BORN_FIELD,
    BORN_LENGTH,
    PROPERTIES_FIELD,
    Template,
    Writer,
    send_template,
    template_of,
)
from eruca.remoting import Connection
from eruca.remoting.rpc_hooks import fields_to_sign

_SAMPLE_BORN: Final = "9" * BORN_LENGTH
_SAMPLE_TEXT: Final = "sample"
_SAMPLE_OPAQUE: Final = 7


def encoder_of(
    connection: Connection,
    names: Names,
    endpoint: Endpoint[SendMessageV2, Any],
    header: SendMessageV2,
    flag: int,
    *,
    keyed: bool,
) -> Writer:
    """The encoder of sends that differ from ``header`` in born timestamp and properties only.

    It is given opaque, digits of the born timestamp, unique id, further properties, and the body. Where not ``keyed``,
    the further properties are all, and no id is written.
    """

    def encode(opaque: int, born: bytes, key: str, text: str, body: bytes) -> bytes:
        header.born_timestamp, header.properties = int(born), BEFORE_ID + key + text if keyed else text
        return connection.encode(endpoint, header, body, opaque, flag)

    if connection.offers:  # its serialization may change
        return encode
    renamed = names.header(header) if names.rename else header
    assert isinstance(renamed, SendMessageV2)
    if connection.signer is None:
        template = send_template(connection.serialization, endpoint.code, flag, renamed)
        return encode if template is None else _by_template(template, names, keyed)
    if isinstance(connection.signer, Credentials):
        serialization = connection.serialization
        return _signed(connection.signer, serialization, endpoint.code, flag, renamed, names, keyed, encode) or encode
    return encode


def _by_template(template: Template, names: Names, keyed: bool) -> Writer:
    quote: Callable[[str], bytes] = template.quote
    if names.namespace:
        edit = names.send_properties

        def quote(text: str) -> bytes:
            return template.quote(edit(text))

    if keyed:
        return template.writer(BEFORE_ID, AFTER_ID, quote)

    def encode(opaque: int, born: bytes, key: str, text: str, body: bytes) -> bytes:
        return template.fill(opaque, born, quote(text), len(body))

    return encode


def _signed(
    account: Credentials,
    serialization: int,
    code: int,
    flag: int,
    header: SendMessageV2,
    names: Names,
    keyed: bool,
    otherwise: Writer,
) -> Writer | None:
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

    def encode(opaque: int, born: bytes, key: str, text: str, body: bytes) -> bytes:
        nonlocal of_born
        if len(born) != BORN_LENGTH:
            return otherwise(opaque, born, key, text, body)
        if of_born[0] != born:
            of_born = born, template._replace(before=head + born + tail)
        if edit is not None:
            text = edit(text)
        if keyed:
            text = BEFORE_ID + key + text
        signature = sign(born, text.encode(), body)
        return of_born[1].fill(opaque, quote(text), signature, len(body))

    return encode


_BORN: Final = {frame.JSON: b'"g":"', frame.ROCKETMQ: b"\0\1g\0\0\0\x0d"}
"""What stands before the born timestamp in a header."""
