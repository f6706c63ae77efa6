"""Messages in the console: found, shown as text only, sent again, given to a member; dead letters sent back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from eruca.admin.client import Admin
from eruca.admin.console.dead_letters import Task
from eruca.admin.messages import send
from eruca.client import PushConsumer, ReceivedMessage, Reject
from eruca.protocol.queues import MessageQueue
from tests.admin.conftest import Lab
from tests.admin.console.conftest import Desk

SCRIPT = "<script>alert(1)</script>"
PLACE = "/messages/T/at/broker-a/0/0"


@pytest.mark.parametrize(
    "question",
    [
        {"topic": "T"},
        {"topic": "T", "msgKey": "k1"},
        {"topic": "T", "brokerName": "broker-a", "queueId": "0"},
        {"topic": "T", "brokerName": "broker-a", "queueId": "0", "offset": "0"},
        {"topic": "T", "beginTimestamp": "yesterday 12:00"},
    ],
)
async def test_a_message_is_found(lab: Lab, desk: Desk, question: dict[str, str]) -> None:
    await lab.topic("T")
    await lab.send("T", "hello", keys="k1 k2", tags="tag")
    answer = await desk.browser.get("/messages", params=question)
    assert PLACE in answer.text
    assert "hello" in answer.text


@pytest.mark.parametrize(("queue", "offset"), [("9" * 20, "0"), ("0", "9" * 5000), ("0", "-1"), ("\u0663", "0")])
async def test_a_place_that_is_none_is_not_found(lab: Lab, desk: Desk, queue: str, offset: str) -> None:
    await lab.topic("T")
    assert "there is no message at" in await desk.text(f"/messages/T/at/broker-a/{queue}/{offset}", 404)
    await lab.topic("%DLQ%g")
    await lab.send("%DLQ%g", "a letter")
    answer = await desk.post("/dead-letters/g/back", places=f"broker-a:{queue}:{offset}")
    assert answer.status_code == 404 and "there is no message at" in answer.text


async def test_a_message_is_found_by_either_id(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    [identity] = await lab.send("T", "hello")
    assert "hello" in await desk.text(f"/messages?topic=T&msgId={identity}")
    found = (await desk.json(PLACE))["message"]
    assert isinstance(found, dict) and found["id"] == identity
    assert "hello" in await desk.text(f"/messages?msgId={found['offsetId']}")
    assert "a producer's id needs a topic" in await desk.text(f"/messages?msgId={identity}", 404)
    assert "no message of topic T has the id none" in await desk.text("/messages?topic=T&msgId=none", 404)
    assert "has no message of T at offset 7: its offsets are 0 to 0" in await desk.text(
        "/messages/T/at/broker-a/0/7", 404
    )


async def test_a_body_is_shown_as_text_json_and_hex_and_kept_as_a_file(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    await lab.send("T", '{"a":["ü"]}', SCRIPT, keys=SCRIPT)
    page = (await desk.browser.get(PLACE)).text
    assert "<pre>{&#34;a&#34;:[&#34;ü&#34;]}</pre>" in page
    assert "As JSON</summary><pre>{\n  &#34;a&#34;: [\n    &#34;ü&#34;\n  ]\n}" in page
    assert "000000  7b 22 61 22 3a 5b 22 c3  bc 22 5d 7d" in page

    for path in ("/messages/T/at/broker-a/0/1", "/messages?topic=T", f"/messages?topic=T&msgKey={SCRIPT}"):
        assert SCRIPT not in (await desk.browser.get(path)).text
    file = await desk.browser.get("/messages/T/at/broker-a/0/1/body")
    assert file.content == SCRIPT.encode()
    assert file.headers["content-type"] == "application/octet-stream"
    assert file.headers["content-disposition"].startswith("attachment")


async def test_a_list_cuts_a_body_between_letters_and_says_what_is_no_text(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    async with Admin([lab.nameserver]) as admin:
        for body in (b"x" + "ü".encode() * 4 + b"\xff", b"a" + "ü".encode() * 40_000):
            await send(admin, MessageQueue("T", "broker-a", 0), lab.broker, body, {})
    text = await desk.text("/messages?topic=T")
    assert "a" + "ü" * 99 in text
    assert "base64 eMO8w7zDvMO8/w==" in text
    text = await desk.text("/messages/T/at/broker-a/0/1")
    assert "It is no text." not in text
    assert "The first 64 KiB; all of it is in the download." in text


async def test_numbers_of_a_body_stand_as_they_were_sent(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    await lab.send("T", '{"price":1.10,"big":1e400,"a":1,"a":2}', "[" * 20_000)
    page = (await desk.browser.get(PLACE)).text
    assert "<pre>{&#34;price&#34;:1.10,&#34;big&#34;:1e400" in page
    assert "  &#34;price&#34;: 1.10,\n  &#34;big&#34;: 1e400,\n  &#34;a&#34;: 1,\n  &#34;a&#34;: 2\n}" in page
    assert (await desk.browser.get("/messages/T/at/broker-a/0/1")).status_code == 200


async def test_a_message_of_any_letters_reaches_the_broker_which_judges_its_size(lab: Lab, desk: Desk) -> None:
    """In a form each byte of such a letter is written as three. The files of this broker are smaller than 4 MiB."""
    await lab.topic("T")
    sent = await desk.post("/topics/T/send", body="ü" * ((4 << 20) // 2 - 100))
    assert "the message is illegal" in sent.text
    assert (await desk.post("/topics/T/send", body="x" * (16 << 20))).status_code == 413


async def test_several_messages_are_found_by_their_ids(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    ids = await lab.send("T", "hello", "again")
    text = await desk.text(f"/messages?topic=T&msgId={','.join(ids)}")
    assert "hello" in text and "again" in text


async def test_a_body_that_is_no_text(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    async with Admin([lab.nameserver]) as admin:
        await send(admin, MessageQueue("T", "broker-a", 0), lab.broker, b"\xff\x00\x01", {})
    text = await desk.text(PLACE)
    assert "It is no text." in text
    assert "000000 ff 00 01" in text


async def test_a_message_is_sent_and_sent_again(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    sent = await desk.post("/topics/T/send", body="from the console", tags="t", key="k", broker="broker-a", qid="0")
    assert sent.headers["location"] == PLACE
    again = await desk.post(f"{PLACE}/again")
    assert again.headers["location"] == "/messages/T/at/broker-a/0/1"
    assert "from the console" in await desk.text("/messages/T/at/broker-a/0/1")
    assert len(desk.said) == 2


async def test_a_member_consumes_a_message_now(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    await lab.send("T", "one")
    bodies: list[bytes] = []

    async def listen(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    consumer = PushConsumer("g", listen, nameserver=lab.nameserver, start_from="end").subscribe("T")
    async with consumer:
        found = (await desk.json(PLACE))["members"]
        assert isinstance(found, list)
        [member] = found
        answer = await desk.post(f"{PLACE}/consume", member=f"{member['group']} {member['clientId']}")
        assert answer.status_code == 303, answer.text
    assert b"one" in bodies
    assert "CR_SUCCESS" in desk.said[-1]


# ------------------------------------------------------------------ dead letters


async def given_up(lab: Lab, *bodies: str) -> None:
    """Messages of topic T that group g has given up."""
    await lab.topic("T")
    left = len(bodies)

    async def listen(message: ReceivedMessage) -> Reject:
        return Reject("no such dish")

    consumer = PushConsumer("g", listen, nameserver=lab.nameserver, start_from="first").subscribe("T")
    async with consumer:
        await lab.send("T", *bodies)
        async with Admin([lab.nameserver]) as admin:
            desk_topics = admin.all_topics
            for _ in range(400):
                if "%DLQ%g" in await desk_topics():
                    status = await lab.mqadmin("topicStatus", "-t", "%DLQ%g")
                    if sum(int(row[3]) for row in status.rows[1:]) == left:
                        return
    raise AssertionError("the letters did not come")


async def test_dead_letters_are_listed_with_their_reason(lab: Lab, desk: Desk) -> None:
    assert "no group has any" in await desk.text("/dead-letters")
    await given_up(lab, "one", "two")
    assert "g 2 20" in await desk.text("/dead-letters")
    text = await desk.text("/dead-letters/g")
    assert "2 letters" in text
    assert "T Reject: no such dish" in text


async def test_a_marked_letter_goes_back_to_its_topic(lab: Lab, desk: Desk) -> None:
    await given_up(lab, "one", "two")
    letters = (await desk.json("/dead-letters/g"))["items"]
    assert isinstance(letters, list)
    place = next(each["place"] for each in letters if each["message"]["body"] == "two")
    answer = await desk.post("/dead-letters/g/back", places=place)
    assert answer.headers["location"] == "/dead-letters/g"
    copies = (await desk.json("/messages?topic=T"))["items"]
    assert isinstance(copies, list)
    assert sorted(each["body"] for each in copies) == ["one", "two", "two"]
    copy = max(copies, key=lambda each: each["stored"]["ms"])
    assert copy["properties"]["REDRIVEN_FROM"] == place
    assert not any(name.startswith("DEAD_LETTER") for name in copy["properties"])
    assert "yes" in await desk.text("/dead-letters/g")
    assert "mark the letters" in (await desk.post("/dead-letters/g/back")).text


async def sent_all(desk: Desk, **fields: str) -> str:
    """Send all letters of g back; what the page says of the last time, and the button."""
    answer = await desk.post("/dead-letters/g/back", all="on", rate="10000", confirm="g", **fields)
    assert answer.status_code == 303, answer.text
    sending = list(desk.console.tasks.values())[-1]
    assert isinstance(sending, Task) and sending.task is not None
    await sending.task
    return await desk.text("/dead-letters/g")


async def bodies_of(desk: Desk) -> list[str]:
    copies = (await desk.json("/messages?topic=T"))["items"]
    assert isinstance(copies, list)
    return sorted(each["body"] for each in copies)


async def test_what_was_sent_back_does_not_go_again(lab: Lab, desk: Desk) -> None:
    await given_up(lab, "one", "two", "three")
    assert "Send 3 back" in await desk.text("/dead-letters/g")
    letters = (await desk.json("/dead-letters/g"))["items"]
    assert isinstance(letters, list)
    await desk.post("/dead-letters/g/back", places=letters[0]["place"])
    assert "Send 2 back" in await desk.text("/dead-letters/g")
    text = await sent_all(desk)
    assert "2 of 3 sent back, 1 left out that were sent before, done" in text
    assert "All that were not sent back" not in text
    assert "0 of 3 sent back, 3 left out that were sent before, done" in await sent_all(desk)
    assert await bodies_of(desk) == ["one", "one", "three", "three", "two", "two"]


async def test_so_many_go_back_as_are_wanted_and_the_next_time_the_rest(lab: Lab, desk: Desk) -> None:
    await given_up(lab, "one", "two", "three")
    assert "2 of 3 sent back, done" in await sent_all(desk, count="2")
    assert "Send 1 back" in await desk.text("/dead-letters/g")
    assert "1 of 3 sent back, 2 left out" in await sent_all(desk)
    assert await bodies_of(desk) == ["one", "one", "three", "three", "two", "two"]


async def test_the_console_and_move_keep_one_place(lab: Lab, opened: Callable[[bool], Desk], desk: Desk) -> None:
    """What either has sent back, neither sends again; also a console that was started again."""
    await given_up(lab, "one", "two")
    await lab.done("move", "g", "--count", "1")
    assert "Send 1 back" in await desk.text("/dead-letters/g")
    assert "1 of 2 sent back, 1 left out" in await sent_all(desk)
    assert (await lab.done("move", "g", "--dry-run")).out == "0 dead letters are there\n"
    other = opened(True)
    await other.browser.get(other.keys.address)
    assert "All that were not sent back" not in await other.text("/dead-letters/g")
    assert await bodies_of(desk) == ["one", "one", "two", "two"]


async def test_letters_that_are_on_their_way_back_are_not_sent_twice(lab: Lab, desk: Desk) -> None:
    await given_up(lab, "one", "two")
    one, other = await asyncio.gather(
        *(desk.post("/dead-letters/g/back", all="on", rate="10000", confirm="g") for _ in range(2))
    )
    assert sorted((one.status_code, other.status_code)) == [303, 409]
    assert "on their way back already" in (one.text + other.text)
    [sending] = desk.console.tasks.values()
    assert isinstance(sending, Task) and sending.task is not None
    await sending.task
    assert await bodies_of(desk) == ["one", "one", "two", "two"]


async def test_the_first_letters_may_have_been_deleted(lab: Lab, desk: Desk) -> None:
    """A group without a place whose queue of letters begins behind 0: the broker knows no offset of it at all."""
    await given_up(lab, "one")
    await lab.topic("big")
    async with Admin([lab.nameserver]) as admin:
        for _ in range(3):
            await send(admin, MessageQueue("big", "broker-a", 0), lab.broker, b"x" * (700 << 10), {})
        old = min((lab.home.parent / "store" / "commitlog").iterdir())
        os.utime(old, (0, 0))
        await lab.done("deleteExpiredCommitLog", "-b", lab.broker)
        await send(admin, MessageQueue("%DLQ%g", "broker-a", 0), lab.broker, b"two", {"RETRY_TOPIC": "T"})
    assert "Send 1 back" in await desk.text("/dead-letters/g")
    dry = await lab.mqadmin("move", "g", "--dry-run")
    assert (dry.status, dry.out) == (3, "1 dead letter is there\n"), dry
    assert "1 of 1 sent back, done" in await sent_all(desk)


async def test_all_letters_go_back_at_a_rate(lab: Lab, desk: Desk) -> None:
    await given_up(lab, "one", "two", "three")
    assert (await desk.post("/dead-letters/g/back", all="on", rate="100", confirm="x")).status_code == 400
    await desk.post("/dead-letters/g/back", all="on", rate="100", confirm="g")
    [sending] = desk.console.tasks.values()
    assert isinstance(sending, Task) and sending.task is not None
    await sending.task
    assert "3 of 3 sent back, done" in await desk.text("/dead-letters/g")
    copies = (await desk.json("/messages?topic=T"))["items"]
    assert isinstance(copies, list) and len(copies) == 6
