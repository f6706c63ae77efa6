"""What handlers return and publishers send: bodies with headers and the options of their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from faststream.response import PublishCommand, PublishType, Response
from faststream.response.response import BatchPublishCommand

from eruca.faststream.options import SendOptions, check_send_options

if TYPE_CHECKING:
    from eruca.client import ReceivedMessage


class RocketMQResponse(Response):
    """The result of a handler with options of its own, or a message of ``publish_batch``.

    Args:
        body: the body.
        headers: user properties.
        correlation_id: default that of the message that was handled.
        options: see ``SendOptions``.
    """

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        check_send_options(options)
        self.options = options

    def as_publish_command(self) -> RocketMQPublishCommand:
        """As FastStream's publishers take it."""
        return RocketMQPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            options=self.options,
            publish_type=PublishType.PUBLISH,
        )


RocketMQPublishMessage = RocketMQResponse
"""The same, under the name that fits in ``publish_batch``."""


class RocketMQPublishCommand(BatchPublishCommand):
    """One send: of one body, or of several as a batch.

    ``request`` is the message that it answers, where somebody waits for that.
    """

    def __init__(
        self,
        body: Any,
        /,
        *bodies: Any,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        options: SendOptions | None = None,
        publish_type: PublishType,
    ) -> None:
        super().__init__(
            body,
            *bodies,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=publish_type,
        )
        self.options: SendOptions = options or {}
        check_send_options(self.options)
        self.request: ReceivedMessage | None = None

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> RocketMQPublishCommand:
        """The command of any response; with ``batch`` each part of its body is a message."""
        if isinstance(cmd, cls) and not batch:
            return cmd
        body, bodies = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *bodies,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            options=cmd.options if isinstance(cmd, cls) else None,
            publish_type=cmd.publish_type,
        )

    def __repr__(self) -> str:
        return (
            f"RocketMQPublishCommand(body={self.body!r}, topic={self.destination!r}, headers={self.headers}, "
            f"correlation_id={self.correlation_id!r}, reply_to={self.reply_to!r}, options={self.options})"
        )
