"""Settling a message by the block that handles it."""

from __future__ import annotations

import pytest

from eruca.client import Later, Message, PushConsumer
from eruca.client.consuming.consume_request import ConsumeRequest
from eruca.client.consuming.message_stream import Delivery, hand_out
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.errors import StateError
from tests.client.conftest import Lab
from tests.support.received import received


def delivery() -> tuple[Delivery, list[object]]:
    """A message, and the outcomes it was settled with."""
    salad = received(b"salad")
    message = Delivery(salad.record, salad.queue)
    outcomes: list[object] = []

    def finished(work: ConsumeRequest) -> None:
        outcomes.append(work.outcome)

    hand_out(message, ConsumeRequest(ProcessQueue(message.queue, 7)), finished)
    return message, outcomes


def test_a_block_that_ends_well_consumes() -> None:
    message, outcomes = delivery()
    with message as inside:
        assert inside is message and not message.settled
    assert message.settled and outcomes == [None]


def test_a_block_that_fails_lets_it_come_again() -> None:
    message, outcomes = delivery()
    with pytest.raises(RuntimeError, match="no salad"), message:
        raise RuntimeError("no salad")
    assert outcomes == [Later()]


def test_what_was_settled_inside_stays_so() -> None:
    message, outcomes = delivery()
    with message:
        message.later(3)
    assert outcomes == [Later(delay_level=3)]


@pytest.mark.parametrize(
    ("first", "ignored", "refused"),
    [
        ("ack", ["ack"], ["later", "reject"]),
        ("later", ["later", "ack"], ["reject"]),
        ("reject", ["reject", "ack"], ["later"]),
    ],
)
def test_what_comes_too_late_is_told(first: str, ignored: list[str], refused: list[str]) -> None:
    message, outcomes = delivery()
    for name in (first, *ignored):
        getattr(message, name)()
    for name in refused:
        with pytest.raises(StateError, match=r"call one of ack\(\), later\(\) and reject\(\) in time"):
            getattr(message, name)()
    assert len(outcomes) == 1


async def test_it_counts_at_the_broker(lab: Lab) -> None:
    result = await lab.producer.send(Message("T", b"salad"))
    async with PushConsumer("g", nameserver=lab.address, start_from="first").subscribe("T") as consumer:
        async for message in consumer.messages(auto_ack=False):
            with message:
                assert message.body == b"salad"
            break
    assert (await lab.offsets("g", "T"))[result.queue.queue_id] == 1
