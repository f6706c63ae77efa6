"""Where a group begins that has no offset yet: "end" skips what is there, also where a broker says 0."""

from __future__ import annotations

from eruca.client import MessageQueue, PushConsumer
from tests.client.conftest import Lab, Seen


async def test_the_end_skips_what_is_there(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *[b"old"] * 8)
    async with PushConsumer("last", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await seen.reaches(8)  # to a broker the topic is young
    async with PushConsumer("end", seen.coroutine, nameserver=lab.address, start_from="end").subscribe("T"):
        assert await lab.offsets("end", "T") == [2, 2, 2, 2]  # stored at once, so that nothing is skipped twice
        await lab.send("T", b"new")
        await seen.reaches(9)
    assert seen.bodies == [b"old"] * 8 + [b"new"]


async def test_a_stored_offset_counts_even_if_it_is_0(lab: Lab, seen: Seen) -> None:
    await lab.send("T", *[b"old"] * 8)
    await lab.puller.update_offset(MessageQueue("T", "broker-a", 1), 0, group="end")
    async with PushConsumer("end", seen.coroutine, nameserver=lab.address, start_from="end").subscribe("T"):
        await seen.reaches(2)
        await lab.stores("end", "T", [2, 2, 2, 2])
    assert {message.queue.queue_id for message in seen.messages} == {1}
