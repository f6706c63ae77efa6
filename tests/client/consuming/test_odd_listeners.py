"""Listeners that do what none should: whatever it is, the message is not lost, and the consumer goes on."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any
from unittest.mock import AsyncMock

import pytest

from eruca.client import Decision, Hook, Later, PushConsumer, ReceivedMessage, Suspend
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import BadConfig, UsageError
from eruca.client.hooks import ConsumeContext
from tests.client.conftest import Lab, Seen, eventually
from tests.support.computing import die


class Odd(BaseException):
    """As pytest's own outcomes, no Exception."""


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_what_is_no_exception_is_a_failure_of_the_listener_too(lab: Lab, seen: Seen, kind: str) -> None:
    def function(message: ReceivedMessage) -> None:
        seen.function(message)
        if message.body == b"odd":
            raise Odd if kind == "coroutine" else SystemExit(3)  # sys.exit() in a thread

    async def coroutine(message: ReceivedMessage) -> None:
        function(message)

    await lab.send("T", b"first")
    queue = (await lab.puller.fetch_queues("T"))[0]
    listener: Any = coroutine if kind == "coroutine" else function
    consumer = PushConsumer("g", listener, nameserver=lab.address, concurrency=1).subscribe("T")
    async with consumer:
        await lab.send("T", b"odd", *[b"even"] * 4)
        await seen.reaches(6)
        await eventually(lambda: (engine_of(consumer).stats.consumed, engine_of(consumer).stats.failed) == (5, 1))
        await eventually(lambda: not len(engine_of(consumer).under_way[queue]))
    assert sum(offset or 0 for offset in await lab.offsets("g", "T")) == 6


async def test_a_listener_that_cancels_its_own_task(lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        task = asyncio.current_task()
        if message.body == b"odd" and task is not None:
            task.cancel()
            await asyncio.sleep(0)

    await lab.send("T", b"odd", *[b"even"] * 4)
    consumer = PushConsumer("g", listener, nameserver=lab.address, concurrency=1).subscribe("T")
    async with consumer:
        await seen.reaches(5)
        await eventually(lambda: (engine_of(consumer).stats.consumed, engine_of(consumer).stats.failed) == (4, 1))
    assert "was cancelled by itself or what it awaited" in caplog.text


def disguises(seen: Seen) -> Iterator[tuple[Callable[..., Any], bool]]:
    """Coroutine functions, and whether one can tell without calling them."""
    yield functools.partial(seen.coroutine), True
    yield functools.partial(functools.partial(seen.coroutine)), True
    yield lambda message: seen.coroutine(message), False
    yield AsyncMock(side_effect=seen.coroutine), False


async def test_a_coroutine_function_in_disguise_is_awaited(lab: Lab, seen: Seen) -> None:
    after = list[tuple[bool, str]]()

    class Watch(Hook):
        def after_consume(self, context: ConsumeContext) -> None:
            after.append((context.success, context.status))

    await lab.send("T", b"m")
    for number, (listener, _) in enumerate(disguises(seen)):
        consumer = PushConsumer(f"g{number}", listener, nameserver=lab.address, hooks=[Watch()]).subscribe("T")
        async with consumer:
            await seen.reaches(number + 1)
            await eventually(lambda consumer=consumer: engine_of(consumer).stats.consumed == 1)  # type: ignore[misc]
        assert engine_of(consumer).stats.failed == 0
    assert after == [(True, "CONSUME_SUCCESS")] * 4


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Later(consumed=-1),
        lambda: Later(consumed=None),  # type: ignore[arg-type]
        lambda: Later(delay_level="3"),  # type: ignore[arg-type]
        lambda: Later(delay_level=-2),
        lambda: Suspend("1"),  # type: ignore[arg-type]
        lambda: Suspend(float("nan")),
        lambda: Suspend(-1),
    ],
)
async def test_an_outcome_that_cannot_be_is_refused_where_it_is_made(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=r"\(.*\): a (whole )?number"):
        wrong()


async def test_more_consumed_than_there_were_is_all(lab: Lab, seen: Seen) -> None:
    async def listener(messages: list[ReceivedMessage]) -> Later:
        for message in messages:
            seen.add(message)
        return Later(consumed=100)

    await lab.send("T", b"m")
    consumer = PushConsumer("g", listener, nameserver=lab.address, consume_message_batch_max_size=8).subscribe("T")
    async with consumer:
        await seen.reaches(1)
        await eventually(lambda: engine_of(consumer).stats.consumed == 1)
    assert engine_of(consumer).stats.failed == 0


async def test_a_rollback_that_cannot_be_is_not_taken_for_consumed(
    lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    """Java takes ROLLBACK with auto-commit for success; then a message is gone that was to come again."""

    async def listener(message: ReceivedMessage) -> Decision | None:
        seen.add(message)
        return Decision.ROLLBACK if message.reconsume_times == 0 else None

    await lab.send("T", b"m")
    consumer = PushConsumer("g", listener, nameserver=lab.address, orderly=True, suspend_time=0.01).subscribe("T")
    async with consumer:
        await seen.reaches(2)
        await eventually(lambda: engine_of(consumer).stats.consumed == 1)
    assert "Decision.ROLLBACK takes auto_commit=False" in caplog.text


async def test_everything_to_everybody_waits_for_a_slow_listener(
    lab: Lab, seen: Seen, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing goes back there, so a time-out must not leave the message neither consumed nor to come again."""
    release = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        await release.wait()

    await lab.send("T", b"m")
    consumer = PushConsumer(
        "g",
        listener,
        nameserver=lab.address,
        start_from="first",
        broadcast=True,
        offset_folder=tmp_path,
        consume_timeout=0.1,
    ).subscribe("T")
    async with consumer:
        await seen.reaches(1)
        await eventually(lambda: "did not end within 0.1 s, still waiting for" in caplog.text)
        release.set()
        await eventually(lambda: engine_of(consumer).stats.consumed == 1)
        assert sum(run.position for run in engine_of(consumer).under_way.values()) == 1
    assert caplog.text.count("did not end within") == 1


@pytest.mark.processes
async def test_an_executor_that_died_is_replaced(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    made = list[ProcessPoolExecutor]()

    def make() -> Executor:
        made.append(ProcessPoolExecutor(1, get_context("spawn")))
        return made[-1]

    await lab.send("T", b"die")
    consumer = PushConsumer("g", die, nameserver=lab.address, executor=make, concurrency=1).subscribe("T")
    async with consumer, asyncio.timeout(60):
        while engine_of(consumer).stats.failed < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await lab.send("T", b"live")
        while engine_of(consumer).stats.consumed < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert len(made) == 2 and "is replaced" in caplog.text
    with pytest.raises(RuntimeError, match="shutdown"):
        made[1].submit(print)


async def test_an_executor_that_was_given_and_died_says_what_to_do(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        dead = pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL)
        assert await asyncio.to_thread(dead.exception) is not None
        await lab.send("T", b"live")
        consumer = PushConsumer("g", die, nameserver=lab.address, executor=pool).subscribe("T")
        async with consumer:
            await eventually(lambda: engine_of(consumer).stats.failed == 1)
    assert "Give executor= a function that makes an executor" in caplog.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_reconsume_times": -1}, "max_reconsume_times=-1 is not allowed: 0 or more"),
        ({"stop_timeout": -1}, "stop_timeout=-1 is not allowed"),
        ({"executor": 5}, "executor is of type int"),
    ],
)
async def test_options_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises((BadConfig, UsageError), match=says):
        PushConsumer("g", print, nameserver="a:1", **options)
