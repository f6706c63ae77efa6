"""Request and reply: what request messages and reply messages carry, and the requests that wait for a reply.

Owns the properties that route a reply to its requester. A request message is stored like any other; its reply goes
through the broker, which pushes it to the requester (326). Facts: DefaultMQProducerImpl.request, RequestFutureHolder,
MessageUtil and ClientRemotingProcessor.processReplyMessage in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Final

from eruca.client.errors import BadMessage, RemoteError
from eruca.client.log import log
from eruca.client.message import Message, ReceivedMessage, timer_of
from eruca.protocol import names
from eruca.protocol.compression import MAX_BODY
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.send import PushReplyMessage
from eruca.protocol.message import decode_properties
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import decode_record, encode_record, host_bytes
from eruca.remoting.addresses import split_address
from eruca.remoting.clock import now_ms

_HOST_BITS = 0x30
"""The bits of a sysFlag that mark a host as an IPv6 address."""
ERROR_TYPE: Final = "errorType"
"""The property of a reply that is an error: the type of what the replier raised."""
_OF_REQUESTS = (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT)
_CLOCKS_DIFFER = 1000
_LONGEST_TTL = 18
"""Digits of a time in ms; nobody waits longer."""


class Requests:
    """The requests of one client that wait for a reply, whose body is unpacked up to ``max_body`` bytes."""

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._max_body = max_body
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self.known_everywhere = False
        """Whether all brokers know this client: any of them may pass the reply on."""

    def open(self, client_id: str, timeout: float) -> tuple[str, asyncio.Future[ReceivedMessage], str]:
        """Begin a request: its correlation id, the future of its reply, and the properties to add."""
        from uuid import uuid4  # dear to import, and needed by few

        correlation = str(uuid4())
        reply = self._waiting[correlation] = asyncio.get_running_loop().create_future()
        return correlation, reply, _properties(correlation, client_id, str(int(timeout * 1000)))

    def close(self, correlation: str) -> None:
        """Forget a request whose reply is no longer awaited."""
        self._waiting.pop(correlation, None)

    def answered(self, header: PushReplyMessage, body: bytes) -> None:
        """A reply arrived."""
        correlation = decode_properties((header.properties or "").encode()).get(names.CORRELATION_ID, "")
        waiting = self._waiting.pop(correlation, None)
        if waiting is None or waiting.done():
            log.warning("a reply belongs to no request: CORRELATION_ID %s of %s", correlation, header.born_host)
            return
        waiting.set_result(_received(header, body, self._max_body))


def _properties(correlation: str, client_id: str, ttl: str) -> str:
    return (
        f"\x02{names.CORRELATION_ID}\x01{correlation}\x02{names.REPLY_TO_CLIENT}\x01{client_id}\x02{names.TTL}\x01{ttl}"
    )


def _received(header: PushReplyMessage, body: bytes, max_body: int) -> ReceivedMessage:
    """A reply as a stored message, which is in no commit log."""
    record = encode_record(
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=(header.properties or "").encode(),
        flag=header.flag,
        sys_flag=header.sys_flag & ~_HOST_BITS,
        born_timestamp=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
    )
    return ReceivedMessage(decode_record(record), MessageQueue(header.topic, "", header.queue_id), max_body)


def _host(text: str) -> bytes:
    """An IPv4 host as in a record; zeros for any other."""
    with contextlib.suppress(ProtocolError, ValueError):
        address, port = split_address(text.lstrip("/"))
        host = host_bytes(address, port)
        if len(host) == 8:
            return host
    return bytes(8)


def is_request(message: ReceivedMessage) -> bool:
    """Whether a message was sent by ``request``, so that it can be answered."""
    return not any(name not in message.properties for name in _OF_REQUESTS)


def is_expired(request: ReceivedMessage) -> bool:
    """Whether the requester has stopped waiting, be its clock a second behind."""
    ttl = request.properties.get(names.TTL, "")
    if not ttl.isdecimal() or len(ttl) > _LONGEST_TTL:
        return False
    return now_ms() > request.born_timestamp + int(ttl) + _CLOCKS_DIFFER


def error_reply(kind: str, text: str) -> Message:
    """The reply that is an error: the type is a property, the body the text, or the type if there is none."""
    return Message("", (text or kind).encode(errors="replace"), properties={ERROR_TYPE: kind})


def check_reply(reply: ReceivedMessage) -> ReceivedMessage:
    """The reply. Raises RemoteError for one that is an error."""
    kind = reply.properties.get(ERROR_TYPE)
    if kind is not None:
        raise RemoteError(kind, reply.body.decode(errors="replace"))
    return reply


def reply_to(request: ReceivedMessage, answer: bytes | Message) -> tuple[Message, str]:
    """The reply to a request, and the properties to add.

    Raises BadMessage for a message that is no request, and for a delayed reply.
    """
    if not isinstance(request, ReceivedMessage):
        raise BadMessage(f"the request is of type {type(request).__name__}: give the message received")
    found = request.properties
    missing = [name for name in _OF_REQUESTS if name not in found]
    if missing:
        raise BadMessage(
            f"create reply message fail, requestMessage error, property[{missing[0]}] is null: "
            "only a message that was sent by request() can be answered."
        )
    more = _properties(found[names.CORRELATION_ID], found[names.REPLY_TO_CLIENT], found.get(names.TTL, "3000"))
    topic, more = names.reply_topic(found[names.CLUSTER]), f"\x02{names.MSG_TYPE}\x01reply{more}"
    if not isinstance(answer, Message):
        return Message(topic, answer), more
    if answer.delay_level or timer_of(answer):
        raise BadMessage("a reply is passed on at once: it takes no delay")
    reply = copy.copy(answer)
    reply.topic = topic
    return reply, more
