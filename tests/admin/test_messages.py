"""Messages by mqadmin: sent, printed, looked up."""

import asyncio
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.admin.cli import run
from eruca.admin.commands import message
from eruca.client import Message, Producer
from eruca.protocol.bodies import TopicConfig
from eruca.protocol.queues import MessageQueue
from tests.admin.conftest import Lab
from tests.support.peers import Pushed


@pytest.fixture(autouse=True)
def bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Bodies are written to a folder of the test."""
    monkeypatch.setattr(message, "BODY_DIRECTORY", tmp_path / "bodies")
    yield tmp_path / "bodies"


def fields(out: str) -> dict[str, str]:
    """The lines ``Name:   value`` of a message that was looked up."""
    return dict(re.findall(r"(?m)^([A-Z][\w ]+:) +(.*)$", out))


def names(folder: Path) -> list[str]:
    """The files of a folder."""
    return sorted(each.name for each in folder.iterdir())


async def offset_id(lab: Lab, topic: str) -> str:
    """The broker's id of the first message of a topic."""
    out = (await lab.done("queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "0")).out
    return fields(out)["OffsetID:"]


async def test_a_message_is_sent_to_any_queue_or_to_one(lab: Lab) -> None:
    await lab.topic("T", 2)
    done = await lab.done("sendMessage", "-t", "T", "-p", "hello", "-k", "k1", "-c", "TagA")
    lines = done.out.splitlines()
    assert lines[0] == "#Broker Name                      #QID  #Send Result            #MsgId"
    assert done.rows[1][0] == "broker-a" and done.rows[1][2] == "SEND_OK" and len(done.rows[1][3]) == 32
    one = await lab.done("sendMessage", "-t", "T", "-p", "hello", "-b", "broker-a", "-i", "1")
    assert one.rows[1][:3] == ["broker-a", "1", "SEND_OK"]
    wrong = await lab.mqadmin("sendMessage", "-t", "T", "-p", "hello", "-b", "nobody", "-i", "1")
    assert (wrong.status, "no master on broker nobody; its brokers: broker-a" in wrong.err) == (4, True)
    outside = await lab.mqadmin("sendMessage", "-t", "T", "-p", "hello", "-b", "broker-a", "-i", "7")
    assert (outside.status, "request queueId[7] is illegal" in outside.err) == (1, True)


async def test_a_topic_without_route_is_created_by_sending(lab: Lab) -> None:
    done = await lab.done("sendMessage", "-t", "Fresh", "-p", "hello")
    assert done.rows[1][2] == "SEND_OK"
    assert (await lab.done("topicStatus", "-t", "Fresh")).rows[1][0] == "broker-a"


async def test_messages_are_timed(lab: Lab) -> None:
    await lab.topic("T", 2)
    checked = await lab.done("checkMsgSendRT", "-t", "T", "-a", "3")
    assert [row[:3] for row in checked.rows[1:4]] == [["broker-a", str(n), "true"] for n in (0, 1, 0)]
    assert checked.out.splitlines()[-1].startswith("Avg RT: ")
    status = await lab.done("sendMsgStatus", "-b", "broker-a", "-c", "2")
    assert len(re.findall(r"(?m)^rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, msgId=", status.out)) == 2


async def test_messages_of_a_queue_are_consumed(lab: Lab) -> None:
    await lab.topic("T")
    ids = await lab.send("T", "one", "zwei é", "three", tags="TagA", keys="k")
    line = ("consumeMessage", "-t", "T", "-b", "broker-a", "-i", "0")
    first = (await lab.done(*line, "-o", "1")).out.splitlines()
    assert first[0] == "Consume ok"
    assert first[1].startswith(f"MSGID: {ids[1]} MessageExt [brokerName=broker-a, queueId=0, storeSize=")
    assert "properties={MIN_OFFSET=0, MAX_OFFSET=3, " in first[1]
    assert "body=[122, 119, 101, 105, 32, -61, -87]" in first[1]
    assert first[1].endswith("BODY: zwei é") and first[2].endswith("BODY: three")
    queue = "MessageQueue [topic=T, brokerName=broker-a, queueId=0]"
    assert first[3] == f"{queue} print msg finished. status=NO_NEW_MSG, offset=3"
    two = (await lab.done(*line, "-c", "2")).out
    assert two.startswith("The oldler 2 message will be provided\nConsume ok\n") and two.count("MSGID: ") == 2
    assert (await lab.done(*line, "-o", "9")).out == f"{queue} no matched msg, offset=9\n"
    every = (await lab.done("consumeMessage", "-t", "T", "-c", "2")).out
    assert every.startswith("The older 2 message of the 0 queue will be provided\nConsume ok\n")
    assert every.count("MSGID: ") == 2


async def test_a_broker_without_a_queue_is_obeyed(lab: Lab) -> None:
    await lab.topic("T", 2)
    own = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
    await lab.register("broker-b", "127.0.0.1:1", own)
    for _ in range(8):
        sent = await lab.done("sendMessage", "-t", "T", "-p", "text", "-b", "broker-a")
        assert sent.rows[1][0] == "broker-a"
    nobody = await lab.mqadmin("sendMessage", "-t", "T", "-p", "text", "-b", "nobroker")
    assert (nobody.status, nobody.out) == (4, "")
    assert "topic T has no queue to write on broker nobroker; its brokers: broker-a, broker-b" in nobody.err
    for queue in ("-1", "-5"):
        refused = await lab.mqadmin("sendMessage", "-t", "T", "-p", "text", "-b", "broker-a", "-i", queue)
        assert (refused.status, refused.out) == (2, "")
    consumed = await lab.done("consumeMessage", "-t", "T", "-b", "broker-a")
    assert consumed.out.count("MSGID: ") == 8
    nobody = await lab.mqadmin("consumeMessage", "-t", "T", "-b", "nobroker")
    assert (nobody.status, nobody.out) == (4, "")
    assert "topic T is not on broker nobroker" in nobody.err


async def test_no_message_lies_between_two_times(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "one")
    await lab.send("T", "two", queue=1)
    for where in ((), ("-b", "broker-a", "-i", "0")):
        line = ("consumeMessage", "-t", "T", *where, "-s", "2020-01-01 00:00", "-e", "2020-01-02 00:00")
        done = await lab.mqadmin(*line)
        assert (done.status, done.out) == (4, "")
        assert done.err == "topic T has no message of that time there\n"
    assert (await lab.done("consumeMessage", "-t", "T", "-s", "-1h")).out.count("MSGID: ") == 2


async def test_messages_between_times(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one", "two")
    all_time = await lab.done("consumeMessage", "-t", "T", "-s", "2020-01-01#00:00:00:000")
    assert all_time.out.count("MSGID: ") == 2
    before = await lab.done("printMsg", "-t", "T", "-e", "1577836800000")
    assert before.out == (
        "minOffset=0, maxOffset=0, MessageQueue [topic=T, brokerName=broker-a, queueId=0]\n" + "-" * 56 + "\n"
    )


PRINTING = {
    "printMsg": ("-b", "-e"),
    "printMsgByQueue -a broker-a -i 0 -p true -d true": ("-b", "-e"),
    "consumeMessage": ("-s", "-e"),
    "consumeMessage -b broker-a -i 0": ("-s", "-e"),
}
"""Commands that print messages of a time, and their options for its begin and its end."""


@pytest.mark.parametrize("command", PRINTING)
async def test_the_messages_of_a_time_are_printed_and_no_others(lab: Lab, command: str) -> None:
    """A search finds the nearest message, one of many of the same time, and a batch goes on behind the last one."""
    await lab.topic("T")
    async with Producer("p", nameserver=lab.nameserver) as producer:
        queue = MessageQueue("T", "broker-a", 0)
        for burst in range(3):
            sends = (producer.send(Message("T", b"m%d" % (burst * 20 + n)), queue=queue) for n in range(20))
            await asyncio.gather(*sends)
            await lab.done("topicStatus", "-t", "T")  # takes longer than a millisecond
    name, *more = command.split()
    stored = [json.loads(each) for each in (await lab.done("printMsg", "-t", "T", "-o", "jsonl")).out.splitlines()]
    times = [each["stored"]["ms"] for each in stored]
    assert len(stored) == 60 and len(set(times)) < 60
    begin, end = PRINTING[command]
    for first, last in ((times[30], times[30]), (times[20] - 1, times[39]), (times[0], times[19]), (times[40], 0)):
        bounds = [begin, str(first), *([end, str(last)] if last else [])]
        printed = (await lab.done(name, "-t", "T", *more, *bounds)).out
        wanted = [f"m{number}" for number, at in enumerate(times) if first <= at <= (last or at)]
        assert sorted(re.findall(r"BODY: (\w+)$", printed, re.MULTILINE)) == sorted(wanted), (first, last)


async def test_a_count_goes_on_behind_many_messages_of_other_tags(lab: Lab) -> None:
    """A broker looks at some hundred messages for one pull, and answers that none of them matched."""
    await lab.topic("T")
    async with Producer("p", nameserver=lab.nameserver) as producer:
        queue = MessageQueue("T", "broker-a", 0)
        await asyncio.gather(*(producer.send(Message("T", b"m", tags="TagA"), queue=queue) for _ in range(2000)))
        await producer.send(Message("T", b"m", tags="TagB"), queue=queue)
    counted = await lab.done("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0", "-s", "TagB", "-f", "true")
    assert counted.out == f"Tag: {'TagB':<30} Count: 1\n"


async def test_messages_of_a_topic_are_printed(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "one", tags="TagA")
    await lab.send("T", "two", tags="TagB", queue=1)
    printed = (await lab.done("printMsg", "-t", "T")).out
    assert "minOffset=0, maxOffset=1, MessageQueue [topic=T, brokerName=broker-a, queueId=1]\n" in printed
    assert re.findall(r"BODY: (\w+)$", printed, re.MULTILINE) == ["one", "two"]
    tagged = (await lab.done("printMsg", "-t", "T", "-s", "TagB || TagC", "-d", "false")).out
    assert re.findall(r"BODY: (.+)$", tagged, re.MULTILINE) == ["NOT PRINT BODY"]
    counted = await lab.done("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0", "-f", "true")
    assert counted.out == f"Tag: {'TagA':<30} Count: 1\n"
    wrong = await lab.mqadmin("printMsg", "-t", "T", "-c", "no-such-charset")
    assert (wrong.status, "there is no charset no-such-charset" in wrong.err) == (2, True)


async def test_a_message_is_found_by_every_id(lab: Lab, bodies: Path) -> None:
    await lab.topic("T")
    (unique,) = await lab.send("T", "hello", tags="TagA", keys="k1 k2")
    stored = await offset_id(lab, "T")
    by_id = fields((await lab.done("queryMsgById", "-i", stored)).out)
    assert by_id["Topic:"] == "T" and by_id["Tags:"] == "[TagA]" and by_id["Keys:"] == "[k1 k2]"
    assert by_id["Queue ID:"] == "0" and by_id["Queue Offset:"] == "0" and by_id["CommitLog Offset:"] == "0"
    assert by_id["Store Host:"] == lab.broker and f"UNIQ_KEY={unique}" in by_id["Properties:"]
    assert by_id["Message Body Path:"] == str(bodies / unique)
    assert (bodies / unique).read_text() == "hello"
    by_unique = await lab.done("queryMsgByUniqueKey", "-t", "T", "-i", unique)
    assert "OffsetID:" not in by_unique.out
    assert fields(by_unique.out)["Keys:"] == "[k1 k2]"
    by_key = await lab.done("queryMsgByKey", "-t", "T", "-k", "k2")
    assert by_key.out == f"{'#Message ID':<50} #QID {'#Offset':>40}\n{unique:<50}    0 {'0':>40}\n"


async def test_what_is_not_found_is_said(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "hello", keys="k1")
    for line, status, words in (
        (("queryMsgByKey", "-t", "T", "-k", "none"), 4, "no message of topic T has the key none"),
        (("queryMsgByUniqueKey", "-t", "T", "-i", "AB"), 4, "no message of topic T has the id AB"),
        (("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "0", "-o", "7"), 4, "its offsets are 0 to 0"),
        (("queryMsgByOffset", "-t", "T", "-b", "other", "-i", "0", "-o", "0"), 4, "T is not on broker other"),
        (("queryCq", "-t", "T", "-q", "0", "-i", "7"), 4, "Index 7 of 0@T is not exist!"),
    ):
        done = await lab.mqadmin(*line)
        assert (done.status, done.out, words in done.err) == (status, "", True), done


async def message_id(lab: Lab) -> str:
    """The producer's id of the first message of topic T."""
    first = await lab.done("consumeMessage", "-t", "T", "-b", "broker-a", "-i", "0", "-o", "0", "-c", "1")
    return first.out.split("UNIQ_KEY=")[1].split(",")[0].split("}")[0]


async def test_who_consumed_a_message(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", "b", tags="TagA")
    stored = await offset_id(lab, "T")
    assert (await lab.done("queryMsgById", "-i", stored)).out.endswith("\n\n\nWARN: No Consumer\n")
    await lab.member("ahead", "T", client_id="1")
    await lab.member("behind", "T", client_id="2")
    await lab.done("updateTopic", "-b", lab.broker, "-t", "%RETRY%gone", "-r", "1", "-w", "1")
    for group, offset in (("ahead", 1), ("behind", 0), ("gone", 2)):
        await lab.commit(group, "T", offset)
    tracks = (await lab.done("queryMsgById", "-i", stored)).out.splitlines()[-3:]
    assert sorted(tracks) == [
        "MessageTrack [consumerGroup=ahead, trackType=PASSED, exceptionDesc=null]",
        "MessageTrack [consumerGroup=behind, trackType=NOT_CONSUME_YET, exceptionDesc=null]",
        "MessageTrack [consumerGroup=gone, trackType=NOT_ONLINE, "
        "exceptionDesc=CODE:206 DESC:the consumer group[gone] not online]",
    ]
    consumed = "\x01".join(
        ["SubAfter", "R", await message_id(lab), "7", "true", "k", "0", "1577836801000", "ahead", ""]
    )
    await lab.done("sendMessage", "-t", "RMQ_SYS_TRACE_TOPIC", "-p", consumed, "-k", await message_id(lab))
    traced = (await lab.done("queryMsgById", "-i", stored)).out
    assert "[consumerGroup=ahead, trackType=CONSUMED, exceptionDesc=null]" in traced


async def test_either_id_finds_a_message(lab: Lab) -> None:
    """The id that sendMessage prints is the producer's; the broker's has a port that somebody listens at."""
    await lab.topic("T")
    (sent,) = await lab.send("T", "a")
    by_broker = (await lab.done("queryMsgById", "-i", await offset_id(lab, "T"))).out.splitlines()[1:]
    for where in (("-t", "T"), ("-c", "DefaultCluster")):
        assert (await lab.done("queryMsgById", "-i", sent, *where)).out.splitlines()[1:] == by_broker
    alone = await lab.mqadmin("queryMsgById", "-i", sent)
    assert alone.status == 1
    assert "if it is the producer's id, give the topic with -t, or the cluster with -c" in alone.err
    unknown = await lab.mqadmin("queryMsgById", "-i", sent[:-2] + "FF", "-t", "T")
    assert (unknown.status, "no message of T has the id" in unknown.err) == (4, True)


async def test_a_member_consumes_a_message_directly(lab: Lab) -> None:
    def consume(pushed: Pushed) -> tuple[int, bytes] | None:
        result = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":7}'
        return (0, result) if pushed.code == 309 else None

    await lab.topic("T")
    await lab.send("T", "hello")
    member = await lab.member("G", "T", client_id="c1", answering=consume)
    done = await lab.done("queryMsgById", "-i", await offset_id(lab, "T"), "-g", "G", "-d", "c1")
    assert done.out == (
        "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=CR_SUCCESS, remark=null, "
        "spentTimeMills=7]\n"
    )
    (pushed,) = await member.received(309)
    assert b"hello" in pushed.body


@pytest.mark.parametrize("said", ["CR_THROW_EXCEPTION", "CR_LATER", "CR_ROLLBACK"])
async def test_a_member_that_does_not_consume_a_message(lab: Lab, said: str) -> None:
    def fail(pushed: Pushed) -> tuple[int, bytes] | None:
        result = f'{{"autoCommit":true,"consumeResult":"{said}","order":false,"remark":"boom","spentTimeMills":7}}'
        return (0, result.encode()) if pushed.code == 309 else None

    await lab.topic("T")
    (unique,) = await lab.send("T", "hello")
    await lab.member("G", "T", client_id="c1", answering=fail)
    for line in (
        ("queryMsgById", "-i", await offset_id(lab, "T")),
        ("queryMsgByUniqueKey", "-t", "T", "-i", unique),
    ):
        done = await lab.mqadmin(*line, "-g", "G", "-d", "c1")
        assert (done.status, done.err) == (1, f"c1 did not consume {unique}: {said}: boom\n")
        assert done.out.startswith("ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=")


async def test_a_message_is_sent_again(lab: Lab) -> None:
    await lab.topic("T")
    (unique,) = await lab.send("T", "hello", keys="k")
    stored = await offset_id(lab, "T")
    done = await lab.done("queryMsgById", "-i", stored, "-s", "true")
    assert done.out.startswith(f"prepare resend msg. originalMsgId={stored}SendResult [sendStatus=SEND_OK, ")
    assert f"msgId={unique}, " in done.out
    assert (await lab.done("topicStatus", "-t", "T")).rows[1][3] == "2"


async def test_an_id_that_is_no_plain_name_names_no_file(lab: Lab, bodies: Path) -> None:
    await lab.topic("T")
    peer = await lab.member("G", "T")
    properties = "UNIQ_KEY\x01../../escaped"
    send = {"a": "p", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0, "i": properties}
    assert (await peer.ask(310, send, b"hello")).code == 0
    stored = await offset_id(lab, "T")
    path = fields((await lab.done("queryMsgById", "-i", stored)).out)["Message Body Path:"]
    assert path == str(bodies / stored)
    assert names(bodies) == [stored]


async def test_units_of_a_queue(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", "b", tags="TagA")
    out = (await lab.done("queryCq", "-t", "T", "-q", "0", "-i", "1", "-c", "1")).out
    assert re.fullmatch(
        "Queue data: \nmax: 2, min: 0\n={38}\nidx: 1\nConsumeQueueData{physicOffset=\\d+, physicSize=\\d+, "
        "tagsCode=2598919, extendDataJson='null', bitMap='null', eval=false, msg='null'}\n={38}\n",
        out,
    )


async def test_every_broker_is_timed(lab: Lab) -> None:
    class Watched(io.StringIO):
        printed = asyncio.Event()

        def write(self, text: str) -> int:
            self.printed.set()
            return super().write(text)

    out = Watched()
    line = ("clusterRT", "-a", "2", "-p", "true", "-m", "room")
    rounds = asyncio.create_task(run(line, {"NAMESRV_ADDR": lab.nameserver}, out, out))
    async with asyncio.timeout(10):
        await out.printed.wait()
    rounds.cancel()
    await asyncio.gather(rounds, return_exceptions=True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:]{8}\|room\|DefaultCluster\|broker-a\|\d+\n", out.getvalue())
    unknown = await lab.mqadmin("clusterRT", "-c", "Nowhere")
    assert (unknown.status, unknown.err) == (4, "mqadmin clusterRT: cluster [Nowhere] not exist\n")


async def test_the_trace_of_a_message(lab: Lab) -> None:
    await lab.topic("Traces")
    sent = ["Pub", "1577836800000", "", "PG", "T", "ID1", "TagA", "k", "h", "5", "3", "0", "OFF", "true", "h", ""]
    consumed = ["SubAfter", "R", "ID1", "7", "false", "k", "0", "1577836801000", "G", ""]
    other = ["Pub", "1577836800000", "", "PG", "T", "ID2", "TagA", "k", "h", "5", "3", "0", "OFF", "true", "h", ""]
    body = "\x02".join("\x01".join(fields) for fields in (sent, ["Pub", "cut off"], other, consumed))
    await lab.send("Traces", body, keys="ID1")
    done = await lab.done("queryMsgTraceById", "-i", "ID1", "-t", "Traces")
    lines = done.out.splitlines()
    assert lines[0] == "#Type      #ProducerGroup       #ClientHost          #SendTime            #CostTimes #Status   "
    assert [done.rows[1][n] for n in (0, 1, 2, 5, 6)] == ["Pub", "PG", "127.0.0.1", "3ms", "success"]
    assert [done.rows[4][n] for n in (0, 1, 2, 5, 6)] == ["Sub", "G", "127.0.0.1", "7ms", "failed"]
    assert len(lines) == 6
    none = await lab.mqadmin("queryMsgTraceById", "-i", "ID9", "-t", "Traces")
    assert (none.status, "has no trace of the message ID9" in none.err) == (4, True)


async def test_what_one_broker_has_is_shown_and_the_silent_one_is_named(lab: Lab) -> None:
    await lab.topic("T")
    (message_id,) = await lab.send("T", "one", keys="order-7")
    await lab.register("broker-b", "127.0.0.1:1", TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    for line in (("queryMsgByKey", "-t", "T", "-k", "order-7"), ("queryMsgByUniqueKey", "-t", "T", "-i", message_id)):
        done = await lab.mqadmin(*line)
        assert (done.status, message_id in done.out or "Queue Offset:" in done.out) == (5, True), done
        assert done.err.startswith("broker-b: ") and ": its messages are missing\n" in done.err
    for line in (("queryMsgByKey", "-t", "T", "-k", "none"), ("queryMsgByUniqueKey", "-t", "T", "-i", "AB")):
        unknown = await lab.mqadmin(*line)
        assert unknown.status == 5 and "broker-b: " in unknown.err
