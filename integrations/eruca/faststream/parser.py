"""Parser: FastStream's messages of Eruca's, and the values of their bodies.

Owns the properties in which FastStream's fields travel. Content types are those of Eruca's serializers. RocketMQ stores
no empty body: one travels as a blank, with the property ``contentLength`` 0.
"""

from __future__ import annotations

from typing import Any, Final, cast

from faststream import StreamMessage
from faststream._internal.basic_types import DecodedMessage
from faststream.message import decode_message

from eruca.client import ReceivedMessage, serializers
from eruca.faststream.message import RocketMQBatchMessage, RocketMQMessage

CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"
CONTENT_LENGTH: Final = "contentLength"
EMPTY_BODY: Final = b" "
_REQUESTER: Final = "REPLY_TO_CLIENT"
_REQUEST_ID: Final = "CORRELATION_ID"


def is_request(message: ReceivedMessage) -> bool:
    """Whether somebody waits for the answer to this message, by RocketMQ's request-reply."""
    return _REQUESTER in message.properties


class RocketMQParser:
    """Makes messages of single messages and of lists."""

    async def parse_message(self, message: ReceivedMessage) -> StreamMessage[ReceivedMessage]:
        """The message; its body is decompressed here. Raises BadAnswer."""
        properties = message.properties
        return RocketMQMessage(
            message,
            _body(message),
            headers=message.user_properties,
            reply_to=properties.get(_REQUESTER) or properties.get(REPLY_TO, ""),
            content_type=_content_type(message),
            message_id=message.message_id,
            correlation_id=properties.get(CORRELATION_ID) or properties.get(_REQUEST_ID) or message.message_id,
        )

    async def parse_batch(self, messages: list[ReceivedMessage]) -> StreamMessage[list[ReceivedMessage]]:
        """The list as one message, with the headers and ids of the first."""
        first = messages[0]
        headers = [message.user_properties for message in messages]
        return RocketMQBatchMessage(
            messages,
            [_body(message) for message in messages],
            headers=headers[0],
            batch_headers=headers,
            message_id=first.message_id,
            correlation_id=first.properties.get(CORRELATION_ID) or first.message_id,
        )

    async def decode_message(self, message: StreamMessage[Any]) -> DecodedMessage:
        """The value of a body, by its content type; bytes where nobody reads that. Raises BadBody and ValueError."""
        content_type = message.content_type
        if content_type == serializers.MSGPACK.content_type:
            return cast(DecodedMessage, serializers.load(content_type, message.body))
        return decode_message(message)

    async def decode_batch(self, message: StreamMessage[list[ReceivedMessage]]) -> list[DecodedMessage]:
        """The value of each body."""
        return [await self.decode_message(await self.parse_message(each)) for each in message.raw_message]


def _body(message: ReceivedMessage) -> bytes:
    return b"" if message.properties.get(CONTENT_LENGTH) == "0" else message.body


def _content_type(message: ReceivedMessage) -> str | None:
    """Without its parameters, as texts are UTF-8."""
    content_type = message.properties.get(serializers.CONTENT_TYPE)
    return None if content_type is None else content_type.partition(";")[0].strip()
