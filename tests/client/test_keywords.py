"""The typed dictionaries of options: each has the names and types of the arguments that it is passed on to."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from eruca.client import (
    RPC,
    App,
    Backoff,
    ClientSettings,
    Later,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PullScheduleService,
    PushConsumer,
    TransactionProducer,
    Waits,
    sync,
)
from eruca.client.consuming.arguments import ConsumerKeywords
from eruca.client.errors import BadConfig
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
def test_a_missing_argument_is_one_of_the_class_that_was_called(make: Any) -> None:
    with pytest.raises(BadConfig, match=r"^(Transaction)?Producer: retires is not known: did you mean retries\?$"):
        make("g", retires=5)
    with pytest.raises(TypeError, match=r"^TransactionProducer\.__init__\(\) missing .* 'check'"):
        TransactionProducer("g")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "option", "near"),
    [
        (App, "middlewares", "middleware"),
        (Backoff, "frist", "first"),
        (ClientSettings, "namespce", "namespace"),
        (Later, "second", "seconds"),
        (LitePullConsumer, "auto_comit", "auto_commit"),
        (PullConsumer, "strateg", "strategy"),
        (PullScheduleService, "pull_thread_num", "pull_thread_nums"),
        (PushConsumer, "concurency", "concurrency"),
        (RPC, "nameservr", "nameserver"),
        (Waits, "rebalanc", "rebalance"),
        (sync.PushConsumer, "concurency", "concurrency"),
    ],
)
def test_an_unknown_option_is_told_with_the_nearest_name(make: Any, option: str, near: str) -> None:
    with pytest.raises(BadConfig, match=f"^{make.__name__}: {option} is not known: did you mean {near}[?]$"):
        make(**{option: 1})


@pytest.mark.parametrize(
    "make", [App, ClientSettings, LitePullConsumer, Producer, PullConsumer, PullScheduleService, PushConsumer, Later]
)
def test_too_many_values_without_a_name_are_told(make: Any) -> None:
    taken = [each for each in inspect.signature(make).parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    values = ["g", print, *range(20)][: len(taken) + 1]
    with pytest.raises(BadConfig, match=f"^{make.__name__}: it takes .* without a name, but {len(values)} value"):
        make(*values)


def test_other_wrong_arguments_are_those_of_python() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'group'"):
        LitePullConsumer()  # type: ignore[call-arg]
