"""The options of subscribers and sends are those of Eruca's clients, by their names and types."""

from __future__ import annotations

import inspect
from typing import Any

from eruca.client import LitePullConsumer, Message
from eruca.client.consuming.arguments import ConsumerKeywords
from eruca.client.message import MessageKeywords
from eruca.faststream.options import ConsumerOptions, MessageOptions, PullOptions


def types_of(options: Any) -> dict[str, str]:
    return {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}


def test_they_are_arguments_of_the_clients() -> None:
    known = types_of(ConsumerKeywords)
    assert types_of(ConsumerOptions) == {name: known[name] for name in types_of(ConsumerOptions)}
    assert set(PullOptions.__annotations__) <= set(inspect.signature(LitePullConsumer).parameters)
    assert set(MessageOptions.__annotations__) <= set(inspect.signature(Message).parameters)
    assert set(MessageKeywords.__annotations__) - set(MessageOptions.__annotations__) <= {"properties"}
