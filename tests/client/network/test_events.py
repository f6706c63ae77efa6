"""Events of clients: a broker goes and comes back, and background work fails."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from eruca.client import (
    App,
    BackgroundError,
    ClientSettings,
    Disconnected,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PullScheduleService,
    PushConsumer,
    Reconnected,
    TransactionProducer,
    TransactionState,
    Waits,
    sync,
)
from eruca.client.errors import UsageError
from tests.client.conftest import HASTY, Lab, Seen, eventually
from tests.support.scripted import Scripted


class Told:
    """What happened, in its order; the functions of a client."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._news = asyncio.Condition()

    async def tell(self, event: Any) -> None:
        async with self._news:
            self.events.append(event)
            self._news.notify_all()

    async def next(self, kind: type) -> Any:
        """The first event of a kind, which is taken out."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: any(isinstance(event, kind) for event in self.events))
        event = next(event for event in self.events if isinstance(event, kind))
        self.events.remove(event)
        return event

    @property
    def both(self) -> dict[str, Any]:
        return {"on_disconnected": self.tell, "on_reconnected": self.tell}


async def ignore(*_: object) -> None:
    """A listener."""


def client_of(kind: str, address: str, told: Told) -> Any:
    more: dict[str, Any] = {"nameserver": address, "settings": HASTY, **told.both}
    if kind == "producer":
        return Producer("p", **more)
    if kind == "transaction producer":
        return TransactionProducer("t", lambda message: TransactionState.COMMIT, **more)
    if kind == "push":
        return PushConsumer("g", ignore, **more).subscribe("T")
    if kind == "lite pull":
        return LitePullConsumer("l", **more).subscribe("T")
    if kind == "pull":
        return PullConsumer("u", **more)
    return PullScheduleService("s", **more).register_pull_task_callback("T", ignore)


@pytest.mark.parametrize("kind", ["producer", "transaction producer", "push", "lite pull", "pull", "schedule"])
async def test_each_kind_of_client_tells_that_a_broker_goes_and_is_back(lab: Lab, kind: str) -> None:
    await lab.send("T", b"x")
    told = Told()
    async with client_of(kind, lab.address, told) as client:
        await client.ping()  # it is connected
        async with lab.broker_away():
            if kind == "pull":  # no member of a group: it meets brokers by its calls only
                with pytest.raises(Exception, match="Connection refused"):
                    await client.ping()
            gone = await told.next(Disconnected)
            assert (gone.broker, gone.broker_id, gone.reason) == ("broker-a", 0, "Connection refused")
            if kind in ("push", "lite pull", "schedule"):
                assert {queue.broker_name for queue in gone.queues[client.group]} == {"broker-a"}
        if kind == "pull":
            await client.ping()
        back = await told.next(Reconnected)
        assert (back.broker, back.address, back.since) == ("broker-a", gone.address, gone.since)
        assert back.seconds > 0 and not told.events
        assert client.healthy


async def test_an_application_is_told_once(lab: Lab) -> None:
    await lab.send("T", b"x")
    told = Told()
    app = App(nameserver=lab.address, settings=HASTY, **told.both)
    for group in ("one", "two"):
        app.consumer("T", group)(ignore)
    app.producer("three")
    async with app:
        async with lab.broker_away():
            gone = await told.next(Disconnected)
            assert {"one", "two"} == set(gone.queues)
        await told.next(Reconnected)
        assert not told.events


async def test_a_heartbeat_that_is_refused_is_an_error(server: Scripted) -> None:
    told = Told()
    server.refuses_heartbeats = True
    consumer = PushConsumer("g", ignore, nameserver=server.address, on_error=told.tell).subscribe("T")
    async with consumer:
        error = await told.next(BackgroundError)
        assert error.reason.startswith("the heartbeat was refused by ") and error.broker == "broker-a"
        assert error.error is not None and error.group is None


async def test_offsets_that_cannot_be_stored_are_one_error_of_their_group(
    lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    await lab.send("T", b"x")
    told, other = Told(), Told()
    consumer = PushConsumer(
        "g", seen.coroutine, start_from="first", nameserver=lab.address, settings=HASTY, on_error=told.tell
    ).subscribe("T")
    async with PushConsumer("h", ignore, nameserver=lab.address, settings=HASTY, on_error=other.tell).subscribe("T"):
        await consumer.start()
        await seen.reaches(1)
        await lab.cluster.broker.stop()
        await consumer.stop()
        errors = [line for line in caplog.messages if "could not be stored" in line]
        assert len(errors) == 1 and errors[0].startswith("the offsets of g could not be stored, of ")
        assert all(event.group != "g" for event in other.events)


async def test_functions_that_fail_or_hang_do_no_harm(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    await lab.send("T", b"x")
    settings = ClientSettings(waits=Waits(rebalance=0.02, event_listener=0.05))
    threads: list[str] = []

    async def hang(event: Disconnected) -> None:
        await asyncio.Event().wait()

    def fail(event: Reconnected) -> None:
        threads.append(threading.current_thread().name)
        raise ValueError("a mistake")

    producer = Producer("p", nameserver=lab.address, settings=settings, on_disconnected=hang, on_reconnected=fail)
    async with producer:
        await producer.send(Message("T", b"x"))
        async with lab.broker_away():
            await eventually(lambda: "hang did not end within 0.05 s for Disconnected(broker='broker-a'" in caplog.text)
        await eventually(lambda: "fail failed for Reconnected(broker='broker-a'" in caplog.text)
        assert threads[0] != threading.current_thread().name
        await producer.send(Message("T", b"x"))


async def test_a_client_may_be_stopped_by_its_own_function(lab: Lab) -> None:
    stopped = asyncio.Event()

    async def stop(event: Disconnected) -> None:
        await producer.stop()
        stopped.set()

    producer = Producer("p", nameserver=lab.address, on_disconnected=stop)
    await producer.start()
    await producer.send(Message("T", b"x"))
    async with lab.broker_away(), asyncio.timeout(10):
        await stopped.wait()
    assert not producer.healthy


def test_functions_are_checked() -> None:
    with pytest.raises(UsageError, match=r"on_disconnected is called with 1 argument, \(event\)"):
        Producer("p", on_disconnected=lambda: None)  # type: ignore[misc, arg-type]
    with pytest.raises(UsageError, match="on_error is of type list"):
        sync.PushConsumer("g", on_error=[])  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="on_reconnected is of type int"):
        App(on_reconnected=5)  # type: ignore[arg-type]
