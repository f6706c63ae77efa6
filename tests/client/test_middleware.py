"""Middleware: it stands around any kind of listener, in its order, and may change what becomes of a message."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from typing import Any

import pytest

from eruca.client import App, Backoff, Hook, Later, PushConsumer, ReceivedMessage, Reject, Suspend
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import UsageError
from eruca.client.hooks import ConsumeContext
from eruca.client.middleware import CallNext
from tests.client.conftest import Lab

SESSION: contextvars.ContextVar[str] = contextvars.ContextVar("session", default="none")


class Told:
    """What happened, in its order, and when enough of it has."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def add(self, event: str) -> None:
        self.events.append(event)
        self._loop.call_soon_threadsafe(self._news.set)

    async def reach(self, event: str, times: int = 1) -> None:
        async with asyncio.timeout(10):
            while self.events.count(event) < times:
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def told() -> Told:
    return Told()


def named(name: str, told: Told) -> Callable[[Any, CallNext], Any]:
    async def middleware(message: Any, call_next: CallNext) -> Any:
        told.add(f"{name} before")
        outcome = await call_next(message)
        told.add(f"{name} after")
        return outcome

    return middleware


def listener_of(kind: str, body: Callable[[Any], Any]) -> Any:
    """The same listener as a coroutine function, a plain function, or a plain function that returns a coroutine."""

    async def coroutine(message: Any) -> Any:
        return body(message)

    return {"coroutine": coroutine, "function": body, "mixed": lambda message: coroutine(message)}[kind]


KINDS = ("coroutine", "function", "mixed")


@asynccontextmanager
async def consuming(lab: Lab, listener: Any, *middleware: Any, **options: Any) -> Any:
    consumer = PushConsumer("g", listener, nameserver=lab.address, start_from="first", middleware=middleware, **options)
    async with consumer.subscribe("T"):
        yield consumer


@pytest.mark.parametrize("kind", KINDS)
async def test_the_first_is_the_outermost(lab: Lab, told: Told, kind: str) -> None:
    await lab.send("T", b"x")
    listener = listener_of(kind, lambda message: told.add("listener"))
    async with consuming(lab, listener, named("a", told), named("b", told)):
        await told.reach("a after")
    assert told.events == ["a before", "b before", "listener", "b after", "a after"]


@pytest.mark.parametrize("kind", KINDS)
async def test_it_catches_what_the_listener_raises(lab: Lab, told: Told, kind: str) -> None:
    def fail(message: ReceivedMessage) -> None:
        raise LookupError(message.body.decode())

    async def forgive(message: ReceivedMessage, call_next: CallNext) -> None:
        try:
            await call_next(message)
        except LookupError as error:
            told.add(f"forgave {error}")

    await lab.send("T", b"first", b"second")
    async with consuming(lab, listener_of(kind, fail), forgive) as consumer:
        await told.reach("forgave second")
        assert engine_of(consumer).stats.failed == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_it_retries_at_once(lab: Lab, told: Told, kind: str) -> None:
    def third_time(message: ReceivedMessage) -> None:
        told.add("tried")
        if told.events.count("tried") < 3:
            raise ConnectionError("not yet")

    async def retry(message: ReceivedMessage, call_next: CallNext) -> Any:
        while True:
            try:
                outcome = await call_next(message)
            except ConnectionError:
                continue
            told.add("done")
            return outcome

    await lab.send("T", b"x")
    async with consuming(lab, listener_of(kind, third_time), retry):
        await told.reach("done")
    assert told.events == ["tried", "tried", "tried", "done"]


@pytest.mark.parametrize("kind", KINDS)
async def test_it_changes_the_outcome_and_hooks_see_the_changed_one(lab: Lab, told: Told, kind: str) -> None:
    class Look(Hook):
        def after_consume(self, context: ConsumeContext) -> None:
            told.add(context.status)

    async def later(message: ReceivedMessage, call_next: CallNext) -> Later:
        assert await call_next(message) is None
        return Later(delay_level=18)

    await lab.send("T", b"x")
    async with consuming(lab, listener_of(kind, lambda message: None), later, hooks=[Look()]):
        await told.reach("RECONSUME_LATER")


async def test_what_it_gives_to_the_next_is_what_the_listener_gets(lab: Lab, told: Told) -> None:
    async def decode(message: ReceivedMessage, call_next: CallNext) -> Any:
        return await call_next(message.body.decode().upper())

    await lab.send("T", b"x")
    async with consuming(lab, listener_of("function", told.add), decode):
        await told.reach("X")


async def test_it_may_leave_the_listener_out(lab: Lab, told: Told) -> None:
    async def skip(message: ReceivedMessage, call_next: CallNext) -> None:
        if message.body == b"known":
            told.add("skipped")
        else:
            await call_next(message)

    await lab.send("T", b"known", b"new")
    async with consuming(lab, listener_of("coroutine", lambda message: told.add(message.body.decode())), skip):
        await told.reach("skipped")
        await told.reach("new")
    assert "known" not in told.events


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_its_context_reaches_the_listener(lab: Lab, told: Told, kind: str) -> None:
    async def session(message: ReceivedMessage, call_next: CallNext) -> Any:
        SESSION.set(message.body.decode())
        return await call_next(message)

    await lab.send("T", b"of x")
    async with consuming(lab, listener_of(kind, lambda message: told.add(SESSION.get())), session):
        await told.reach("of x")


async def test_a_plain_listener_stays_in_threads_as_many_as_allowed_while_middleware_is_in_the_loop(
    lab: Lab, told: Told
) -> None:
    both = threading.Barrier(2)

    def together(message: ReceivedMessage) -> None:
        both.wait(10)  # only two at once let each other go
        told.add("listener in the loop" if threading.current_thread() is here else "listener in a thread")

    async def look(message: ReceivedMessage, call_next: CallNext) -> Any:
        told.add("middleware in the loop" if threading.current_thread() is here else "middleware in a thread")
        return await call_next(message)

    here = threading.current_thread()
    await lab.send("T", b"1", b"2")
    async with consuming(lab, together, look, concurrency=2):
        await told.reach("listener in a thread", 2)
    assert told.events.count("middleware in the loop") == 2


async def test_orderly_batches_are_suspended_by_it(lab: Lab, told: Told) -> None:
    async def once_more(messages: list[ReceivedMessage], call_next: CallNext) -> Any:
        outcome = await call_next(messages)
        again = messages[0].reconsume_times == 0
        return Suspend(0.01) if again else outcome

    def note(messages: list[ReceivedMessage]) -> None:
        told.add(f"{messages[0].body.decode()} {messages[0].reconsume_times}")

    await lab.send("T", b"x")
    options: dict[str, Any] = {"orderly": True, "consume_message_batch_max_size": 8}
    async with consuming(lab, listener_of("function", note), once_more, **options):
        await told.reach("x 1")
    assert told.events == ["x 0", "x 1"]


def shout(message: ReceivedMessage) -> None:
    """Runs in another process."""
    raise ValueError(message.body.decode().upper())


@pytest.mark.slow
async def test_around_a_listener_in_a_process(lab: Lab, told: Told) -> None:
    async def hear(message: ReceivedMessage, call_next: CallNext) -> None:
        try:
            await call_next(message)
        except ValueError as error:
            told.add(str(error))

    await lab.send("T", b"x")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        async with consuming(lab, shout, hear, executor=processes):
            await told.reach("X")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_wrong_outcome_is_told_where_it_is_made(lab: Lab, told: Told, kind: str) -> None:
    async def hear(message: ReceivedMessage, call_next: CallNext) -> None:
        try:
            await call_next(message)
        except UsageError as error:
            told.add(str(error).split(",")[-1])

    await lab.send("T", b"x")
    async with consuming(lab, listener_of(kind, lambda message: True), hear):
        await told.reach(" not bool.")


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt])
async def test_what_would_end_the_loop_fails_the_call_of_a_thread_only(
    lab: Lab, told: Told, error: type[BaseException]
) -> None:
    def leave(message: ReceivedMessage) -> None:
        raise error("out")

    async def hear(message: ReceivedMessage, call_next: CallNext) -> None:
        try:
            await call_next(message)
        except RuntimeError as caught:
            told.add(str(caught))

    await lab.send("T", b"x")
    async with consuming(lab, leave, hear):
        await told.reach(f"The listener raised {error.__name__}: out")


async def test_a_time_limit_waits_for_the_thread_and_fails_the_message(lab: Lab, told: Told) -> None:
    go, loop = threading.Event(), asyncio.get_running_loop()
    limits: list[asyncio.Timeout] = []

    def slow(message: ReceivedMessage) -> None:
        told.add("began")
        loop.call_soon_threadsafe(lambda: limits[-1].reschedule(loop.time()))
        go.wait(10)
        told.add("ended")

    async def limited(message: ReceivedMessage, call_next: CallNext) -> Any:
        try:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                return await call_next(message)
        except TimeoutError:
            told.add("too slow")
            go.set()
            raise

    await lab.send("T", b"x")
    async with consuming(lab, slow, limited) as consumer:
        await told.reach("ended")
        async with asyncio.timeout(10):
            while not engine_of(consumer).stats.failed:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
    assert told.events == ["began", "too slow", "ended"]


async def test_stopping_in_a_listener_behind_middleware_returns(lab: Lab, told: Told) -> None:
    async def pass_on(message: ReceivedMessage, call_next: CallNext) -> Any:
        return await call_next(message)

    loop = asyncio.get_running_loop()
    holder: list[PushConsumer] = []

    def stop(message: ReceivedMessage) -> None:
        asyncio.run_coroutine_threadsafe(holder[0].stop(), loop).result(10)
        told.add("stopped")

    async with consuming(lab, stop, pass_on) as consumer:
        holder.append(consumer)
        await lab.send("T", b"x")
        await told.reach("stopped")


def test_what_is_none_is_refused() -> None:
    def plain(message: Any, call_next: CallNext) -> None: ...

    async def fine(message: Any, call_next: CallNext) -> None: ...

    def make(middleware: Any, listener: Any = print) -> None:
        PushConsumer("g", listener, nameserver="mq:1", middleware=middleware)

    with pytest.raises(UsageError, match=r"a plain function is not allowed: write `async def middleware\(message"):
        make([plain])
    with pytest.raises(UsageError, match="is a int is not allowed"):
        make([3])
    with pytest.raises(UsageError, match="a list of coroutine functions is expected"):
        make(None)
    with pytest.raises(UsageError, match="`async for` has none"):
        make([fine], None)
    with ThreadPoolExecutor() as threads:
        PushConsumer("g", print, nameserver="mq:1", middleware=[fine], executor=threads)


async def forgets(message: Any, call_next: CallNext) -> Any:
    await call_next(message)


async def tries_twice(message: Any, call_next: CallNext) -> Any:
    return await call_next(message) and await call_next(message)


async def fails_then(message: Any, call_next: CallNext) -> Any:
    await call_next(message)
    raise OSError("the middleware failed")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outcome", "orderly"), [(Later(), False), (Reject("x"), False), (Suspend(0.01), True)])
async def test_one_that_loses_an_outcome_is_told_of_once(
    lab: Lab, told: Told, kind: str, outcome: Any, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def body(message: ReceivedMessage) -> Any:
        told.add("listener")
        return outcome

    await lab.send("T", b"1", b"2", b"3")
    async with consuming(lab, listener_of(kind, body), named("a", told), forgets, named("b", told), orderly=orderly):
        await told.reach("a after", 3)
    [line] = [each for each in caplog.messages if "where call_next returned" in each]
    assert line == (
        f"the middleware forgets of g returned None where call_next returned {outcome!r}: what the listener did not "
        "consume counts as consumed; write `return await call_next(message)`"
    )
    assert told.events.count("listener") == 3


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_calls_twice_or_fails_loses_nothing(
    lab: Lab, told: Told, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each message has a first call that gives it back, and what comes after counts."""
    tried: set[bytes] = set()

    def body(message: ReceivedMessage) -> Later | None:
        again = message.body in tried
        tried.add(message.body)
        told.add("consumed" if again else "left")
        return None if again else Later(seconds=0.01)

    await lab.send("T", b"1", b"2")
    async with consuming(lab, listener_of(kind, body), tries_twice, concurrency=1):
        await told.reach("consumed", 2)
    await lab.send("T", b"3", b"4")
    async with consuming(lab, listener_of(kind, body), fails_then, concurrency=1, retry=Backoff(first=0.01)):
        await told.reach("consumed", 4)
    assert "where call_next returned" not in caplog.text


async def test_one_with_other_parameters_is_refused_when_the_consumer_is_made() -> None:
    async def alone(message: Any) -> Any: ...

    class Audit:
        async def __call__(self, message: Any, call_next: CallNext, more: int) -> Any: ...

    wrong: list[tuple[Any, str]] = [(alone, ".*alone"), (Audit(), ".*Audit")]
    for each, name in wrong:
        sentence = (
            rf"^The middleware {name} is called with 2 arguments, \(message, call_next\), which it does not take\.$"
        )
        with pytest.raises(UsageError, match=sentence):
            PushConsumer("g", print, middleware=[each])
        with pytest.raises(UsageError, match=sentence):
            App(middleware=[each])
