"""Groups: what the decorators of an application said about one consumer group, and its consumer for one run.

Owns which declarations fit together: the decorators of a group share its options, and each topic has one handler.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, NoReturn

from eruca.client.app.dependencies import Overrides, Provider, node_of
from eruca.client.app.handlers import Handler, HandlerOptions, OnBadBody, dispatched
from eruca.client.config import ClientSettings
from eruca.client.consuming.push_consumer import PushConsumer
from eruca.client.environment import nearest
from eruca.client.errors import UsageError
from eruca.client.hooks import Hook
from eruca.client.middleware import Middleware
from eruca.client.outcomes import Listener
from eruca.client.producing.producer import Producer

WORKER = "ERUCA_WORKER"
"""The variable that has the number of each worker of ``eruca run --workers``, from 1 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One decorator: a topic of a group with its handler."""

    topic: str
    expression: str
    expression_type: str
    function: Any
    on_bad_body: OnBadBody = "dead"
    publish_to: str | None = None


@dataclass(slots=True)
class Group:
    """A consumer group of the application."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of its PushConsumer, without the settings."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """By topic."""

    def add(self, subscription: Subscription, options: Mapping[str, Any]) -> None:
        """Add a topic; ``options`` are the group's or empty. Raises UsageError, and what a PushConsumer raises."""
        if subscription.topic in self.subscriptions:
            raise UsageError(
                f"The group {self.name} has a listener for {subscription.topic} already: give each a group of its own."
            )
        if options and self.options and options != self.options:
            raise UsageError(f"The group {self.name} has other options already: give them to one of its decorators.")
        options = self.options or dict(options)
        subscriptions = {**self.subscriptions, subscription.topic: subscription}
        Group(self.name, options, subscriptions).consumer(ClientSettings(), {}, None)  # its checks
        self.options, self.subscriptions = options, subscriptions

    @property
    def publishes(self) -> bool:
        """Whether a handler's results are sent somewhere."""
        return any(each.publish_to is not None for each in self.subscriptions.values())

    def providers(self) -> Iterator[Provider]:
        """Those on which its handlers depend, directly or not."""
        for each in self.subscriptions.values():
            yield from (node.function for node in node_of(each.function, {}).walk())

    def consumer(
        self,
        settings: ClientSettings,
        overrides: Overrides,
        publisher: Producer | None,
        hooks: Sequence[Hook] = (),
        middleware: Sequence[Middleware] = (),
        events: Mapping[str, Any] | None = None,
        offset_folder: str | PathLike[str] | None = None,
    ) -> PushConsumer:
        """A new consumer of the group; if it broadcasts, ``offset_folder`` is in place of its own.

        Raises UsageError, and what a PushConsumer raises.
        """
        options = {**(events or {}), **self.options}
        for name, more in (("hooks", hooks), ("middleware", middleware)):
            if more:
                options[name] = (*more, *options.get(name, ()))
        listener: Any = self._listener(overrides, publisher)  # whether it fits the order is known when it is called
        if options.get("broadcast"):
            settings = _of_worker(settings)
            options["offset_folder"] = offset_folder or options.get("offset_folder")
        consumer = PushConsumer(self.name, listener, settings=settings, **options)
        for each in self.subscriptions.values():
            consumer.subscribe(each.topic, each.expression, expression_type=each.expression_type)
        return consumer

    def _listener(self, overrides: Overrides, publisher: Producer | None) -> Listener:
        subscriptions = list(self.subscriptions.values())
        handlers = {
            each.topic: Handler(each.function, self._handling(each), overrides, publisher) for each in subscriptions
        }
        first = subscriptions[0]
        if all(
            (each.function, self._handling(each)) == (first.function, self._handling(first)) for each in subscriptions
        ):
            return handlers[first.topic].listener
        if self._handling(first).batch:
            raise UsageError(
                f"Lists of the group {self.name} may have messages of several topics: give them one handler, or each "
                "topic a group of its own."
            )
        kinds = {handler.is_coroutine for handler in handlers.values()}
        if len(kinds) > 1:
            raise UsageError(
                f"Handlers of the group {self.name} are coroutine functions and plain ones: make all of them of one "
                "kind, or give each a group of its own."
            )
        return dispatched({topic: each.listener for topic, each in handlers.items()}, coroutine=kinds.pop())

    def _handling(self, subscription: Subscription) -> HandlerOptions:
        return HandlerOptions(
            batch=self.options.get("consume_message_batch_max_size") is not None,
            on_bad_body=subscription.on_bad_body,
            publish_to=subscription.publish_to,
        )


def _of_worker(settings: ClientSettings) -> ClientSettings:
    """The settings of a broadcasting member, whose file of offsets goes by its instance name: each worker has one."""
    number = os.environ.get(WORKER, "1")
    if settings.instance_name != "DEFAULT" or number == "1":
        return settings
    return replace(settings, instance_name=f"worker-{number}")


class Consumers(dict[str, PushConsumer]):
    """The consumers of a running application by their groups."""

    def __missing__(self, group: str) -> NoReturn:
        if not self:
            raise UsageError(f"The application does not run: {group} is there from its start on.")
        close = nearest(group, self)
        advice = f"did you mean {close}?" if close else f"there are {', '.join(sorted(self))}"
        raise UsageError(f"The application has no group {group}: {advice}")
