"""Functions that become consumers by a decorator, and the program around them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eruca.client import App, Message, ReceivedMessage
from eruca.client.errors import BadName, NameserverUnreachable, StateError, UsageError
from tests.client.conftest import Lab, Seen
from tests.support.ports import free_port


async def test_two_groups_and_a_producer(lab: Lab, seen: Seen) -> None:
    life: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        life.append("database open")
        yield
        life.append("database closed")

    app = App(nameserver=lab.address, lifespan=lifespan)
    bills = app.producer("billing")

    @app.consumer("Orders", "kitchen", expression="new", start_from="first")
    async def cook(message: ReceivedMessage) -> None:
        await bills.send(Message("Bills", b"a bill for " + message.body))

    @app.consumer("Bills", "cashier", start_from="first")
    def collect(message: ReceivedMessage) -> None:
        seen.function(message)

    await lab.send("Orders", b"salad", tags="new")
    await lab.send("Orders", b"soup", tags="old")
    async with app:
        await seen.reaches(1)
        assert life == ["database open"]
    assert (seen.bodies, life) == ([b"a bill for salad"], ["database open", "database closed"])
    assert asyncio.iscoroutinefunction(cook), "the function stays as it is, for tests of its own"


async def test_what_started_is_stopped_when_another_cannot_start() -> None:
    life: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        life.append("database open")
        try:
            yield
        finally:
            life.append("database closed")

    app = App(nameserver=f"127.0.0.1:{free_port()}", lifespan=lifespan)
    producer = app.producer("billing")
    app.consumer("Orders", "kitchen")(print)
    with pytest.raises(NameserverUnreachable):
        await app.start()
    with pytest.raises(StateError, match="service state not OK"):
        _ = producer.session
    assert life == ["database open", "database closed"]


PROGRAM = """
import sys
from eruca.client import App

app = App(nameserver=sys.argv[1])

@app.consumer("Orders", "kitchen", start_from="first")
async def cook(message):
    print("cooked", message.body.decode(), flush=True)

app.run()
print("closed", flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_run_serves_until_a_signal(lab: Lab, number: signal.Signals) -> None:
    await lab.send("Orders", b"salad")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        lab.address,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"cooked salad\n"
            process.send_signal(number)
            assert await process.stdout.read() == b"closed\n"
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    await lab.stores("kitchen", "Orders", [offset or 0 for offset in await lab.ends("Orders")])


def unstarted() -> App:
    return App(nameserver="127.0.0.1:1")


def twice(app: App) -> None:
    app.consumer("Orders", "kitchen")(print)
    app.consumer("Bills", "kitchen")(print)


def options_later(app: App) -> None:
    app.producer("billing")
    app.producer("billing", retries=5)


async def test_a_lifespan_that_is_not_decorated() -> None:
    async def lifespan() -> AsyncIterator[None]:
        yield

    app = App(nameserver="127.0.0.1:1", lifespan=lifespan)  # type: ignore[arg-type]
    app.consumer("Orders", "kitchen")(print)
    with pytest.raises(UsageError, match="lifespan gave a async_generator: it is to be a function decorated by"):
        await app.start()


@pytest.mark.parametrize(
    ("use", "error", "sentence"),
    [
        (lambda app: app.run(), UsageError, "The application has no consumer"),
        (lambda app: app.consumer(print, "kitchen"), UsageError, "The decorator takes a topic and a group"),
        (lambda app: app.consumer("Orders", "kitchen")("no function"), UsageError, "The listener is of type str"),
        (lambda app: app.consumer("Or ders", "kitchen")(print), BadName, "contains illegal characters"),
        (twice, UsageError, "The group kitchen has a listener already"),
        (options_later, UsageError, "The producer billing is made already"),
    ],
)
def test_wrong_use(use: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        use(unstarted())


async def test_run_is_not_for_an_event_loop() -> None:
    app = unstarted()
    app.consumer("Orders", "kitchen")(print)
    with pytest.raises(UsageError, match="use `async with app` there"):
        app.run()


def test_run_is_for_the_main_thread() -> None:
    app = unstarted()
    app.consumer("Orders", "kitchen")(print)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            app.run()
        except UsageError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert "outside the main thread" in str(raised[0])


async def test_nothing_is_registered_while_it_runs(lab: Lab) -> None:
    app = App(nameserver=lab.address)
    app.consumer("Orders", "kitchen")(print)
    async with app:
        with pytest.raises(StateError, match="register consumers and producers before it starts"):
            app.consumer("Bills", "cashier")(print)
        with pytest.raises(StateError, match="The application runs"):
            await app.start()
