"""ConsumeRequest: one call of a listener, from the pull to the outcome.

Owns what a listener is called with, how long the call took, and the check of what it returned. The runners in
``runners`` execute requests. Facts: ConsumeMessageConcurrentlyService.ConsumeRequest in 4.9.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any

from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.errors import UsageError
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Decision, Later, Outcome, Reject
from eruca.protocol.names import RETRY_TOPIC

Argument = ReceivedMessage | list[ReceivedMessage]
"""What a listener is called with: one message, or a list with ``consume_message_batch_max_size``."""


class ConsumeRequest:
    """One call of a listener. A request that succeeded may be reused for the next call of its batch."""

    __slots__ = ("argument", "began", "error", "expired", "outcome", "overdue", "process_queue", "took")
    allowed: tuple[type, ...] = (Later, Reject)
    """What a listener may return besides None."""
    claims = False
    """Whether ``claim`` checks more than whether the process queue was dropped."""
    argument: Argument

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self.outcome: Outcome = None
        self.error: BaseException | None = None
        """What the listener raised."""
        self.began = 0.0
        """When the call began, in seconds of the monotonic clock."""
        self.took = 0.0
        """Seconds that the call took."""
        self.expired = False
        """The call exceeded ``consume_timeout`` and its messages were sent back: its outcome no longer counts."""
        self.overdue = -1.0
        """``began`` of the call that was logged as overdue and is still waited for."""

    @property
    def messages(self) -> list[ReceivedMessage]:
        """The messages of the call."""
        argument = self.argument
        return argument if isinstance(argument, list) else [argument]

    def claim(self) -> bool:
        """Whether the call may begin. Asked once, immediately before it, possibly in another thread."""
        return not self.process_queue.dropped

    @classmethod
    def checked(cls, outcome: Any, listener: str = "") -> Outcome:
        """The outcome, if a listener may return it. Raises UsageError, which names the ``listener``."""
        if outcome is None or type(outcome) in cls.allowed:
            checked: Outcome = outcome
            return checked
        *others, last = [f"{kind.__name__}{'' if kind is Decision else '()'}" for kind in cls.allowed]
        kinds = ", ".join(("None", *others))
        raise UsageError(
            f"A listener returns {kinds} or {last}, not {type(outcome).__name__}{listener and f': look at {listener}'}."
        )

    def accept(self, outcome: Any, listener: str) -> None:
        """Record what the listener of this name returned."""
        if outcome is not None:
            try:
                self.outcome = self.checked(outcome, listener)
            except UsageError as error:
                self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Record what the listener raised."""
        self.error = error
        self.outcome = Later()


class PulledBatch:
    """Messages of one process queue that wait for listeners. A free worker, in any thread, takes the next argument."""

    __slots__ = ("arguments", "packed", "process_queue")

    def __init__(self, process_queue: ProcessQueue, arguments: Sequence[Argument], *, packed: bool = False) -> None:
        self.process_queue = process_queue
        self.arguments: Iterator[Argument] = iter(arguments)
        self.packed = packed
        """Whether there are bodies to ``unpack`` before a call."""

    @property
    def left(self) -> int:
        """How many calls wait."""
        return length_hint(self.arguments)

    def close(self) -> None:
        """Discard the calls that wait."""
        deque(self.arguments, maxlen=0)

    def request(self, spare: ConsumeRequest | None = None) -> ConsumeRequest:
        """The request for the next call; ``spare`` is reused if given."""
        if spare is None:
            return ConsumeRequest(self.process_queue)
        spare.process_queue = self.process_queue
        return spare


def listener_failed(group: str, messages: Sequence[ReceivedMessage], error: BaseException) -> None:
    """Log a failed call of a listener, with what one looks for: original topic, keys and number of the try."""
    first = messages[0]
    topic = first.properties.get(RETRY_TOPIC) or first.topic
    keys, tries = " ".join(first.keys), first.reconsume_times + 1
    log.error(
        "the listener of %s failed with message %s of %s (%stry %s)%s",
        group,
        first.message_id,
        topic,
        f"keys {keys}, " if keys else "",
        tries,
        f" and {len(messages) - 1} more" if len(messages) > 1 else "",
        exc_info=error,
        extra={"group": group, "topic": topic, "message_id": first.message_id, "keys": keys, "attempt": tries},
    )
