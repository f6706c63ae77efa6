"""Messages, what consumers did with them, and what became of sends, as typed results.

A body that is text stands as text, any other as base64, and ``bodyEncoding`` says which. Builds results of what
``messages`` gives; asks nothing itself.
"""

from __future__ import annotations

import base64
from typing import Annotated, Literal

from eruca.admin.messages import Sent, body_of, message_id
from eruca.admin.results.answer import NONE, WIDE, Moment, Result, Table
from eruca.admin.text import shown
from eruca.protocol.record import Record, host_text

BodyEncoding = Literal["text", "base64"]


class Message(Result, frozen=True, kw_only=True, rename="camel"):
    """A stored message."""

    topic: str
    queue_id: int
    queue_offset: int
    id: str
    """The producer's id, else the broker's."""
    tags: Annotated[str | None, NONE]
    keys: list[str]
    stored: Moment
    body: str | None
    """None where it was not asked for."""
    body_encoding: Annotated[BodyEncoding | None, WIDE]
    offset_id: Annotated[str, WIDE]
    """The broker's id."""
    broker: Annotated[str | None, WIDE]
    """None where only the address of the broker is known."""
    commit_log_offset: Annotated[int, WIDE]
    size: Annotated[int, WIDE]
    """Bytes of the record in the commit log."""
    reconsume_times: Annotated[int, WIDE]
    born: Annotated[Moment, WIDE]
    born_host: Annotated[str, WIDE]
    store_host: Annotated[str, WIDE]
    sys_flag: Annotated[int, WIDE]
    flag: Annotated[int, WIDE]
    properties: Annotated[dict[str, str], WIDE]


def message_of(
    record: Record, *, broker: str | None = None, body: bytes | None, properties: dict[str, str] | None = None
) -> Message:
    """A stored message; ``body`` is the uncompressed one, None to leave it out."""
    text, encoding = (None, None) if body is None else shown_body(body)
    return Message(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        id=message_id(record),
        tags=record.tags,
        keys=record.keys,
        stored=Moment.at(record.store_timestamp),
        body=text,
        body_encoding=encoding,
        offset_id=record.offset_message_id,
        broker=broker,
        commit_log_offset=record.physical_offset,
        size=record.size,
        reconsume_times=record.reconsume_times,
        born=Moment.at(record.born_timestamp),
        born_host=host_text(record.born_host),
        store_host=host_text(record.store_host),
        sys_flag=record.sys_flag,
        flag=record.flag,
        properties=record.properties if properties is None else properties,
    )


def shown_body(body: bytes) -> tuple[str, BodyEncoding]:
    """A body as text, else as base64."""
    try:
        return body.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


class Track(Result, frozen=True, kw_only=True, rename="camel"):
    """What a consumer group did with a message."""

    group: str
    type: str
    """RocketMQ's word."""
    reason: Annotated[str | None, NONE]
    """Why the type is no better one."""

    def __str__(self) -> str:
        return f"MessageTrack [consumerGroup={self.group}, trackType={self.type}, exceptionDesc={shown(self.reason)}]"


class Found(Result, frozen=True, kw_only=True, rename="camel"):
    """A message that was looked up, and what each group did with it."""

    message: Message
    body_path: str
    """The file that has its body."""
    tracks: list[Track]


def found(record: Record, body_path: str, tracks: list[Track], properties: dict[str, str] | None = None) -> Found:
    """A message that was looked up."""
    return Found(
        message=message_of(record, body=body_of(record), properties=properties), body_path=body_path, tracks=tracks
    )


class Messages(Table[Message], frozen=True, kw_only=True, rename="camel"):
    """Messages that were looked up."""


class SentMessage(Result, frozen=True, kw_only=True, rename="camel"):
    """A message that was sent; of one that failed only the place is known."""

    broker: str
    queue_id: int
    status: str
    """RocketMQ's word: ``SEND_OK``, or what the broker could not do in time; ``FAILED`` if it refused."""
    id: Annotated[str | None, NONE]
    offset_id: Annotated[str | None, WIDE, NONE]
    queue_offset: Annotated[int | None, NONE]
    ms: Annotated[float | None, NONE]
    """From the request to its answer, where it was measured."""


def sent_message(sent: Sent, seconds: float | None = None) -> SentMessage:
    """A message that a broker took."""
    return SentMessage(
        broker=sent.queue.broker_name,
        queue_id=sent.queue.queue_id,
        status=sent.status,
        id=sent.unique_key,
        offset_id=sent.offset_message_id,
        queue_offset=sent.queue_offset,
        ms=None if seconds is None else round(seconds * 1000, 3),
    )


class Consumed(Result, frozen=True, kw_only=True, rename="camel"):
    """What a member did with a message that it was given directly."""

    id: str
    group: str
    client_id: str
    consume_result: str | None
    remark: Annotated[str | None, NONE]
    order: bool
    auto_commit: bool
    ms: int


class Unit(Result, frozen=True, kw_only=True, rename="camel"):
    """An entry of a consume queue."""

    index: int
    physic_offset: int
    physic_size: int
    tags_code: int
    extend_data_json: Annotated[str | None, NONE]
    bit_map: Annotated[str | None, NONE]
    eval: bool
    """Whether the filter of the group lets it pass."""
    msg: Annotated[str | None, NONE]
    """Why it cannot be read."""


class Units(Table[Unit], frozen=True, kw_only=True, rename="camel"):
    """A part of a consume queue."""

    min_index: int
    max_index: int
    filter: Annotated[str | None, NONE]


class TagCount(Result, frozen=True, kw_only=True, rename="camel"):
    """How many messages have a tag."""

    tag: str
    messages: int


class Step(Result, frozen=True, kw_only=True, rename="camel"):
    """One event in the life of a message, as a client recorded it."""

    kind: Literal["Pub", "Sub"]
    group: str
    host: str
    at: Moment
    ms: int
    """How long it took."""
    succeeded: bool


class Steps(Table[Step], frozen=True, kw_only=True, rename="camel"):
    """The trace of a message."""


class ResponseTime(Result, frozen=True, kw_only=True, rename="camel"):
    """The response times of some sends to a broker."""

    at: Moment
    cluster: str
    broker: str
    mean_ms: float
    """The first send is left out."""
    sent: int
    failed: int
