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
from pathlib import Path
from typing import Any

import pytest

from eruca.client import App, ClientSettings, Message, Producer, ReceivedMessage, lag, sync
from eruca.client.errors import (
    BadConfig,
    BadName,
    CallTimeout,
    NameserverUnreachable,
    NoNameserver,
    StateError,
    UsageError,
)
from eruca.client.middleware import CallNext
from eruca.client.outcomes import Outcome
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


@pytest.fixture
def no_nameserver(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCKETMQ_NAMESRV_ADDR", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_nameserver")
async def test_it_is_made_without_an_address_and_reads_it_at_each_start(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    bills = app.producer("billing")
    app.consumer("Orders", "kitchen")(coroutine)
    with pytest.raises(NoNameserver):
        await app.start()
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", lab.address)
    async with app:
        await bills.send(Message("Bills", b"x"))


@pytest.mark.usefixtures("no_nameserver")
async def test_it_starts_any_number_of_times_with_new_consumers(lab: Lab) -> None:
    app, members = App(), []
    app.consumer("Orders", "kitchen")(coroutine)
    bills = app.producer("billing")
    for _ in range(3):
        with app.using(nameserver=lab.address):
            async with app:
                members.append(app.consumers["kitchen"])
                await bills.send(Message("Bills", b"x"))
        with pytest.raises(UsageError, match="The application does not run: kitchen is there from its start on"):
            _ = app.consumers["kitchen"]
    assert len(set(members)) == 3
    with pytest.raises(NoNameserver):
        await app.start()


async def test_settings_may_come_from_a_function_at_the_start(lab: Lab) -> None:
    asked: list[ClientSettings] = []

    def settings() -> ClientSettings:
        asked.append(ClientSettings(nameserver=lab.address, request_timeout=7))
        return asked[-1]

    app = App(settings=settings)
    bills = app.producer("billing")
    assert not asked
    async with app:
        assert bills.session.settings.request_timeout == 7
    assert len(asked) == 1


async def test_producers_alone_and_the_same_in_another_loop(lab: Lab) -> None:
    app = App(nameserver=lab.address)
    bills = app.producer("billing")

    async def work() -> None:
        async with app:
            await bills.send(Message("Bills", b"x"))

    await work()
    await asyncio.to_thread(asyncio.run, work())


async def test_one_group_with_several_topics(lab: Lab, seen: Seen) -> None:
    app = App(nameserver=lab.address)
    took: list[str] = []

    @app.consumer("Orders", "kitchen", start_from="first")
    async def cook(message: ReceivedMessage) -> None:
        took.append("cook")
        seen.add(message)

    @app.consumer("Changes", "kitchen", expression="dish")
    async def change(message: ReceivedMessage) -> None:
        took.append("change")
        seen.add(message)

    @app.consumer("Complaints", "office", start_from="first")
    @app.consumer("Praise", "office")
    def read(message: ReceivedMessage) -> None:
        seen.function(message)

    await lab.send("Orders", b"1")
    await lab.send("Changes", b"2", tags="dish")
    await lab.send("Changes", b"no dish")
    await lab.send("Complaints", b"3")
    await lab.send("Praise", b"4")
    async with app:
        await seen.reaches(4)
    assert sorted(seen.bodies) == [b"1", b"2", b"3", b"4"] and sorted(took) == ["change", "cook"]


async def test_middleware_stands_around_all_handlers(lab: Lab) -> None:
    passed: list[str] = []

    async def outer(message: ReceivedMessage, call_next: CallNext) -> Outcome:
        passed.append("outer")
        return await call_next(message)

    async def inner(message: ReceivedMessage, call_next: CallNext) -> Outcome:
        passed.append("inner")
        return await call_next(message)

    app = App(middleware=[outer])

    @app.consumer("Orders", "kitchen", middleware=[inner], publish_to="Bills")
    def cook(order: dict[str, str]) -> str:
        passed.append(order["dish"])
        return "a bill"

    async with app.test(nameserver=lab.address) as test:
        await test.publish("Orders", {"dish": "soup"})
        await test.handled(cook)
        assert (await test.published("Bills")).value == "a bill"
    assert passed == ["outer", "inner", "soup"]


async def test_handles_to_the_consumers(lab: Lab, seen: Seen) -> None:
    during: list[bool] = []

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        app.consumers["kitchen"].suspend()
        yield

    app = App(nameserver=lab.address, lifespan=lifespan)
    app.consumer("Orders", "kitchen", start_from="first")(seen.coroutine)
    await lab.send("Orders", b"salad")
    async with app:
        kitchen = app.consumers["kitchen"]
        assert kitchen.suspended
        assert sum(each.difference or 0 for each in await lag("kitchen", "Orders", nameserver=lab.address)) == 1
        kitchen.resume()
        await seen.reaches(1)
        during.append(kitchen.suspended)
        with pytest.raises(UsageError, match=r"no group kitchn: did you mean kitchen\?"):
            _ = app.consumers["kitchn"]
    assert during == [False]


def test_a_program_without_an_event_loop(address: str) -> None:
    app, done = App(nameserver=address), threading.Event()

    @app.consumer("Orders", "kitchen", start_from="first")
    def cook(message: ReceivedMessage) -> None:
        done.set()

    with sync.Producer("p", nameserver=address) as producer, app:
        producer.send(Message("Orders", b"salad"))
        assert done.wait(20)


# ------------------------------------------------------------------ in tests

tested = App()
drinks = tested.producer("drinks")


@tested.consumer("Orders", "kitchen", publish_to="Bills")
async def cook(order: dict[str, str]) -> str:
    await drinks.send(Message("Drinks", b"water"))
    return f"a bill for {order['dish']}"


@pytest.mark.usefixtures("no_nameserver")
@pytest.mark.parametrize("time", [1, 2])
async def test_an_application_is_tested_with_a_cluster_of_its_own(time: int) -> None:
    async with tested.test() as test:
        await test.publish("Orders", {"dish": "soup"})
        handled = await test.handled(cook)
        assert (handled.success, handled.value, handled.message.topic) == (True, {"dish": "soup"}, "Orders")
        assert (await test.published("Bills")).value == "a bill for soup"
        assert (await test.published("Drinks")).body == b"water"
        async with Producer("p", nameserver=test.nameserver) as producer:
            await producer.send(Message("Orders", b"no JSON"))
        assert (await test.handled(cook)).status == "RECONSUME_LATER"
        with pytest.raises(CallTimeout, match=r"cook was not called, or did not end, within 0.05 s"):
            await test.handled(cook, timeout=0.05)
        with pytest.raises(CallTimeout, match=r"Nothing came to Bills within 0.05 s"):
            await test.published("Bills", timeout=0.05)
        with pytest.raises(UsageError, match="print is no handler of the application"):
            await test.handled(print)
    with pytest.raises(StateError, match="The test does not run"):
        await test.publish("Orders", b"x")


@pytest.mark.usefixtures("no_nameserver")
async def test_a_test_has_offsets_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of broadcasting groups are files, which a test neither reads nor leaves in the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    app = App()

    @app.consumer("Prices", "caches", broadcast=True)
    async def keep(price: str) -> None:
        pass

    for _ in range(2):
        async with app.test() as test:
            await test.publish("Prices", "3.50")
            assert (await test.handled(keep)).success
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("no_nameserver")
def test_so_is_it_without_an_event_loop() -> None:
    with tested.test() as test:
        test.publish("Orders", {"dish": "soup"})
        assert test.handled(cook).success
        assert test.published("Bills").value == "a bill for soup"
        assert test.nameserver.startswith("127.0.0.1:")


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
    with pytest.raises(StateError, match="The producer was stopped"):
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


AWAY = """
import contextlib, sys
from eruca.client import App

@contextlib.asynccontextmanager
async def lifespan():
    print("open", flush=True)
    yield  # without `finally`: no error comes here
    print("closed", flush=True)

app = App(nameserver="127.0.0.1:1", lifespan=lifespan)
app.consumer("Orders", "kitchen")(print)
app.run(wait=60)
print("ended", flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_the_cluster(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", AWAY], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            process.send_signal(number)
            out, _ = process.communicate(timeout=30)
            assert (out, process.returncode) == ("closed\nended\n", 0)
        finally:
            process.kill()


def unstarted() -> App:
    return App(nameserver="127.0.0.1:1")


def twice(app: App) -> None:
    app.consumer("Orders", "kitchen")(print)
    app.consumer("Orders", "kitchen")(print)


def other_options(app: App) -> None:
    app.consumer("Orders", "kitchen", concurrency=4)(print)
    app.consumer("Bills", "kitchen", concurrency=5)(print)


async def coroutine(message: ReceivedMessage) -> None: ...


async def other(messages: list[ReceivedMessage]) -> None: ...


async def another(messages: list[ReceivedMessage]) -> None: ...


def two_kinds(app: App) -> None:
    app.consumer("Orders", "kitchen")(print)
    app.consumer("Bills", "kitchen")(coroutine)


def lists_of_two(app: App) -> None:
    app.consumer("Orders", "kitchen", consume_message_batch_max_size=5)(other)
    app.consumer("Bills", "kitchen")(another)


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
        (lambda app: app.run(), UsageError, "The application has no consumer and no producer"),
        (lambda app: app.consumer(print, "kitchen"), UsageError, "The decorator takes a topic and a group"),
        (lambda app: app.consumer("Orders", "kitchen")("no function"), UsageError, "The listener is of type str"),
        (lambda app: app.consumer("Or ders", "kitchen")(print), BadName, "contains illegal characters"),
        (twice, UsageError, "The group kitchen has a listener for Orders already"),
        (other_options, UsageError, "kitchen has other options already: give them to one"),
        (
            lambda app: app.consumer("A", "b", concurency=3),
            BadConfig,
            r"did you mean concurrency\?",
        ),
        (lambda app: app.producer("b", retry=3), BadConfig, r"retry is not known: did you mean retries\?"),
        (lambda app: App(middleware=[print]), UsageError, "A middleware that is a plain function is not allowed"),  # type: ignore[list-item]
        (two_kinds, UsageError, "Handlers of the group kitchen are coroutine functions and plain ones"),
        (lists_of_two, UsageError, "Lists of the group kitchen may have messages of several topics"),
        (lambda app: app.consumers["kitchen"], UsageError, "The application does not run"),
        (lambda app: App(nameserver="http://a/b"), BadConfig, "cannot be read"),
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
