"""tail, send and move: what goes out of a topic, what comes into one, and what comes back."""

from __future__ import annotations

import asyncio
import io
import json
import os
import time

import pytest

from eruca.admin.cli import run
from eruca.admin.client import Admin
from eruca.admin.messages import send
from eruca.client import Message, Producer
from eruca.protocol.bodies import TopicConfig
from eruca.protocol.queues import MessageQueue
from tests.admin.conftest import Done, Lab
from tests.admin.test_forms import watching

BINARY = bytes(range(256))


async def give(lab: Lab, lines: bytes, *line: str) -> Done:
    """Run a command with this standard input."""
    out, err = io.StringIO(), io.StringIO()
    file = lab.home.parent / "input"
    file.write_bytes(lines)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        status = await run(line, {"NAMESRV_ADDR": lab.nameserver}, out, err, source=descriptor)
    finally:
        os.close(descriptor)
    return Done(status, out.getvalue(), err.getvalue())


async def bodies(lab: Lab, topic: str, *line: str) -> list[str]:
    return (await lab.done("tail", topic, "-f", "%v\\n", *line)).out.splitlines()


async def test_the_last_messages_of_all_queues_by_time(lab: Lab) -> None:
    await lab.topic("T", 3)
    for number in range(12):
        await lab.send("T", str(number), queue=number % 3)
    assert await bodies(lab, "T") == [str(number) for number in range(2, 12)]
    assert await bodies(lab, "T", "-c", "2") == ["10", "11"]
    assert await bodies(lab, "T", "--from", "first") == [str(number) for number in range(12)]
    assert await bodies(lab, "T", "--from", "first", "-c", "5") == ["0", "1", "2", "3", "4"]
    assert await bodies(lab, "T", "--from", "3") == ["9", "10", "11"]
    assert await bodies(lab, "T", "--from", "last") == []


async def test_no_group_takes_part_and_no_offset_is_stored(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one")
    peer = await lab.producer("p")
    groups, offsets = 201, 43
    before = [(await peer.ask(code)).body for code in (groups, offsets)]
    assert await bodies(lab, "T", "--from", "first") == ["one"]
    assert [(await peer.ask(code)).body for code in (groups, offsets)] == before


async def test_times(lab: Lab) -> None:
    await lab.topic("T", 2)
    times: list[int] = []
    while not times or times[-1] < times[0] + 2:  # two messages with a time between theirs
        await lab.send("T", "m", queue=len(times) % 2)
        times.append(json.loads((await lab.done("tail", "T", "-o", "jsonl", "-c", "1")).out)["stored"]["ms"])
    middle = times[-1] - 1
    older = len([each for each in times if each <= middle])
    assert len(await bodies(lab, "T", "--from", str(middle + 1))) == len(times) - older
    assert len(await bodies(lab, "T", "--until", str(middle))) == older
    assert len(await bodies(lab, "T", "--from", "first", "--until", "now")) == len(times)


async def test_what_is_wanted(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", tags="A", keys="k1 k2")
    await lab.send("T", "b", tags="B", keys="k2")
    await lab.send("T", *map(str, range(40)))
    assert await bodies(lab, "T", "-s", "A || B") == ["a", "b"]
    assert await bodies(lab, "T", "-k", "k1") == ["a"]
    assert await bodies(lab, "T", "--from", "first", "-k", "k2") == ["a", "b"]
    refused = await lab.mqadmin("tail", "T", "--sql", "TAGS = 'A'")
    assert (refused.status, refused.out) == (1, "")
    lab.cluster.broker.config.enable_property_filter = True
    assert await bodies(lab, "T", "--sql", "TAGS = 'B'") == ["b"]


async def test_the_letters_of_the_form(lab: Lab) -> None:
    await lab.topic("T")
    (own,) = await lab.send("T", "Größe", tags="A", keys="k1 k2")
    done = await lab.done("tail", "T", "-f", r"%t %b:%q@%o %k %K %g %v %V %s %S %p %i 100%%\t\x41\n")
    assert done.out == f"T broker-a:0@0 k1 k2 5 A Größe 7 Größe 7 0 {own} 100%\tA\n"
    wrong = await lab.mqadmin("tail", "T", "-f", "%z")
    assert (wrong.status, "%z stands for nothing; there are %t, %b, " in wrong.err) == (2, True)


async def test_a_body_that_is_no_text(lab: Lab) -> None:
    await lab.topic("T")
    async with Producer("p", nameserver=lab.nameserver) as producer:
        await producer.send(Message("T", b"\x00\xff\xfe", properties={"p": "v"}))
    assert (await lab.done("tail", "T", "-f", "%v")).out == "\\x00\\xff\\xfe\n"
    (found,) = [json.loads(line) for line in (await lab.done("tail", "T", "-o", "jsonl")).out.splitlines()]
    assert (found["body"], found["bodyEncoding"], found["properties"]["p"]) == ("AP/+", "base64", "v")


async def test_following_until_it_is_interrupted(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "before")
    async with watching(lab, "tail", "T", "--follow", "-f", "<%v>\\n") as (out, err):
        await out.shows("<before>")
        await lab.send("T", "first", queue=1)
        await lab.send("T", "second")
        await out.shows("<second>")
        assert out.getvalue() == "<before>\n<first>\n<second>\n"
    assert err.getvalue() == "3 messages\n"


async def test_up_to_a_time_that_is_to_come(lab: Lab) -> None:
    await lab.topic("T")
    sending = asyncio.create_task(lab.send("T", "one", "two"))
    end = str(time.time_ns() // 1_000_000 + 1500)
    assert sorted(await bodies(lab, "T", "--from", "first", "--until", end)) == ["one", "two"]
    await sending


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("tail",), "<topic> is missing: give it as the first word, or with -t (--topic)"),
        (("tail", "T", "--follow", "--until", "now"), "give one of --follow and --until"),
        (("tail", "T", "-s", "A", "--sql", "a = 1"), "give one of -s and --sql"),
        (("tail", "T", "--sql", "price >"), "The SQL92 expression 'price >' is wrong at position 8"),
        (("tail", "T", "--sql", "name LIKE 'x%'"), "is wrong at position 6: brokers ignore"),
        (("tail", "T", "--sql", ""), "The SQL92 expression '' is wrong at position 1"),
        (("tail", "T", "--sql", "a = NULL"), "The SQL92 expression 'a = NULL' is wrong"),
        (("tail", "T", "-s", "||"), "The tag expression '||' names no tag"),
        (("tail", "T", "-c", "0"), "1 or more, not 0"),
        (("tail", "T", "--from", "whenever"), "whenever"),
        (("send", "T", "-c", "0"), "1 or more"),
        (("send", "T", "--json", "--lines"), "give one of --json and --lines"),
        (("move", "g", "--to", "nowhere"), "option --to takes topic, retry, not 'nowhere'"),
        (("move", "g", "--count", "0"), "option --count takes a whole number, 1 or more, not 0"),
    ],
)
async def test_wrong_command_lines(lab: Lab, line: tuple[str, ...], words: str) -> None:
    await lab.topic("T")
    done = await lab.mqadmin(*line)
    assert (done.status, words in done.err) == (2, True), done


async def test_a_topic_that_is_not_there(lab: Lab) -> None:
    done = await lab.mqadmin("tail", "T")
    assert (done.status, "No topic route info" in done.err) == (4, True)
    await lab.topic("T")
    await lab.done("updateTopicPerm", "-t", "T", "-p", "2", "-b", lab.broker)
    done = await lab.mqadmin("tail", "T")
    assert (done.status, "topic T has no queue to read" in done.err) == (1, True)


async def test_a_broker_that_is_away_is_named(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one")
    await lab.register("broker-b", "127.0.0.1:1", TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    done = await lab.mqadmin("tail", "T", "-f", "%v")
    assert (done.status, done.out) == (5, "one\n")
    assert "broker-b: " in done.err and "its messages are missing" in done.err
    async with watching(lab, "tail", "T", "--follow", "-f", "%v\\n") as (out, err):
        await err.shows("broker-b: ")
        await lab.send("T", "two")
        await out.shows("two")


# ------------------------------------------------------------------ send


async def test_lines_are_messages(lab: Lab) -> None:
    await lab.topic("T")
    done = await give(lab, "one\r\nzwei é\n\nfour".encode(), "send", "T", "--key", "k1 k2", "--tag", "A")
    assert (done.status, done.out, done.err) == (0, "4 messages sent to T\n", "")
    shown = (await lab.done("tail", "T", "-f", "%g|%k|%v\\n")).out
    assert shown == "A|k1 k2|one\nA|k1 k2|zwei é\nA|k1 k2|\nA|k1 k2|four\n"


async def test_each_message_several_times_and_at_a_rate(lab: Lab) -> None:
    await lab.topic("T")
    began = time.monotonic()
    done = await give(lab, b"one\ntwo\n", "send", "T", "-c", "2", "--rate", "20", "-o", "json")
    assert time.monotonic() - began >= 0.15
    result = json.loads(done.out)
    assert (done.status, result["messages"], result["bytes"]) == (0, 4, 12)
    assert await bodies(lab, "T") == ["one", "one", "two", "two"]


async def test_a_topic_is_copied_with_all_that_it_has(lab: Lab) -> None:
    await lab.topic("T", 4)
    await lab.topic("Copy", 4)
    async with Producer("p", nameserver=lab.nameserver) as producer:
        for number in range(40):
            body = BINARY if number % 2 else f"text {number}\x1b\u2028é".encode()
            await producer.send(Message("T", body, tags="A", keys=["k1", f"k{number}"], properties={"p": "ü\x1b="}))
    copied = (await lab.done("tail", "T", "--from", "first", "-o", "jsonl")).out
    assert (await give(lab, copied.encode(), "send", "Copy")).out == "40 messages sent to Copy\n"

    async def all_of(topic: str) -> dict[tuple[int, int], tuple[object, ...]]:
        lines = (await lab.done("tail", topic, "--from", "first", "-o", "jsonl")).out.splitlines()
        return {
            (each["queueId"], each["queueOffset"]): (
                each["body"],
                each["bodyEncoding"],
                each["tags"],
                each["keys"],
                each["id"],
                each["properties"],
            )
            for each in map(json.loads, lines)
        }

    assert len(await all_of("T")) == 40
    assert await all_of("Copy") == await all_of("T")


async def test_messages_by_hand_in_json(lab: Lab) -> None:
    await lab.topic("T")
    lines = b'{"body": "one", "keys": ["a", "b"], "tags": "A"}\n{"body": "AP8=", "bodyEncoding": "base64"}\n'
    assert (await give(lab, lines, "send", "T", "--json")).status == 0
    assert (await lab.done("tail", "T", "-f", "%g|%k|%v\\n")).out == "A|a b|one\n||\\x00\\xff\n"
    assert (await give(lab, lines, "send", "T")).status == 0
    assert (await bodies(lab, "T", "-c", "2"))[0] == '{"body": "one", "keys": ["a", "b"], "tags": "A"}'
    wrong = await give(lab, b"no json\n", "send", "T", "--json")
    assert (wrong.status, "line 1 is no message in JSON" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    "line", [b'{"body":"\xff"}', b'{"body":"x","z":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"body":"\\ud800"}']
)
async def test_a_line_that_is_no_json_is_a_body_or_is_refused_in_a_sentence(lab: Lab, line: bytes) -> None:
    await lab.topic("T")
    assert (await give(lab, line + b"\n", "send", "T")).status == 0
    refused = await give(lab, line + b"\n", "send", "T", "--json")
    assert refused.status == 2
    assert refused.err.startswith("mqadmin send: line 1 is no message in JSON: ")


async def test_what_cannot_be_sent_is_named(lab: Lab) -> None:
    await lab.topic("T")
    done = await give(lab, b"one\n" + b"x" * (5 << 20) + b"\nthree\n", "send", "T")
    assert (done.status, done.out) == (5, "1 message sent to T\n")
    assert "lines 2, 3 and what follows was not sent" in done.err
    assert await bodies(lab, "T") == ["one"]
    closed = await lab.mqadmin("send", "T")
    assert (closed.status, "the standard input is closed" in closed.err) == (1, True)


# ------------------------------------------------------------------ move


async def test_dead_letters_go_back_once(lab: Lab) -> None:
    await lab.topic("T")
    await lab.topic("%DLQ%g")
    async with Admin([lab.nameserver]) as admin:
        for body in ("one", "two"):
            properties = {"RETRY_TOPIC": "T", "TAGS": "A", "KEYS": "k1 k2", "mine": "1"}
            await send(admin, MessageQueue("%DLQ%g", "broker-a", 0), lab.broker, body.encode(), properties)
    await lab.member("other", "T")
    assert (await lab.done("move", "other", "--dry-run")).out == "0 dead letters are there\n"
    for dry in ((), ("--dry-run",)):
        nowhere = await lab.mqadmin("move", "g", "-t", "NoTopic", *dry)
        assert (nowhere.status, nowhere.out) == (4, "")
        assert "No topic route info in name server for the topic: NoTopic" in nowhere.err
    unknown = await lab.mqadmin("move", "nobody", "--dry-run")
    assert (unknown.status, "no broker knows the consumer group nobody" in unknown.err) == (4, True)
    there = await lab.mqadmin("move", "g", "--dry-run", "-o", "json")
    assert (there.status, json.loads(there.out)["letters"]) == (3, 2)
    refused = await lab.mqadmin("move", "g", answers="n\n")
    assert (refused.status, await bodies(lab, "T")) == (1, [])
    assert (await lab.mqadmin("move", "g", "--dry-run", "--count", "1")).out == "1 dead letter is there\n"
    assert (await lab.done("move", "g", "--count", "1")).out == "1 dead letter sent to its topic again\n"
    assert (await lab.done("move", "g")).out == "1 dead letter sent to its topic again\n"
    assert (await lab.done("tail", "T", "-f", "%g|%k|%v\\n")).out == "A|k1 k2|one\nA|k1 k2|two\n"
    assert (await lab.done("move", "g")).out == "0 dead letters sent to their topic again\n"
    assert (await lab.done("move", "g", "--dry-run")).out == "0 dead letters are there\n"
    assert (await lab.mqadmin("move", "g", "--from", "yesterday 00:00", "--dry-run")).status == 3
