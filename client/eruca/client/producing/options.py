"""The options of producers, said once: their names, types, defaults and bounds.

Producers take them as arguments of their constructors (``taking``), so that ``Producer("group", retries=5)`` is what
editors, type checkers and ``help`` know. What they mean stands at ``Producer``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Concatenate, ParamSpec, TypedDict, TypeVar

from eruca.client.admin_calls import NEW_TOPIC_QUEUES
from eruca.client.checks import check_least
from eruca.client.compression import COMPRESS_FROM
from eruca.client.config import ClientSettings, check_codes, check_group, check_positive
from eruca.client.hooks import Hook
from eruca.client.network.events import DisconnectedListener, ErrorListener, EventListeners, ReconnectedListener
from eruca.client.producing.accumulator import MAX_IN_FLIGHT, MAX_IN_FLIGHT_SIZE
from eruca.client.producing.backoff import RETRY_BACKOFF

DEFAULT_GROUP = "DEFAULT_PRODUCER"
"""The group of producers that name none, as in RocketMQ's client for Go."""
MAX_MESSAGE_SIZE = 4 * 1024 * 1024

P = ParamSpec("P")
Options = TypeVar("Options")
Self = TypeVar("Self")


@dataclass(frozen=True)
class ProducerOptions:
    """The arguments of ``Producer``. Raises BadName and BadConfig."""

    group: str | None = None
    _: KW_ONLY
    nameserver: str | Sequence[str] | None = None
    send_timeout: float = 3.0
    retries: int = 2
    retry_backoff: float = RETRY_BACKOFF
    retry_codes: Collection[int] = ()
    retry_when_not_stored: bool = False
    compress_from: int = COMPRESS_FROM
    max_message_size: int = MAX_MESSAGE_SIZE
    new_topic_queues: int = NEW_TOPIC_QUEUES
    max_in_flight: int = MAX_IN_FLIGHT
    max_in_flight_size: int = MAX_IN_FLIGHT_SIZE
    fault_tolerance: bool = False
    hooks: Sequence[Hook] = ()
    trace: bool | str = False
    on_disconnected: DisconnectedListener | None = None
    on_reconnected: ReconnectedListener | None = None
    on_error: ErrorListener | None = None
    settings: ClientSettings | None = None

    def __post_init__(self) -> None:
        if self.group is not None:
            check_group(self.group, "producer")
        check_positive(
            send_timeout=self.send_timeout,
            retry_backoff=self.retry_backoff,
            new_topic_queues=self.new_topic_queues,
            max_in_flight=self.max_in_flight,
            compress_from=self.compress_from,
            max_message_size=self.max_message_size,
            max_in_flight_size=self.max_in_flight_size,
        )
        check_least(0, retries=self.retries)
        self.listeners()
        check_codes(retry_codes=self.retry_codes)

    def listeners(self) -> EventListeners:
        """The functions for events. Raises UsageError."""
        return EventListeners(
            group=self.group,
            on_disconnected=self.on_disconnected,
            on_reconnected=self.on_reconnected,
            on_error=self.on_error,
        )


class ProducerKeywords(TypedDict, total=False):
    """The options by name, without those that an App gives: for whoever passes them on."""

    send_timeout: float
    retries: int
    retry_backoff: float
    retry_codes: Collection[int]
    retry_when_not_stored: bool
    compress_from: int
    max_message_size: int
    new_topic_queues: int
    max_in_flight: int
    max_in_flight_size: int
    fault_tolerance: bool
    hooks: Sequence[Hook]
    trace: bool | str
    on_disconnected: DisconnectedListener | None
    on_reconnected: ReconnectedListener | None
    on_error: ErrorListener | None


def taking(
    kind: Callable[P, Options],
) -> Callable[[Callable[[Self, Options], None]], Callable[Concatenate[Self, P], None]]:
    """A constructor with the arguments of this class of options, which gets them as one object of it."""

    def decorate(construct: Callable[[Self, Options], None]) -> Callable[Concatenate[Self, P], None]:
        def __init__(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> None:
            construct(self, kind(*args, **kwargs))

        __init__.__signature__ = inspect.signature(kind.__init__)  # type: ignore[attr-defined]
        kind.__init__.__qualname__ = construct.__qualname__  # TypeErrors begin with it
        return __init__

    return decorate
