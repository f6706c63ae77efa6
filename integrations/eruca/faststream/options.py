"""The options of subscribers and of sends, said once: brokers, routers, routes and the FastAPI router take the same.

Options of consumption have the names, units and defaults of ``eruca.client.PushConsumer``, those of sends of
``eruca.client.Message`` and ``Producer.send``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict

from faststream import AckPolicy
from faststream._internal.constants import EMPTY
from faststream.exceptions import SetupError

from eruca.client.assign import Strategy
from eruca.client.config import StartFrom
from eruca.client.consuming.ordered_queue import KeyOf
from eruca.client.environment import check_names
from eruca.client.outcomes import Backoff
from eruca.client.selectors import Selector

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import CustomCallable


class PullOptions(TypedDict, total=False):
    """How messages are fetched, by handlers and by ``get_one``; meanings and defaults as of PushConsumer."""

    start_from: StartFrom
    strategy: Strategy
    broadcast: bool
    offset_folder: str | PathLike[str] | None
    rebalance_interval: float
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    pull_time_delay_when_exception: float


class ConsumerOptions(PullOptions, total=False):
    """How messages reach the handlers; meanings and defaults as of PushConsumer."""

    orderly: bool
    ordered_by: KeyOf | None
    suspend_time: float
    max_reconsume_times: int | None
    retry: Backoff | None
    consume_timeout: float
    offset_interval: float
    pull_interval: float
    pull_threshold_for_topic: int | None
    pull_threshold_size_for_topic: int | None


class EndpointOptions(TypedDict, total=False):
    """What FastStream takes of each subscriber and publisher.

    Args:
        persistent: False lets the broker forget it when the program does.
        title: its name in the AsyncAPI document.
        description: its text there.
        include_in_schema: False leaves it out there.
    """

    persistent: bool
    title: str | None
    description: str | None
    include_in_schema: bool


class SubscriberOptions(ConsumerOptions, EndpointOptions, total=False):
    """The options of a subscriber.

    Args:
        group: the consumer group; default the broker's ``group``, a hyphen, and the topics.
        expression: which messages: one of the tags of ``TagA || TagB``, or all with ``*``.
        expression_type: "TAG", or "SQL92" for a condition on properties.
        max_workers: handlers that run at once; default 1.
        batch: True passes lists to the handler.
        max_records: messages of such a list at most; default 32.
        ack_policy: what an exception of the handler means; default the broker's, else NACK_ON_ERROR.
        no_reply: True answers no requests.
        dependencies: run before each handler.
        parser: makes the message object, in place of the broker's.
        decoder: makes the value of a body, in place of the broker's.
        codec: the same as an object, which encodes too.
    """

    group: str | None
    expression: str
    expression_type: str
    max_workers: int
    batch: bool
    max_records: int
    ack_policy: AckPolicy
    no_reply: bool
    dependencies: Sequence[Dependant]
    parser: CustomCallable | None
    decoder: CustomCallable | None
    codec: CodecProto | None


class MessageOptions(TypedDict, total=False):
    """What a message carries beside its body and headers; as of ``eruca.client.Message``."""

    tags: str | None
    keys: str | Iterable[str] | None
    flag: int
    delay: float | timedelta | None
    delay_level: int
    deliver_at: int | datetime | None
    wait_store: bool


class SendOptions(MessageOptions, total=False):
    """How a message is sent.

    Args:
        ordered_by: messages with equal values go to one queue, in their order: a text or a whole number.
        selector: chooses the queue by ``ordered_by``, in place of RocketMQ's hash.
        timeout: seconds; default the broker's send_timeout.
        no_confirm: True sends once and does not wait for the broker: the message may be lost.
    """

    ordered_by: str | int | None
    selector: Selector | None
    timeout: float | None
    no_confirm: bool


class PublisherOptions(SendOptions, EndpointOptions, total=False):
    """The options of a publisher.

    Args:
        headers: of every message, as user properties.
        reply_to: the topic for the answers.
        batch: True sends what a handler returns, a list, as a batch.
        schema: the type of the messages in the AsyncAPI document.
    """

    headers: dict[str, str] | None
    reply_to: str
    batch: bool
    schema: Any


_OF_SEND = frozenset(SendOptions.__annotations__)


def check_send_options(options: SendOptions) -> None:
    """Raise BadConfig, with the nearest name, for an option that no send has."""
    if not options.keys() <= _OF_SEND:
        check_names(options, _OF_SEND)


def check_topics(topics: Sequence[object]) -> None:
    """Raise SetupError unless there are topics, one by one; what each may be called is checked with its prefix."""
    if not topics:
        raise SetupError("A subscriber needs a topic: subscriber('orders').")
    for topic in topics:
        if isinstance(topic, list | tuple | set | frozenset):
            names = ", ".join(repr(each) for each in topic)
            raise SetupError(f"A subscriber takes topics one by one: subscriber({names}).")


def check_policy(policy: object) -> None:
    """Raise SetupError for what is no AckPolicy."""
    if policy is not EMPTY and not isinstance(policy, AckPolicy):
        raise SetupError(
            f"ack_policy={policy!r} is not allowed: an AckPolicy such as AckPolicy.NACK_ON_ERROR is expected."
        )
