"""What nobody stops, or asks for, is told: clients by a ResourceWarning, failed sends by the log."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import pytest

from eruca.client import RPC, Hook, LitePullConsumer, Message, Producer, PullConsumer, PushConsumer, sync
from eruca.client.errors import BrokerRefused, StateError
from eruca.client.log import REPEAT_AFTER, Rarely
from tests.support.scripted import SILENT, Scripted


async def test_a_producer_that_nobody_stops_is_told_with_its_sends(server: Scripted) -> None:
    server.knows("T", server)
    server.answers.extend([SILENT] * 3)
    producer = Producer("g", nameserver=server.address)
    await producer.start()
    session, sends = producer.session, [producer.start_send(Message("T", b"x"), timeout=0.5) for _ in range(3)]
    with pytest.warns(ResourceWarning, match=r"^Producer g was not stopped, with 3 sends under way: use `async with`"):
        del producer
        gc.collect()
    await asyncio.wait(sends)
    assert all(send.exception() for send in sends)
    await session.remove_producer("g")
    await session.leave()


async def test_one_that_was_stopped_or_never_started_is_not_told(server: Scripted) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with Producer("g", nameserver=server.address):
            pass
        Producer("g", nameserver=server.address)
        with pytest.raises(ValueError, match="retries"):
            Producer("g", nameserver=server.address, retries=-1)
        gc.collect()
    assert not [each for each in told if each.category is ResourceWarning and "was not stopped" in str(each.message)]


def started_elsewhere(address: str) -> list[tuple[str, Any]]:
    """A client of each kind, started in an event loop that is over."""
    clients: list[tuple[str, Any]] = [
        ("producer", Producer("p", nameserver=address)),
        ("push", PushConsumer("g", print, nameserver=address).subscribe("T")),
        ("lite", LitePullConsumer("l", nameserver=address).subscribe("T")),
        ("pull", PullConsumer("u", nameserver=address)),
        ("rpc", RPC("R", "r", nameserver=address)),
    ]

    async def start() -> None:
        for _, client in clients:
            await client.start()

    asyncio.run(start())
    return clients


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_client_cannot_be_stopped_in_another_event_loop(address: str) -> None:
    for name, client in started_elsewhere(address):
        with pytest.raises(StateError, match="belongs to the event loop in which it was started"):
            asyncio.run(client.stop())
            pytest.fail(name)
    with sync.Producer("p", nameserver=address):  # a start tells of consumers that were left behind
        del client
    gc.collect()


PROGRAMS = {
    "asyncio": """
        import asyncio
        from eruca.client import Message, Producer, PushConsumer

        async def main():
            producer = Producer("left", nameserver="{address}")
            await producer.start()
            await PushConsumer("kitchen", print, nameserver="{address}").subscribe("T").start()
            for _ in range(50):
                producer.start_send(Message("T", b"x"))

        asyncio.run(main())
    """,
    "sync": """
        from eruca.client import Message, sync

        producer = sync.Producer("left", nameserver="{address}")
        producer.start()
        sync.PushConsumer("kitchen", print, nameserver="{address}").subscribe("T").start()
    """,
}


@pytest.mark.processes
@pytest.mark.parametrize("kind", PROGRAMS)
async def test_the_end_of_a_program_tells_what_was_left(kind: str, server: Scripted) -> None:
    server.knows("T", server)
    code = textwrap.dedent(PROGRAMS[kind]).format(address=server.address)
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-X", "dev", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "ResourceWarning: Producer left was not stopped, with" in ended.stderr
    assert "ResourceWarning: The consumer kitchen was not stopped" in ended.stderr
    if kind == "asyncio":
        assert "with 50 sends under way" in ended.stderr


async def test_a_failed_send_of_a_blocking_producer_is_logged_unless_somebody_asks(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    server.knows("T", server)
    server.answers.extend([13] * 4)

    def told() -> list[str]:
        """What the log says of sends; clients of other tests in this process may say more."""
        messages = [record.getMessage() for record in caplog.records if record.name == "eruca.client"]
        return [message for message in messages if "nobody asked" in message]

    def run() -> None:
        with sync.Producer("g", nameserver=server.address) as producer:
            asked = [producer.start_send(Message("T", b"x")) for _ in range(2)]
            with pytest.raises(BrokerRefused):
                asked[0].result()
            assert isinstance(asked[1].exception(), BrokerRefused)
            asked.clear()
            gc.collect()
            assert not told()
            dropped = [producer.start_send(Message("T", b"x")) for _ in range(2)]
            producer.flush()
            while not all(each.done() for each in dropped):
                pass
            dropped.clear()
            gc.collect()
            cancelled = producer.start_send(Message("T", b"x"))
            cancelled.cancel()
            assert producer.start_send(Message("T", b"x")).result().message_id

    with caplog.at_level(logging.DEBUG, "eruca.client"):  # where those of the same minute are
        await asyncio.to_thread(run)
    assert [text.partition(": CODE")[0] for text in told()] == [
        "A send of Producer g failed, and nobody asked its future: BrokerRefused"
    ] * 2


@pytest.mark.parametrize("hooks", [[], [Hook()]], ids=["plain", "observed"])
async def test_a_failed_send_whose_future_is_dropped_is_one_line(
    server: Scripted, caplog: pytest.LogCaptureFixture, hooks: list[Hook]
) -> None:
    server.knows("T", server)
    server.answers.extend([13] * 4)
    caplog.set_level(logging.DEBUG, "eruca.client")  # where those of the same minute are
    async with Producer("g", nameserver=server.address, hooks=hooks) as producer:
        asked = producer.start_send(Message("T", b"x"))
        with pytest.raises(BrokerRefused):
            await asked
        sends = [producer.start_send(Message("T", b"x")) for _ in range(2)]
        producer.start_send(Message("T", b"x"))
        await producer.flush()
        del asked, sends
        gc.collect()
    lines = [record.getMessage() for record in caplog.records if "nobody asked" in record.getMessage()]
    assert [line.partition(": CODE")[0] for line in lines] == [
        "A send failed, and nobody asked its future: BrokerRefused"
    ] * 3
    assert not [record for record in caplog.records if record.name == "asyncio" and record.levelno > logging.DEBUG]


async def test_the_handler_of_the_program_gets_what_nobody_asks_for(server: Scripted) -> None:
    server.knows("T", server)
    server.answers.append(13)
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(context))
    async with Producer("g", nameserver=server.address) as producer:
        producer.start_send(Message("T", b"x"))
        await producer.flush()
    gc.collect()
    assert [type(context["exception"]) for context in found] == [BrokerRefused]


def test_of_many_warnings_one_a_minute_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    now = 7.0
    rarely = Rarely(lambda: now)
    with caplog.at_level(logging.WARNING, "eruca.client"):
        for number in range(5):
            rarely.warn(f"failure {number}")
        now += REPEAT_AFTER
        rarely.warn("another one")
    assert caplog.messages == ["failure 0", "another one (4 more since the last such warning)"]
