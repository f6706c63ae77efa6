"""Sending: 10, 310, 320, one-way; every check, every answer, and what is stored."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from eruca.broker.config import FlushDiskType
from eruca.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from eruca.protocol.record import BatchEntry, encode_batch
from tests.support.descriptors import no_descriptor_left
from tests.support.desk import START, Desk
from tests.support.pairs import eventually
from tests.support.sends import LONG, message

SEND, SEND_V2, BATCH, PULL = 10, 310, 320, 11
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


# ---------------------------------------------------------------------- what is stored, what is answered


async def test_a_message_is_stored_and_answered_with_its_place(desk: Desk) -> None:
    desk.topic("T", queues=2)
    answer = await desk.ask(SEND_V2, message(queue_id=1, h=7, j=2), b"hello")
    port = int(desk.app.address.rpartition(":")[2])
    assert (answer.code, answer.remark, answer.body) == (0, None, b"")
    assert answer.fields == {
        "msgId": f"7F000001{port:08X}{0:016X}",
        "queueId": "1",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    record = desk.records(queue_id=1)[0]
    assert (record.topic, record.queue_id, record.body, record.flag) == ("T", 1, b"hello", 7)
    assert (record.born_timestamp, record.store_timestamp, record.reconsume_times) == (START, START, 2)
    assert record.properties_text == b"TAGS\x01TagA\x02UNIQ_KEY\x01AC11\x02CLUSTER\x01Lab"
    assert record.born_host == b"\x7f\0\0\1" + int(desk.operator.address.rpartition(":")[2]).to_bytes(4, "big")
    assert record.store_host == b"\x7f\0\0\1" + port.to_bytes(4, "big")


async def test_long_names_mean_the_same(desk: Desk) -> None:
    desk.topic("T")
    answer = await desk.ask(SEND, {LONG[name]: value for name, value in message().items()}, b"hello")
    assert (answer.code, answer.fields["queueOffset"]) == (0, "0")
    assert desk.records()[0].properties_text == b"TAGS\x01TagA\x02UNIQ_KEY\x01AC11\x02CLUSTER\x01Lab"


async def test_offsets_of_a_queue_follow_one_another(desk: Desk) -> None:
    desk.topic("T", queues=2)
    answers = [await desk.ask(SEND_V2, message(queue_id=n % 2), b"x") for n in range(6)]
    assert [answer.fields["queueOffset"] for answer in answers] == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", "CLUSTER\x01Lab"),
        ("WAIT\x01true", "CLUSTER\x01Lab"),
        ("WAIT\x01true\x02", "CLUSTER\x01Lab"),
        ("WAIT\x01false", "CLUSTER\x01Lab"),
        ("WAIT\x01true\x02KEYS\x01k", "KEYS\x01k\x02CLUSTER\x01Lab"),
        ("KEYS\x01k\x02WAIT\x01true\x02TAGS\x01t\x02", "KEYS\x01k\x02TAGS\x01t\x02CLUSTER\x01Lab"),
        ("KEYS\x01k\x02", "KEYS\x01k\x02CLUSTER\x01Lab"),
        ("KEYS\x01NOWAIT", "KEYS\x01NOWAIT\x02CLUSTER\x01Lab"),
        ("NOWAIT\x01true", "NOWAIT\x01true\x02CLUSTER\x01Lab"),
        ("CLUSTER\x01other\x02KEYS\x01k", "CLUSTER\x01Lab\x02KEYS\x01k"),
        ("DELAY\x010\x02KEYS\x01k", "DELAY\x010\x02KEYS\x01k\x02CLUSTER\x01Lab"),
        ("name\x01Grüße 世界", "name\x01Grüße 世界\x02CLUSTER\x01Lab"),
    ],
)
async def test_properties_get_the_cluster_and_lose_the_wait(desk: Desk, text: str, kept: str) -> None:
    desk.topic("T")
    assert (await desk.ask(SEND_V2, message(i=text), b"x")).code == 0
    assert desk.records()[0].properties_text.decode() == kept


async def test_a_queue_below_zero_lets_the_broker_choose_among_the_queues_to_write(desk: Desk) -> None:
    desk.topic("T", queues=4, write_queue_nums=2)
    chosen = {(await desk.ask(SEND_V2, message(queue_id=-1), b"x")).fields["queueId"] for _ in range(40)}
    assert chosen == {"0", "1"}


async def test_a_one_way_message_is_stored_and_not_answered(desk: Desk) -> None:
    desk.topic("T")
    desk.operator.tell(SEND_V2, message(), b"quiet")
    desk.operator.tell(SEND_V2, message(topic="a b"), b"refused, quietly")
    assert (await desk.ask(SEND_V2, message(), b"loud")).fields["queueOffset"] == "1"
    assert desk.records()[0].body == b"quiet"


async def test_the_topics_filter_type_is_kept_with_the_message(desk: Desk) -> None:
    desk.topic("T", topic_filter_type="MULTI_TAG")
    await desk.ask(SEND_V2, message(f=0x30 | 1), b"x")
    assert desk.records()[0].sys_flag == 0x3  # what a client says of address forms counts for nothing


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        ("", 1, "The specified topic is blank."),
        ("T" * 128, 1, "The specified topic is longer than topic max length."),
        ("a b", 1, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("../x", 1, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("SCHEDULE_TOPIC_XXXX", 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ("SELF_TEST_TOPIC", 16, "Sending message to topic[SELF_TEST_TOPIC] is forbidden."),
        ("OFFSET_MOVED_EVENT", 16, "Sending message to topic[OFFSET_MOVED_EVENT] is forbidden."),
    ],
)
async def test_topics_that_may_not_be_sent_to(desk: Desk, topic: str, code: int, remark: str) -> None:
    answer = await desk.ask(SEND_V2, message(topic=topic), b"x")
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


async def test_tbw102_itself_takes_messages(desk: Desk) -> None:
    assert (await desk.ask(SEND_V2, message(topic="TBW102"), b"x")).code == 0


async def test_a_queue_that_is_not_there(desk: Desk) -> None:
    desk.topic("T", queues=2)
    answer = await desk.ask(SEND_V2, message(queue_id=9), b"x")
    assert answer.code == 1
    assert answer.remark == (
        "request queueId[9] is illegal, TopicConfig [topicName=T, readQueueNums=2, writeQueueNums=2, perm=RW-, "
        f"topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: {desk.operator.address}"
    )


async def test_a_queue_that_may_only_be_read_still_takes_what_is_sent_to_it(desk: Desk) -> None:
    desk.topic("T", queues=4, write_queue_nums=1)
    assert (await desk.ask(SEND_V2, message(queue_id=3), b"x")).code == 0
    assert (await desk.ask(SEND_V2, message(queue_id=4), b"x")).code == 1


async def test_a_topic_that_shrinks_is_checked_anew(desk: Desk) -> None:
    desk.topic("T", queues=4)
    assert (await desk.ask(SEND_V2, message(queue_id=3), b"x")).code == 0
    assert (await desk.ask(SEND_V2, message(queue_id=3), b"x")).code == 0
    desk.topic("T", queues=2)
    assert (await desk.ask(SEND_V2, message(queue_id=3), b"x")).code == 1


@pytest.mark.parametrize(("size", "code"), [(4 << 20, 0), ((4 << 20) + 1, 13)])
async def test_the_greatest_body(prepared: Prepared, size: int, code: int) -> None:
    def large(desk: Desk) -> None:
        desk.config.store.mapped_file_size_commit_log = 8 << 20

    desk = await prepared(large)
    desk.topic("T")
    answer = await desk.ask(SEND_V2, message(), bytes(size))
    assert answer.code == code
    if code:
        assert answer.remark == (
            "the message is illegal, maybe msg body or properties length not matched. "
            "msg body length limit 4194304B, msg properties length limit 32KB."
        )


async def test_properties_that_are_too_long_with_the_cluster(desk: Desk) -> None:
    desk.topic("T")
    room = 32767 - len("\x02CLUSTER\x01Lab") - len("KEYS\x01")
    assert (await desk.ask(SEND_V2, message(i="KEYS\x01" + "k" * room), b"x")).code == 0
    assert (await desk.ask(SEND_V2, message(i="KEYS\x01" + "k" * (room + 1)), b"x")).code == 13
    assert (await desk.ask(SEND_V2, message(i="CLUSTER\x01x\x02KEYS\x01" + "k" * 32767), b"x")).code == 13


async def test_before_its_time_the_broker_takes_nothing(desk: Desk) -> None:
    desk.topic("T")
    desk.config.start_accept_send_request_time_stamp = START + 1000
    answer = await desk.ask(SEND_V2, message(), b"x")
    assert answer.code == 1 and answer.remark is not None
    assert answer.remark.startswith("broker unable to service, until 2023-11-1")
    desk.now += 1000
    assert (await desk.ask(SEND_V2, message(), b"x")).code == 0


async def test_a_broker_that_may_not_be_written_to_refuses_ordered_topics(desk: Desk) -> None:
    desk.topic("T")
    desk.topic("O", order=True)
    await desk.ask(25, {}, b"brokerPermission=4\n")
    answer = await desk.ask(SEND_V2, message(topic="O"), b"x")
    assert (answer.code, answer.remark) == (16, "the broker[127.0.0.1] sending message is forbidden")
    assert (await desk.ask(SEND_V2, message(), b"x")).code == 0


async def test_no_descriptor_for_the_next_file_of_the_log_is_not_called_a_full_disk(desk: Desk) -> None:
    desk.topic("T")
    with no_descriptor_left():
        for _ in range(desk.config.store.mapped_file_size_commit_log // 100_000 + 1):
            answer = await desk.ask(SEND_V2, message(), bytes(100_000))
    assert (answer.code, "disk" in (answer.remark or "")) == (14, False)
    assert (answer.remark or "").startswith(
        "service not available now: no room in the commit log: Too many open files: this process may open"
    )


async def test_a_topic_that_cannot_be_saved_for_lack_of_descriptors(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0)
    await desk.broker.topics.saved()
    with no_descriptor_left():
        answer = await desk.ask(SEND_V2, message(topic="New"), b"x")
        assert (answer.code, "disk" in (answer.remark or "")) == (1, False)
        assert (answer.remark or "").startswith("the new topic could not be saved: Too many open files: this process")
    assert (await desk.ask(SEND_V2, message(topic="New"), b"x")).code == 0


async def test_no_room_on_the_disk(prepared: Prepared) -> None:
    def full(desk: Desk) -> None:
        desk.config.store.disk_space_warning_level_ratio = 0.0

    desk = await prepared(full)
    desk.topic("T")
    answer = await desk.ask(SEND_V2, message(), b"x")
    assert answer.code == 14 and answer.remark is not None
    assert answer.remark.startswith(
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full [CL: "
    )
    assert answer.fields["TRACE_ON"] == "true"


async def test_a_slave_takes_nothing(prepared: Prepared) -> None:
    def slave(desk: Desk) -> None:
        desk.config.store.broker_role = type(desk.config.store.broker_role).SLAVE
        desk.config.broker_id = 1

    desk = await prepared(slave)
    desk.topic("T")
    assert (await desk.ask(SEND_V2, message(), b"x")).code == 14
    assert (await desk.ask(BATCH, message(m="true", i=""), encode_batch([BatchEntry(0, b"x", b"")]))).code == 14


async def test_a_slave_makes_no_topic_for_what_it_does_not_store(prepared: Prepared) -> None:
    """As a broker that follows in a group: its master would not have the topic."""

    def slave(desk: Desk) -> None:
        desk.config.store.broker_role = type(desk.config.store.broker_role).SLAVE
        desk.config.broker_id = 1

    desk = await prepared(slave)
    desk.broker.groups.put(SubscriptionGroupConfig(group_name="g"))
    before = set(desk.broker.topics.wrapper().topic_config_table)
    for name in ("New", "%RETRY%g"):
        assert (await desk.ask(SEND_V2, message(b=name), b"x")).code == 14
    back = await desk.ask(36, {"group": "g", "offset": 0, "delayLevel": 0, "originTopic": "T"})
    assert (back.code, back.remark) == (1, "SERVICE_NOT_AVAILABLE")
    assert set(desk.broker.topics.wrapper().topic_config_table) == before


async def test_a_missing_field_is_named(desk: Desk) -> None:
    fields = message()
    del fields["e"]
    answer = await desk.ask(SEND_V2, fields, b"x")
    assert answer.code == 1 and answer.remark is not None and "<e>" in answer.remark


# ---------------------------------------------------------------------- traces


async def test_traces_of_messages_have_a_topic_like_any_other(prepared: Prepared) -> None:
    def traced(desk: Desk) -> None:
        desk.config.trace_topic_enable = True
        desk.config.auto_create_topic_enable = False

    desk = await prepared(traced)
    answer = await desk.ask(SEND_V2, message("RMQ_SYS_TRACE_TOPIC", i="KEYS\x01AC11 k1"), b"Pub\x01...\x02")

    assert (answer.code, answer.fields["queueOffset"]) == (0, "0")
    assert desk.records("RMQ_SYS_TRACE_TOPIC")[0].body == b"Pub\x01...\x02"
    found = desk.broker.store.query("RMQ_SYS_TRACE_TOPIC", "AC11", 32, 0, 1 << 62)
    assert len(found.records) == 1


async def test_without_traces_their_topic_is_not_there(prepared: Prepared) -> None:
    def bare(desk: Desk) -> None:
        desk.config.auto_create_topic_enable = False

    desk = await prepared(bare)

    assert (await desk.ask(SEND_V2, message("RMQ_SYS_TRACE_TOPIC"), b"x")).code == 17


# ---------------------------------------------------------------------- topics that come by sending


async def test_a_first_message_makes_its_topic(desk: Desk) -> None:
    before = desk.broker.topics.version
    assert (await desk.ask(SEND_V2, message(topic="New", queue_id=3), b"x")).code == 0
    assert desk.broker.topics.get("New") == TopicConfig(topic_name="New", read_queue_nums=4, write_queue_nums=4)
    assert desk.broker.topics.version.counter == before.counter + 1
    text = (desk.folder / "store" / "config" / "topics.json").read_text()
    assert '"topicName":"New"' in text  # on disk before it was answered


@pytest.mark.parametrize(("wish", "got"), [(4, 4), (100, 8), (0, 0), (-3, 0)])
async def test_a_new_topic_gets_the_queues_that_are_wished_and_allowed(desk: Desk, wish: int, got: int) -> None:
    await desk.ask(SEND_V2, message(topic="New", queue_id=0, d=wish), b"x")
    config = desk.broker.topics.get("New")
    assert config is not None and config.write_queue_nums == got


async def test_without_leave_no_topic_is_made(prepared: Prepared) -> None:
    def strict(desk: Desk) -> None:
        desk.config.auto_create_topic_enable = False

    desk = await prepared(strict)
    answer = await desk.ask(SEND_V2, message(topic="New"), b"x")
    assert answer.code == 17
    assert answer.remark == (
        "topic[New] not exist, apply first please!\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    )
    assert (await desk.ask(SEND_V2, message(topic="New", c="broker-a"), b"x")).code == 0  # its name is a template


async def test_a_template_that_hands_nothing_on(desk: Desk) -> None:
    desk.topic("Plain")
    assert (await desk.ask(SEND_V2, message(topic="New", c="Plain"), b"x")).code == 17


async def test_unit_mode_marks_the_topic(desk: Desk) -> None:
    await desk.ask(SEND_V2, message(topic="New", k="true"), b"x")
    assert desk.broker.topics.table["New"].topic_sys_flag == 1


# ---------------------------------------------------------------------- retry topics and dead letters


async def test_a_message_comes_back_through_the_retry_topic(desk: Desk) -> None:
    answer = await desk.ask(SEND_V2, message(topic="%RETRY%g", j=15, c="", l=16), b"again")
    assert (answer.code, answer.fields["queueOffset"]) == (0, "0")
    config = desk.broker.topics.table["%RETRY%g"]
    assert (config.read_queue_nums, config.perm) == (1, 6)
    assert desk.records("%RETRY%g")[0].reconsume_times == 15


@pytest.mark.parametrize(
    ("times", "most", "version", "dead"),
    [
        (16, None, 407, True),
        (15, None, 407, False),
        (3, 3, 407, True),
        (16, 20, 407, False),
        (16, 20, 120, True),  # clients before V3_4_9 have no say
    ],
)
async def test_what_was_tried_often_enough_is_dead(
    desk: Desk, times: int, most: int | None, version: int, dead: bool
) -> None:
    peer = await desk.peer(version=version)
    fields = message(topic="%RETRY%g", j=times, **({} if most is None else {"l": most}))
    assert (await peer.ask(SEND_V2, fields, b"x")).code == 0
    assert ("%DLQ%g" in desk.broker.topics) is dead
    assert desk.broker.store.figures().puts == 1
    assert desk.records("%DLQ%g" if dead else "%RETRY%g")[0].body == b"x"


async def test_a_group_without_leave_has_no_retry_topic_to_send_to(prepared: Prepared) -> None:
    def strict(desk: Desk) -> None:
        desk.config.auto_create_subscription_group = False

    desk = await prepared(strict)
    answer = await desk.ask(SEND_V2, message(topic="%RETRY%g"), b"x")
    assert answer.code == 26 and answer.remark is not None
    assert answer.remark.startswith("subscription group not exist, g ")
    desk.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=1))
    assert (await desk.ask(SEND_V2, message(topic="%RETRY%g", j=1), b"x")).code == 0
    assert "%DLQ%g" in desk.broker.topics


# ---------------------------------------------------------------------- batches


async def test_a_batch_is_stored_message_by_message(desk: Desk) -> None:
    desk.topic("T", queues=2)
    entries = [BatchEntry(n, b"body %d" % n, b"UNIQ_KEY\x01%d\x02WAIT\x01true" % n) for n in range(3)]
    answer = await desk.ask(BATCH, message(queue_id=1, m="true", i=""), encode_batch(entries))
    assert (answer.code, answer.fields["queueOffset"], answer.fields["queueId"]) == (0, "0", "1")
    records = desk.records(queue_id=1)
    assert answer.fields["msgId"] == ",".join(record.offset_message_id for record in records)
    assert [(record.flag, record.body) for record in records] == [(n, b"body %d" % n) for n in range(3)]
    assert records[1].properties_text == b"UNIQ_KEY\x011\x02WAIT\x01true\x02CLUSTER\x01Lab"
    assert (await desk.ask(SEND_V2, message(queue_id=1), b"x")).fields["queueOffset"] == "3"


async def test_the_flag_in_the_header_makes_a_batch_of_any_send(desk: Desk) -> None:
    desk.topic("T")
    body = encode_batch([BatchEntry(0, b"a", b""), BatchEntry(0, b"b", b"")])
    for code in (SEND_V2, BATCH):
        assert "," in (await desk.ask(code, message(m="true", i=""), body)).fields["msgId"]
    long = {LONG[name]: value for name, value in message(m="true", i="").items()}
    assert "," in (await desk.ask(SEND, long, body)).fields["msgId"]


@pytest.mark.parametrize("body", [b"", b"\0\0\0\x05hello", bytes(64)])
async def test_a_batch_that_is_none(desk: Desk, body: bytes) -> None:
    desk.topic("T")
    assert (await desk.ask(BATCH, message(m="true", i=""), body)).code == 13


# ---------------------------------------------------------------------- waiting for the disk


def sync(desk: Desk) -> None:
    desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH


def impatient(desk: Desk) -> None:
    sync(desk)
    desk.config.store.sync_flush_timeout = 500


async def test_under_sync_flush_the_answer_comes_after_the_disk(prepared: Prepared) -> None:
    desk = await prepared(sync)
    desk.topic("T")
    answers = await asyncio.gather(*(desk.ask(SEND_V2, message(), b"x") for _ in range(20)))
    figures = desk.broker.store.figures()
    assert {answer.code for answer in answers} == {0}
    assert figures.flushed_offset == figures.max_offset and figures.flushes > 0
    assert desk.broker.waiting_sends == 0
    batch = encode_batch([BatchEntry(0, b"a", b"")])
    assert (await desk.ask(BATCH, message(m="true", i=""), batch)).code == 0
    assert desk.broker.store.figures().flush_behind_bytes == 0


async def test_who_does_not_wait_is_answered_at_once(prepared: Prepared) -> None:
    desk = await prepared(sync)
    desk.topic("T")
    await desk.ask(SEND_V2, message(), b"the topic is on disk")
    desk.disk.hold()
    assert (await desk.ask(SEND_V2, message(i="WAIT\x01false"), b"x")).code == 0


async def test_a_message_whose_new_topic_is_not_on_disk_is_not_acknowledged(desk: Desk) -> None:
    in_the_way = desk.folder / "store/config/topics.json.tmp"
    in_the_way.mkdir(parents=True)
    for code, topic, body in ((SEND_V2, "New", b"x"), (BATCH, "Newer", encode_batch([BatchEntry(0, b"x", b"")]))):
        answer = await desk.ask(code, message(topic, m="true" if code == BATCH else "false", i=""), body)
        assert (answer.code, answer.fields["TRACE_ON"]) == (1, "true")
        assert answer.remark == "the new topic could not be saved: Is a directory; see to the broker's disk"
    in_the_way.rmdir()
    assert (await desk.ask(SEND_V2, message("New"), b"again")).code == 0
    saved = json.loads((desk.folder / "store/config/topics.json").read_bytes())["topicConfigTable"]
    assert {"New", "Newer"} <= saved.keys()


async def test_a_disk_that_is_too_slow(prepared: Prepared) -> None:
    desk = await prepared(impatient)
    desk.topic("T")
    await desk.ask(SEND_V2, message(), b"the topic is on disk")
    desk.disk.hold()
    answer = await desk.ask(SEND_V2, message(), b"x")
    assert (answer.code, answer.fields["queueOffset"]) == (10, "1")  # stored, but perhaps not for long


async def test_after_a_failed_flush_nothing_is_acknowledged(prepared: Prepared) -> None:
    desk = await prepared(sync)
    desk.topic("T")
    await desk.ask(SEND_V2, message(), b"x")
    desk.disk.broken = True
    answer = await desk.ask(SEND_V2, message(), b"lost")
    assert (answer.code, set(answer.fields)) == (14, {"MSG_REGION", "TRACE_ON"})
    desk.disk.broken = False
    assert (await desk.ask(SEND_V2, message(), b"x")).code == 14  # the disk lost what it had been given
    desk.config.store.flush_disk_type = FlushDiskType.ASYNC_FLUSH


# ---------------------------------------------------------------------- overload


async def test_a_loop_that_does_not_come_round_is_too_busy(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message(), b"x")
    desk.lag(1)
    assert (await desk.ask(SEND_V2, message(), b"x")).code == 0  # one long round is a hiccup
    desk.lag(3)
    answer = await desk.ask(SEND_V2, message(), b"x")
    assert answer.code == 2 and answer.remark is not None
    assert answer.remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 9"
    )
    assert answer.remark.endswith("ms, size of queue: 0")
    await desk.ask(25, {}, b"brokerFastFailureEnable=false\n")
    assert (await desk.ask(SEND_V2, message(), b"x")).code == 0


@pytest.mark.parametrize("fast_failure", [True, False])
async def test_too_many_wait_for_the_disk(prepared: Prepared, fast_failure: bool) -> None:
    def narrow(desk: Desk) -> None:
        sync(desk)
        desk.config.send_thread_pool_queue_capacity = 3
        desk.config.broker_fast_failure_enable = fast_failure

    desk = await prepared(narrow)
    desk.topic("T")
    await desk.ask(SEND_V2, message(), b"the topic is on disk")
    with desk.disk.held():
        *waiting, last = [asyncio.create_task(desk.ask(SEND_V2, message(), b"x")) for _ in range(4)]
        refused = await last
        assert (refused.code, refused.remark) == (
            2,
            "[OVERLOAD]system busy, start flow control for a while",
        )
    assert [answer.code for answer in await asyncio.gather(*waiting)] == [0, 0, 0]


async def test_sends_that_wait_for_the_disk_keep_no_bodies(prepared: Prepared) -> None:
    """What lives is counted: an allocator may keep 20 MB of what bodies on their way took."""
    desk = await prepared(sync)
    desk.topic("T")
    await desk.ask(SEND_V2, message(), b"the topic is on disk")
    body = bytes(400_000)
    with desk.disk.held():
        tracemalloc.start()
        try:
            waiting = [asyncio.create_task(desk.ask(SEND_V2, message(), body)) for _ in range(100)]
            await eventually(lambda: desk.broker.waiting_sends == 100)
            assert tracemalloc.get_traced_memory()[0] <= 4_000_000
        finally:
            tracemalloc.stop()
    assert {answer.code for answer in await asyncio.gather(*waiting)} == {0}
