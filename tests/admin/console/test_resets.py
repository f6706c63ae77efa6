"""A reset by the console: dry run, confirmation by name, progress by queue, and the way back."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from eruca.admin.commands import find
from eruca.admin.console.resets import Running
from eruca.admin.resets.choices import SWITCHES
from tests.admin.conftest import Lab
from tests.admin.console.conftest import Desk
from tests.admin.test_offsets import Member


@pytest.fixture
async def member(lab: Lab) -> AsyncIterator[Member]:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", "c", queue=1)
    member = Member(lab, "g", "T")
    async with member.consumer:
        await member.has(3)
        await lab.commit("g", "T", 0, 3)
        yield member


async def ended(desk: Desk, path: str) -> str:
    """The page of a reset that has come to its end."""
    running = desk.console.resets[path.rpartition("/")[2]]
    assert isinstance(running, Running) and running.task is not None
    await running.task
    return await desk.text(path)


async def test_the_form_names_the_topics_of_the_group(desk: Desk, member: Member) -> None:
    answer = await desk.browser.get("/groups/g/reset")
    assert '<option value="T">' in answer.text
    assert '"%RETRY%g"' not in answer.text
    assert 'value="T"' in answer.text
    assert "Dry run" in answer.text and "Reset the group" not in answer.text


async def test_the_form_has_the_switches_of_the_command(desk: Desk, member: Member) -> None:
    """Those that are on are part of what is confirmed."""
    command = find("resetOffset")
    assert command is not None
    switches = [each.name for each in command.options if each in SWITCHES]
    assert switches == ["partial", "now", "new-group", "force-active"]
    page = (await desk.browser.get("/groups/g/reset?topic=T&to=first&now=&force-active=on")).text
    for name in switches:
        assert f'<input type="checkbox" name="{name}" id="{name}"' in page
    assert "Go on without brokers that do not answer</label>" in page
    confirmed = page.partition('method="post"')[2]
    assert re.findall(r'type="hidden" name="([a-z-]+)" value="on"', confirmed) == ["now", "force-active"]


async def test_a_dry_run_moves_nothing(lab: Lab, desk: Desk, member: Member) -> None:
    text = await desk.text("/groups/g/reset?topic=T&to=first")
    assert "Nothing has moved. group g, topic T, to the first message, members: 1 online" in text
    assert "3 messages come again, 0 unconsumed ones are skipped" in text
    assert "All 3 0" in text
    assert member.bodies == ["a", "b", "c"]
    found = (await desk.json("/groups/g/reset?topic=T&to=first"))["plan"]
    assert isinstance(found, dict)
    assert [row["targetOffset"] for row in found["queues"]] == [0, 0]


async def test_a_reset_is_seen_to_be_done_and_taken_back(lab: Lab, desk: Desk, member: Member) -> None:
    begun = await desk.post("/groups/g/reset", topic="T", to="first", confirm="g")
    assert begun.status_code == 303
    text = await ended(desk, begun.headers["location"])
    assert "Done: 2 of 2 queues confirmed" in text
    assert "broker-a 1 3 0 confirmed" in text
    await member.has(6)
    assert member.bodies == ["a", "b", "c"] * 2

    unconfirmed = await desk.post(f"{begun.headers['location']}/back")
    assert unconfirmed.status_code == 400 and "type g to confirm" in unconfirmed.text
    back = await desk.post(f"{begun.headers['location']}/back", confirm="g")
    text = await ended(desk, back.headers["location"])
    assert "Done: 2 of 2 queues confirmed" in text
    assert re.search(r"broker-a 1 \d 3 confirmed", text)
    assert (await lab.committed("g", "T"))[1] == 3
    assert len(desk.said) == 2
    assert "offsets of group g in topic T: broker-a:0=0, broker-a:1=3 -> the first message" in desk.said[0]
    assert "2 of 2" in await desk.text("/resets")


async def test_a_reset_wants_the_name_of_the_group(lab: Lab, desk: Desk, member: Member) -> None:
    answer = await desk.post("/groups/g/reset", topic="T", to="first", confirm="G")
    assert answer.status_code == 400
    assert "nothing was changed: type g to confirm" in answer.text
    assert desk.console.resets == {}


async def two_topics(lab: Lab) -> None:
    """Group g has consumed all of T and U, and has two messages that wait for another try."""
    await lab.done("updateSubGroup", "-g", "g", "-c", "DefaultCluster")
    for topic in ("T", "U", "%RETRY%g"):
        await lab.topic(topic)
        await lab.send(topic, "a", "b")
        await lab.commit("g", topic, 2)


@pytest.mark.parametrize("fields", [{"topic": "T,U"}, {"all-topics": "on"}, {"topic": "U, T", "with-retries": "on"}])
async def test_several_topics_are_reset_and_taken_back(lab: Lab, desk: Desk, fields: dict[str, str]) -> None:
    await two_topics(lab)
    topics = ["T", "U", "%RETRY%g"] if "with-retries" in fields else ["T", "U"]
    asked = {"to": "first", "wait": "5", **fields}
    plan = (await desk.browser.get("/api/groups/g/reset", params=asked)).json()["plan"]
    assert (plan["again"], plan["retries"]) == (2 * len(topics), 0)
    begun = await desk.post("/groups/g/reset", confirm="g", **asked)
    assert f"Done: {len(topics)} of {len(topics)} queues confirmed" in await ended(desk, begun.headers["location"])
    assert [await lab.committed("g", topic) for topic in topics] == [{0: 0}] * len(topics)
    assert len(desk.said) == len(topics)

    back = await desk.post(f"{begun.headers['location']}/back", confirm="g")
    assert "Done: " in await ended(desk, back.headers["location"])
    assert [await lab.committed("g", topic) for topic in topics] == [{0: 2}] * len(topics)


async def test_nothing_moves_where_one_of_several_topics_cannot(lab: Lab, desk: Desk) -> None:
    await two_topics(lab)
    answer = await desk.post("/groups/g/reset", confirm="g", topic="T,none", to="first")
    assert answer.status_code == 404 and "none" in answer.text
    wrong = await desk.post("/groups/g/reset", confirm="g", topic="T", to="+1", **{"with-retries": "on"})
    assert "an offset names messages of one topic" in wrong.text
    assert await lab.committed("g", "T") == {0: 2}
    assert desk.said == []


async def test_a_queue_that_the_topic_has_not_is_refused(lab: Lab, desk: Desk, member: Member) -> None:
    fields = {"topic": "T", "to": "first", "queue": "broker-a:1,broker-z:9"}
    reason = "nothing was moved: T has no queue broker-z:9 that consumers read"
    assert reason in (await desk.browser.get("/groups/g/reset", params=fields)).text
    answer = await desk.post("/groups/g/reset", confirm="g", **fields)
    assert answer.status_code == 404 and reason in answer.text


async def test_only_the_queues_that_are_named_move(lab: Lab, desk: Desk) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", queue=0)
    await lab.send("T", "c", "d", queue=1)
    await lab.commit("g", "T", 2, 2)
    begun = await desk.post(
        "/groups/g/reset", topic="T", to="1", queue="broker-a:1", **{"new-group": "on"}, confirm="g"
    )
    await ended(desk, begun.headers["location"])
    assert await lab.committed("g", "T") == {0: 2, 1: 1}


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("99", "has the offsets 0 to 0, not 99"),
        ("2026-02-30 12:00", "30"),
        ("group:nobody", "nobody"),
        ("-1", "0 unconsumed"),
    ],
)
async def test_what_cannot_be_is_said_in_place_of_the_table(desk: Desk, member: Member, to: str, reason: str) -> None:
    answer = await desk.browser.get("/groups/g/reset", params={"topic": "T", "to": to})
    assert answer.status_code == 200
    assert reason in answer.text


async def test_a_console_that_reads_shows_the_dry_run_only(lab: Lab, reader: Desk, member: Member) -> None:
    page = (await reader.browser.get("/groups/g/reset?topic=T&to=first")).text
    assert "start it with <code>--write</code>" in page
    assert 'method="post"' not in page
    assert (await reader.post("/groups/g/reset", topic="T", to="first", confirm="g")).status_code == 403
    assert member.bodies == ["a", "b", "c"]
