"""The typed dictionaries of options: each has the names and types of the arguments that it is passed on to."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from eruca.client import Message, Producer, PushConsumer, TransactionProducer, sync
from eruca.client.consuming.arguments import ConsumerKeywords
from eruca.client.message import MessageKeywords
from eruca.client.producing.options import ProducerKeywords, ProducerOptions


def by_name(taker: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(taker).parameters.values()
    return {each.name: each.annotation for each in parameters if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("keywords", "taker"), [(ConsumerKeywords, PushConsumer.__init__), (ProducerKeywords, ProducerOptions.__init__)]
)
def test_the_options_of_clients_but_those_that_an_app_gives(keywords: Any, taker: Callable[..., Any]) -> None:
    wanted = by_name(taker)
    del wanted["nameserver"], wanted["settings"]
    assert {name: kind.__forward_arg__ for name, kind in keywords.__annotations__.items()} == wanted


def test_the_options_of_messages() -> None:
    kinds = {name: kind.__forward_arg__ for name, kind in MessageKeywords.__annotations__.items()}
    assert kinds == {name: Message.__annotations__[name] for name in by_name(Message)}


@pytest.mark.parametrize("make", [Producer, sync.Producer, TransactionProducer])
def test_an_unknown_option_is_one_of_the_class_that_was_called(make: Any) -> None:
    with pytest.raises(TypeError, match=r"^(Transaction)?Producer\.__init__\(\) got an unexpected keyword argument"):
        make("g", retires=5)
    with pytest.raises(TypeError, match=r"^TransactionProducer\.__init__\(\) missing .* 'check'"):
        TransactionProducer("g")  # type: ignore[call-arg]
