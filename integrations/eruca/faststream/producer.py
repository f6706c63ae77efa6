"""Producer: what FastStream publishes, sent by Eruca's producer.

Owns how a body, its headers and the fields of FastStream become a message of RocketMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState

from eruca.client import Message, Producer, ReceivedMessage, SendResult, serializers, split_batch
from eruca.faststream.options import MessageOptions, SendOptions
from eruca.faststream.parser import CONTENT_LENGTH, CORRELATION_ID, EMPTY_BODY, REPLY_TO, RocketMQParser
from eruca.faststream.response import RocketMQPublishCommand, RocketMQResponse

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.types import AsyncCallable, CustomCallable

_OF_MESSAGE = frozenset(MessageOptions.__annotations__)


class RocketMQProducer(ProducerProto[RocketMQPublishCommand]):
    """Publishes, asks and answers; ``connect`` gives it the producer that sends."""

    _parser: AsyncCallable
    _decoder: AsyncCallable
    codec: CodecProto

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        default = RocketMQParser()
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self.codec = DefaultCodec()
        self._serializer: SerializerProto | None = None
        self._client: Producer | None = None

    def connect(self, client: Producer | None, serializer: SerializerProto | None, codec: CodecProto | None) -> None:
        """Send by this producer; None: no more."""
        self._client = client
        self._serializer = serializer
        self.codec = codec or DefaultCodec()

    @property
    def client(self) -> Producer:
        """The producer that sends. Raises IncorrectState before the broker is connected."""
        if self._client is None:
            raise IncorrectState("The broker is not connected: call `await broker.connect()` or start it first.")
        return self._client

    async def publish(self, cmd: RocketMQPublishCommand) -> SendResult | None:
        """Send one message, or the answer to a request; None where it waits for nothing."""
        message, options = await self.message(cmd), cmd.options
        if cmd.request is not None:
            return await self.client.reply(cmd.request, message)
        queue = _choice(options)
        if options.get("no_confirm"):
            await self.client.send_oneway(message, **queue, timeout=options.get("timeout"))
            return None
        return await self.client.send(message, **queue, timeout=options.get("timeout"))

    async def request(self, cmd: RocketMQPublishCommand) -> ReceivedMessage:
        """Send one message and wait for the answer. Raises CallTimeout, which is a TimeoutError."""
        options = cmd.options
        return await self.client.request(await self.message(cmd), **_choice(options), timeout=options.get("timeout"))

    async def publish_batch(self, cmd: RocketMQPublishCommand) -> list[SendResult]:
        """Send messages of one topic in as few requests as they fit in."""
        timeout = cmd.options.get("timeout")
        messages = await self.messages(cmd)
        queue = _choice(cmd.options)
        return [await self.client.send_batch(part, **queue, timeout=timeout) for part in split_batch(messages)]

    async def message(self, cmd: RocketMQPublishCommand) -> Message:
        """The message of a command with one body."""
        body, content_type = await self.codec.encode(cmd.body, self._serializer)
        return _compose(cmd, body, content_type)

    async def messages(self, cmd: RocketMQPublishCommand) -> list[Message]:
        """The messages of a batch; one given as a RocketMQResponse has options and headers of its own."""
        commands = [_part(cmd, each) for each in cmd.batch_bodies]
        bodies = [command.body for command in commands]
        if isinstance(self.codec, BatchCodecProto):
            encoded = await self.codec.encode_batch(bodies, self._serializer)
        else:
            encoded = [await self.codec.encode(body, self._serializer) for body in bodies]
        return [_compose(command, *each) for command, each in zip(commands, encoded, strict=True)]


def _part(cmd: RocketMQPublishCommand, part: Any) -> RocketMQPublishCommand:
    """The command of one message of a batch."""
    own = part if isinstance(part, RocketMQResponse) else RocketMQResponse(part)
    return RocketMQPublishCommand(
        own.body,
        topic=cmd.destination,
        headers={**cmd.headers, **own.headers},
        correlation_id=own.correlation_id or cmd.correlation_id,
        reply_to=cmd.reply_to,
        options=cast(SendOptions, {**cmd.options, **own.options}),
        publish_type=cmd.publish_type,
    )


def _compose(cmd: RocketMQPublishCommand, body: bytes, content_type: str | None) -> Message:
    properties: dict[str, str] = {}
    if content_type:
        properties[serializers.CONTENT_TYPE] = content_type
    if not body:
        properties[CONTENT_LENGTH] = "0"
    if cmd.correlation_id:
        properties[CORRELATION_ID] = cmd.correlation_id
    if cmd.reply_to:
        properties[REPLY_TO] = cmd.reply_to
    properties |= {name: str(value) for name, value in cmd.headers.items()}
    options: dict[str, Any] = {name: value for name, value in cmd.options.items() if name in _OF_MESSAGE}
    return Message(cmd.destination, body or EMPTY_BODY, properties=properties, **options)


def _choice(options: SendOptions) -> dict[str, Any]:
    """The arguments of ``send`` by which the queue is chosen."""
    value, selector = options.get("ordered_by"), options.get("selector")
    return {"ordered_by": value} if selector is None else {"selector": selector, "arg": value}
