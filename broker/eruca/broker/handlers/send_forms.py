"""The forms of sends that the native step takes: learned from requests that the plain handler admits.

Owns which requests have a form, and what it says. Only a request whose header was read whole and whose destination was
admitted before is remembered. ``Admission.forget`` drops the forms as soon as anything changes that decided it: topics,
permissions, configuration.
"""

from __future__ import annotations

from typing import Any

from eruca.broker.broker import Broker
from eruca.broker.services.admission import Destination
from eruca.broker.services.halves import HALF
from eruca.broker.store.layout import SendForm
from eruca.protocol import frame
from eruca.protocol.codes import RequestCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.message import BORN_HOST_V6, STORE_HOST_V6
from eruca.protocol.templates import (
    BORN_FIELD,
    BORN_LENGTH,
    PROPERTIES_FIELD,
    Template,
    binary_send_key,
    json_send_key,
    reply_template,
    template_of,
)
from eruca.remoting import Call

_CLIENT_BITS = ~(BORN_HOST_V6 | STORE_HOST_V6)
_HALF_QUEUE = HALF, 0


def learn(broker: Broker, call: Call[Any], to: Destination) -> None:
    """Remember the form of a send to a destination that was admitted before; nothing where it has none."""
    ask, head = call.header, call.head
    if not isinstance(ask, SendMessageV2) or not ask.properties or not broker.accepting:
        return
    if call.account:
        return  # no other request has its signature
    if head.flag not in (0, frame.ONEWAY_FLAG) or ask.batch != (head.code == RequestCode.SEND_BATCH_MESSAGE):
        return
    forms = broker.admission.forms
    key = json_send_key(call.data) if call.serialization == frame.JSON else binary_send_key(call.data)
    batch_properties = batch_extra = b""
    if ask.batch:
        try:
            batch_extra, wait, later = broker.admission.of_batch(ask.properties)
        except ProtocolError:
            return
        if not wait or later:
            return
        batch_properties = ask.properties.encode()
    known = forms.get(key)
    if known is not None and known.batch_properties == batch_properties and known.request.match(call.data):
        return  # this one is an exception: another one of this form may not be
    request = _request_template(call, ask)
    reply = template_of_replies(broker, call.serialization, to.queue_id)
    if request is None or reply is None:
        return
    half = HALF in broker.topics and not broker.config.reject_transaction_message and not ask.batch
    form = SendForm(
        request=request,
        queue=(to.topic, to.queue_id),
        flag=ask.flag,
        sys_flag=ask.sys_flag & _CLIENT_BITS | to.sys_flag,
        reconsume_times=ask.reconsume_times or 0,
        oneway=head.flag == frame.ONEWAY_FLAG,
        reply=reply,
        batch_properties=batch_properties,
        batch_extra=batch_extra,
        half_queue=_HALF_QUEUE if half else None,
        half_extra=broker.admission.half_places[to.topic, to.queue_id].encode() if half else b"",
    )
    forms.remember(key, form)


def _request_template(call: Call[Any], ask: SendMessageV2) -> Template | None:
    """The template of a request, if it gives the same values as reading the header whole."""
    template = template_of(call.serialization, call.data, BORN_FIELD, PROPERTIES_FIELD)
    values = None if template is None else template.match(call.data)
    if template is None or values is None:
        return None
    try:
        text = template.unquote(values.second)
    except frame.UNREADABLE:
        return None
    born = b"%d" % ask.born_timestamp
    agree = values.first == born and len(born) == BORN_LENGTH and text == ask.properties
    return template if agree and values.opaque == call.opaque else None


def template_of_replies(broker: Broker, serialization: int, queue_id: int) -> Template | None:
    """The template of replies with code 0 to sends to a queue of this id; None in a serialization without templates."""
    templates = broker.admission.reply_templates
    key = serialization, queue_id
    try:
        return templates[key]
    except KeyError:
        config = broker.config
        sample = SendReply(
            msg_id="", queue_id=queue_id, queue_offset=0, region=config.region_id, trace_on=config.trace_on
        )
        return templates.remember(key, reply_template(serialization, broker.store_host_hex, sample))
