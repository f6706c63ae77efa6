"""Handlers: functions with typed parameters as listeners of messages.

Owns what the parameters of a handler mean, what happens to a message whose body cannot be read, and the publishing of
what a handler returns. Knows nothing of groups and of how consumers run listeners.
Invariant: a function that takes the message and nothing else is the listener itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin

from eruca.client import callbacks
from eruca.client.app.bodies import BodyReader, message_of, reader_of
from eruca.client.app.dependencies import UNSAID, Node, Overrides, call, call_plain, node_of
from eruca.client.config import check_topic
from eruca.client.errors import BadBody, UsageError
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Decision, Later, Listener, Reject, Suspend
from eruca.client.producing.producer import Producer

OnBadBody = Literal["dead", "retry", "skip"]
"""What becomes of a message whose body cannot be read: a dead letter at once, retries, or nothing but a log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """How a handler is called. Raises UsageError.

    Args:
        batch: whether it gets lists.
        on_bad_body: what becomes of bodies that cannot be read.
        publish_to: the topic of what it returns.
    """

    batch: bool = False
    on_bad_body: OnBadBody = "dead"
    publish_to: str | None = None

    def __post_init__(self) -> None:
        if self.on_bad_body not in get_args(OnBadBody):
            raise UsageError(f'on_bad_body={self.on_bad_body!r}: "dead", "retry" or "skip" is expected.')
        if self.publish_to is not None:
            check_topic(self.publish_to)


class Handler:
    """A function that handles messages, with its dependencies resolved. Raises UsageError.

    Args:
        publisher: sends what the function returns; None where nothing is published.
    """

    def __init__(
        self, function: Any, options: HandlerOptions, overrides: Overrides, publisher: Producer | None = None
    ) -> None:
        callbacks.check_callable(function, "The listener")
        self._name = callbacks.name_of(function)
        callbacks.check_no_generator(function, f"The handler {self._name}")
        self.function = function
        self._options = options
        self._publisher = publisher
        self._node = node_of(function, overrides)
        self._readers: dict[str, BodyReader] = {}
        """Of each parameter that takes a body."""
        self.is_coroutine = callbacks.is_coroutine_function(function)
        for node in self._node.walk():
            self._check_parameters(node)
            if node.is_coroutine and not self.is_coroutine:
                raise UsageError(
                    f"{self._name} is a plain function, which runs in threads, and depends on a coroutine: make it a "
                    "coroutine function, or the dependency a plain one."
                )

    def _check_parameters(self, node: Node) -> None:
        taken = {name: self._item(name, hint) for name, hint in node.takes.items()}
        bodies = [name for name, hint in taken.items() if not _is_message(hint)]
        if node is not self._node:
            if bodies:
                raise UsageError(
                    f"A dependency of {self._name} takes {', '.join(bodies)}: annotate it with ReceivedMessage or "
                    "Annotated[..., Depends(...)], or give it a default."
                )
            return
        if len(bodies) > 1:
            raise UsageError(
                f"{self._name} takes several bodies ({', '.join(bodies)}): one parameter takes the body, others are a "
                "ReceivedMessage or Annotated[..., Depends(...)]."
            )
        self._readers = {
            name: reader_of(taken[name])
            for name in bodies
            if taken[name] is not UNSAID and not (taken[name] is Any and len(taken) == 1)  # as listeners get it
        }

    def _item(self, name: str, hint: Any) -> Any:
        """What a parameter takes of each message."""
        if not self._options.batch or hint is Any or hint is UNSAID:
            return hint
        if get_origin(hint) is not list and hint is not list:
            raise UsageError(
                f"{name} of {self._name} is one value: with consume_message_batch_max_size a handler takes lists, such "
                "as list[ReceivedMessage]."
            )
        return next(iter(get_args(hint)), Any)

    @property
    def listener(self) -> Listener:
        """What a consumer calls."""
        if not self._readers and not self._node.needs and self._options.publish_to is None and self._takes_one():
            return self.function  # type: ignore[no-any-return]
        return self._coroutine if self.is_coroutine else self._plain

    def _takes_one(self) -> bool:
        """Whether the function can be called with the message alone. Raises UsageError where it takes nothing."""
        try:
            inspect.signature(self.function).bind(None)
        except TypeError:
            if not self._node.takes:
                raise UsageError(f"{self._name} takes nothing: a handler takes the message, or its body.") from None
            return False
        except ValueError:  # some built-in ones have no signature
            return True
        return len(self._node.takes) <= 1

    async def _coroutine(self, argument: Any) -> Any:
        read = self._read(argument)
        if read.messages:
            read.outcome = await self._publish(await call(self._node, lambda node: self._values(node, read)))
        return self._outcome(argument, read)

    def _plain(self, argument: Any) -> Any:
        read = self._read(argument)
        if read.messages:
            result = call_plain(self._node, lambda node: self._values(node, read))
            if self._options.publish_to is not None:
                return self._published(result, argument, read)  # the runner awaits it in the event loop
            if result is not None and not isinstance(result, _OUTCOMES) and not inspect.isawaitable(result):
                raise self._odd(result)
            read.outcome = result
        return self._outcome(argument, read)

    def _odd(self, result: object) -> UsageError:
        return UsageError(
            f"The handler {self._name} returned a value of type {type(result).__name__}: give publish_to= to send such "
            "values to a topic, or return None, Later() or Reject()."
        )

    async def _published(self, result: Any, argument: Any, read: _Read) -> Any:
        read.outcome = await self._publish(result)
        return self._outcome(argument, read)

    # ------------------------------------------------------------------ bodies

    def _read(self, argument: Any) -> _Read:
        """The messages with their values. Raises BadBody to retry."""
        read = _Read(values={name: [] for name in self._readers})
        for message in argument if isinstance(argument, list) else [argument]:
            try:
                values = {name: reader(message) for name, reader in self._readers.items()}
            except BadBody as error:
                if self._options.on_bad_body == "retry":
                    raise
                if self._options.on_bad_body == "skip":
                    log.error("%s cannot read %r, which is skipped: %s", self._name, message, error)
                read.bad.append(message)
                read.reason = read.reason or str(error)
                continue
            read.messages.append(message)
            for name, value in values.items():
                read.values[name].append(value)
        return read

    def _values(self, node: Node, read: _Read) -> dict[str, Any]:
        of_handler = node is self._node
        batch = self._options.batch
        found = {}
        for name in node.takes:
            values = read.values[name] if of_handler and name in self._readers else read.messages
            found[name] = values if batch else values[0]
        return found

    def _outcome(self, argument: Any, read: _Read) -> Any:
        """The outcome of the handler, and of the messages of the same list that it did not get.

        Outcomes count from the beginning of the list, so what is consumed is put there.
        """
        outcome = read.outcome
        if not read.bad:
            return outcome
        if self._options.on_bad_body == "dead":
            if self._options.batch:
                argument[:] = [*read.messages, *read.bad]
            fits = isinstance(outcome, Later | Reject | Suspend)  # what is retried is read again then
            return outcome if fits else Reject(read.reason, consumed=len(read.messages))
        if self._options.batch:
            argument[:] = [*read.bad, *read.messages]
        if isinstance(outcome, Later | Reject):
            return replace(outcome, consumed=outcome.consumed + len(read.bad))
        return outcome

    async def _publish(self, result: Any) -> Any:
        """Send what a handler returned, and what remains is its outcome."""
        topic = self._options.publish_to
        if result is None or isinstance(result, _OUTCOMES):
            return result
        if topic is None:
            raise self._odd(result)
        assert self._publisher is not None
        await self._publisher.send(message_of(topic, result))
        return None


@dataclass(slots=True, kw_only=True)
class _Read:
    """What was read of the messages of a call, and the outcome of the handler."""

    values: dict[str, list[Any]]
    messages: list[ReceivedMessage] = field(default_factory=list)
    bad: list[ReceivedMessage] = field(default_factory=list)
    reason: str | None = None
    outcome: Any = None


_OUTCOMES = (Later, Reject, Suspend, Decision)


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, ReceivedMessage)


def dispatched(listeners: Mapping[str, Listener], *, coroutine: bool) -> Listener:
    """One listener of single messages for a group whose topics have listeners of their own, all of one kind."""
    by_topic: dict[str, Callable[[Any], Any]] = dict(listeners)

    async def listener(message: ReceivedMessage) -> Any:
        return await by_topic[message.topic](message)

    def plain_listener(message: ReceivedMessage) -> Any:
        return by_topic[message.topic](message)

    return listener if coroutine else plain_listener
