"""The pages about the client: every example is run as it stands, every argument is named, and defaults are true."""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import re
from collections.abc import Iterator

import pytest

import eruca.client
from eruca.client import (
    App,
    ClientSettings,
    Credentials,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PullScheduleService,
    PullStatus,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    SendStatus,
    Tls,
    TransactionProducer,
    TransactionState,
)
from eruca.standalone.background import BackgroundCluster
from tests.client.conftest import small_broker
from tests.support.examples import DOCS, examples_of

PAGES = (
    *("getting-started.md", "app.md", "client.md", "coming-from.md", "delayed-messages.md", "filters.md"),
    *("observability.md", "polling.md", "retries.md"),
)
ALL_PAGES = (*PAGES, "security.md")
CLASSES = (
    *(App, ClientSettings, Credentials, Message, Tls),
    *(Producer, TransactionProducer, PushConsumer, LitePullConsumer, PullConsumer, PullScheduleService),
)


def examples() -> list[object]:
    """The examples of all pages; those of the first page are one program, since the second one reads what the first
    has sent."""
    first = "\n".join(str(example.values[0]) for example in examples_of(PAGES[0]))  # type: ignore[attr-defined]
    return [pytest.param(first, id=PAGES[0]), *(example for page in PAGES[1:] for example in examples_of(page))]


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster for all examples of the page."""
    broker = small_broker()
    broker.store.mapped_file_size_commit_log = 16 << 20  # a batch lies in one file
    broker.enable_property_filter = True
    with BackgroundCluster(tmp_path_factory.mktemp("docs"), broker=broker) as cluster:
        yield cluster.address


def start_and_stop(app: App, nameserver: str | None = None) -> None:
    """In place of a run that ends by a signal only."""

    async def work() -> None:
        async with app:
            pass

    asyncio.run(work())


@pytest.mark.parametrize("code", examples())
def test_an_example(code: str, nameserver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", nameserver)
    monkeypatch.setattr(App, "run", start_and_stop)
    logger = logging.getLogger("eruca.client")
    before = logger.handlers[:], logger.level
    try:
        exec(compile(code, "an example", "exec"), {"__name__": "__main__"})
    finally:
        logger.handlers[:], logger.level = before


@pytest.mark.parametrize("page", ALL_PAGES)
def test_no_example_is_left_out(page: str) -> None:
    assert len(examples_of(page)) == (DOCS / page).read_text().count("```py") > 0


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_argument_is_named(kind: type) -> None:
    """Each argument of a class that users make is on one of the pages, in the type of code."""
    named = words_of_code()
    assert [name for name in inspect.signature(kind).parameters if name not in named and name[0] != "_"] == []


def test_every_name_is_named() -> None:
    """So is each public name, what a message and a result have, and each status."""
    names = {*eruca.client.__all__, *(name for name in vars(ReceivedMessage) if name[0] != "_")}
    names |= {each.name for each in (*SendStatus, *PullStatus, *TransactionState)} | set(SendResult.__struct_fields__)
    assert sorted(names - words_of_code()) == []


@pytest.mark.parametrize("kind", [TransactionProducer, PushConsumer, ClientSettings], ids=lambda kind: kind.__name__)
def test_a_default_is_the_one_on_the_page(kind: type) -> None:
    """Of the tables in the section Settings, as far as their values are literals."""
    section = (DOCS / "client.md").read_text().partition("## Settings\n")[2].partition("\n## ")[0]
    parameters = inspect.signature(kind).parameters
    checked = 0
    for names, values in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section, flags=re.MULTILINE):
        for name, value in zip(re.findall(r"\w+", names), values.split(", "), strict=True):
            if name in parameters and re.fullmatch(r"[\d.()]+|True|False|None|\"\w+\"", value):
                assert ast.literal_eval(value) == parameters[name].default, name
                checked += 1
    assert checked > 5


def words_of_code() -> set[str]:
    """What is in the type of code on the pages."""
    text = "\n".join((DOCS / page).read_text() for page in ALL_PAGES)
    code = re.findall(r"^```python\n[\s\S]*?^```|`[^`\n]+`", text, flags=re.MULTILINE)
    return set(re.findall(r"\w+", " ".join(code)))
