"""Wrong use is told at the call: each row of the table in docs/wrong-use.md, run as it stands."""

from __future__ import annotations

import ast
import asyncio
import builtins
import os
import re
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

import eruca.client
from eruca.client import (
    RPC,
    App,
    Hook,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
    deduplication,
    errors,
    outbox,
    selectors,
    serializers,
    sync,
)
from eruca.standalone.background import BackgroundCluster
from tests.client.conftest import small_broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "wrong-use.md"
QUEUE = MessageQueue("Orders", "broker-a", 0)


class Row(NamedTuple):
    """A line of the table: code, the class of the error, and its sentence, in which `…` stands for anything."""

    call: str
    error: str
    sentence: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            found.append(Row(cells[0].strip("`"), cells[1].strip("`"), cells[2]))
    return found


@asynccontextmanager
async def names() -> AsyncIterator[dict[str, Any]]:
    """The names that the page tells of."""
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("orders-service"))
        await producer.create_topic("Orders", 4)
        sent = await producer.send(Message("Orders", b"x"), queue=QUEUE)
        stopped = Producer("stopped")
        async with stopped:
            pass
        lite = LitePullConsumer("lite")
        lite.assign([QUEUE])
        app = App()
        app.consumer("Orders", "kitchen")(print)
        app.producer("billing")
        consumer = PushConsumer("consumer", lambda message: None).subscribe("Orders")
        gone = PushConsumer("gone", print).subscribe("Orders")
        ended = RPC("Calls", "ended")
        for each in (gone, ended):
            async with each:
                pass
        folder = stack.enter_context(TemporaryDirectory())
        await stack.enter_async_context(PullConsumer("caches", broadcast=True, offset_folder=folder))
        yield {
            **{name: getattr(eruca.client, name) for name in eruca.client.__all__},
            **{"selectors": selectors, "serializers": serializers, "sync": sync, "Executor": ThreadPoolExecutor},
            **{"deduplication": deduplication, "outbox": outbox},
            **{"asyncio": asyncio, "datetime": datetime, "timedelta": timedelta, "UTC": UTC},
            **{"producer": producer, "stopped": stopped, "app": app, "queue": QUEUE, "hook": Hook()},
            "dealer": await stack.enter_async_context(
                TransactionProducer("dealers", lambda message: TransactionState.UNKNOWN)
            ),
            "consumer": await stack.enter_async_context(consumer),
            "lite": await stack.enter_async_context(lite),
            "unheard": await stack.enter_async_context(PushConsumer("unheard").subscribe("Orders")),
            "idle": await stack.enter_async_context(LitePullConsumer("idle")),
            "acked": await _acked(),
            "folder": folder,
            "puller": await stack.enter_async_context(PullConsumer()),
            "received": await producer.view_message(sent.offset_message_id),
            "coroutine": _coroutine,
            "generator": _generator,
            "async_generator": _async_generator,
            "gone": gone,
            "ended": ended,
            "takes_list": _takes_list,
            "in_a_forked_child": in_a_forked_child,
            "in_a_coroutine_of_its_loop": in_a_coroutine_of_its_loop,
        }


SENTENCES = {"UsageError", "BadName", "BadMessage", "BadConfig", "StateError", "ForkedClient"}
"""The errors whose sentences the page has."""


def sentences() -> Iterator[tuple[str, list[str]]]:
    """Each place of the client that makes one of these errors, and the words of its sentence that stand in the code."""
    for module in sorted(Path(eruca.client.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in SENTENCES
                and node.args
            ):
                text = node.args[0]
                pieces = text.values if isinstance(text, ast.JoinedStr) else [text]
                words = [str(each.value).strip() for each in pieces if isinstance(each, ast.Constant)]
                yield f"{module.name}:{node.lineno}", [each for each in words if len(each) > 7]


def test_the_page_has_each_sentence_about_wrong_use() -> None:
    page = PAGE.read_text().replace("\\|", "|")

    found = [(place, [each for each in words if each not in page]) for place, words in sentences()]

    assert len(found) > 200
    assert [(place, missing) for place, missing in found if missing] == []


def test_the_page_says_what_each_name_stands_for() -> None:
    told = set(
        re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", PAGE.read_text().partition("## Names in the calls")[2])))
    )
    told |= {*dir(builtins), *eruca.client.__all__}

    trees = [ast.parse(f"async def call():\n {row.call}") for row in rows()]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    made = {node.id for node in nodes if isinstance(node.ctx, ast.Store)} | {
        node.arg for tree in trees for node in ast.walk(tree) if isinstance(node, ast.arg)
    }

    assert {node.id for node in nodes} - told - made == set()


async def _acked() -> ReceivedMessage:
    async with PushConsumer("taker", start_from="first").subscribe("Orders") as taker:
        async for message in taker:
            message.ack()
            return message
    raise AssertionError("no message came")


async def _coroutine(message: ReceivedMessage) -> None:
    pass


def _generator(message: ReceivedMessage) -> Iterator[int]:
    yield 1


async def _async_generator(message: ReceivedMessage) -> AsyncIterator[int]:
    yield 1


def _takes_list(messages: list[ReceivedMessage]) -> None:
    pass


def in_a_forked_child(call: Callable[[], object]) -> None:
    """Make the call in a child of this process; its error is raised here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call()
        except errors.ClientError as error:
            os.write(writer, f"{type(error).__name__} {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        name, _, sentence = told.read().partition(" ")
    raise getattr(errors, name)(sentence)


async def in_a_coroutine_of_its_loop(call: Callable[[], object]) -> None:
    """Make the call in a listener of a blocking consumer that is a coroutine; its error is raised here."""
    told: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    async def listener(message: ReceivedMessage) -> None:
        try:
            call()
        except errors.ClientError as error:
            loop.call_soon_threadsafe(told.set_result, error)

    def consume() -> sync.PushConsumer:
        consumer = sync.PushConsumer("blocking", listener, start_from="first").subscribe("Orders")
        consumer.start()
        return consumer

    consumer = await asyncio.to_thread(consume)
    try:
        raise await asyncio.wait_for(told, 20)
    finally:
        await asyncio.to_thread(consumer.stop)


async def outcome(call: str, known: dict[str, Any]) -> Row:
    """What the call raised."""
    space = dict(known)
    exec(compile("async def call():\n" + textwrap.indent(call, "    "), call, "exec"), space)
    try:
        async with asyncio.timeout(30):
            await space["call"]()
    except Exception as error:
        return Row(call, type(error).__name__, str(error))
    return Row(call, "nothing", "")


@pytest.mark.filterwarnings("ignore:A blocking client was called where an event loop runs")
async def test_each_row_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows()
    assert len(expected) >= 80
    with BackgroundCluster(tmp_path, broker=small_broker()) as cluster:
        monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", cluster.address)
        with sync.Producer("blocking") as blocking:
            async with names() as known:
                found = [await outcome(row.call, {**known, "blocking": blocking}) for row in expected]
    wrong = [(row, now) for row, now in zip(expected, found, strict=True) if not agrees(row, now)]
    assert wrong == []
    kinds = {getattr(errors, row.error) for row in expected}
    assert all(issubclass(kind, errors.UsageError | errors.StateError) and not kind.retriable for kind in kinds)


def agrees(row: Row, now: Row) -> bool:
    pattern = ".*".join(re.escape(part) for part in row.sentence.split("…"))
    return row.error == now.error and re.fullmatch(pattern, now.sentence) is not None
