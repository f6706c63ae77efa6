"""Numbers from outside have bounds: what is larger is refused with one sentence, and others are served on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eruca.broker.handlers.clients import (
    MOST_GROUPS_OF_ONE,
    MOST_SUBSCRIPTIONS,
    MOST_TAGS,
    MOST_TAGS_AT_ONCE,
)
from eruca.broker.state.state_file import StateUnreadable
from eruca.broker.state.topics import Topics
from eruca.protocol.bodies import (
    LONGEST_HEARTBEAT,
    ConsumerData,
    DataVersion,
    HeartbeatData,
    LockBatchRequest,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from eruca.protocol.errors import Refused
from eruca.protocol.queues import MessageQueue
from tests.support.desk import Desk
from tests.support.load import pull, send
from tests.support.peers import Answered

HUGE = 2**31 - 1
CREATE, GROUP, STATS, CHANGE, MEMBERS, LOCK = 17, 200, 202, 25, 38, 41


async def beat(desk: Desk, *groups: str, producers: tuple[str, ...] = (), client_id: str = "c") -> Answered:
    """The heartbeat of a new client in these groups."""
    peer = await desk.peer()
    body = HeartbeatData(
        client_id=client_id,
        consumer_data_set=[ConsumerData(group_name=group) for group in groups],
        producer_data_set=[ProducerData(group_name=group) for group in producers],
    )
    return await peer.ask(34, {}, body.encode())


# ---------------------------------------------------------------------- numbers of queues


@pytest.mark.parametrize("count", [-1, 65_537, HUGE])
async def test_a_group_cannot_ask_for_more_retry_queues_than_a_topic_may_have(desk: Desk, count: int) -> None:
    """A typo in ``mqadmin updateSubGroup -q`` once gave the retry topic 2^31 queues, and 202 never ended."""
    answer = await desk.ask(GROUP, body=SubscriptionGroupConfig(group_name="g", retry_queue_nums=count).encode())
    assert (answer.code, answer.remark) == (1, f"retryQueueNums = [{count}] is not between 0 and 65536")
    assert desk.broker.groups.get("g") is None
    await desk.consumer("g", "T")
    assert desk.broker.topics.table["%RETRY%g"].write_queue_nums == 1
    assert (await desk.ask(STATS, {"topic": "%RETRY%g"})).code == 0
    assert (await send(desk.operator, 0, b"x")).code == 0


async def test_a_group_may_have_as_many_retry_queues_as_a_topic(desk: Desk) -> None:
    body = SubscriptionGroupConfig(group_name="g", retry_queue_nums=65_536).encode()
    assert (await desk.ask(GROUP, body=body)).code == 0


async def test_the_queues_of_new_topics_have_a_bound(desk: Desk) -> None:
    answer = await desk.ask(CHANGE, body=b"defaultTopicQueueNums=65537")
    assert (answer.code, answer.remark) == (
        1,
        "defaultTopicQueueNums: '65537' is not allowed; write a whole number from 1 to 65536",
    )
    assert (await desk.ask(CHANGE, body=b"defaultTopicQueueNums=65536")).code == 0


@pytest.mark.parametrize(
    ("file", "table", "name", "entry", "fault"),
    [
        (
            "topics.json",
            "topicConfigTable",
            "T",
            {"topicName": "T", "readQueueNums": HUGE, "writeQueueNums": 4},
            "the topic T: readQueueNums = [2147483647] is not between 0 and 65536",
        ),
        (
            "subscriptionGroup.json",
            "subscriptionGroupTable",
            "g",
            {"groupName": "g", "retryQueueNums": -1},
            "the group g: retryQueueNums = [-1] is not between 0 and 65536",
        ),
    ],
)
@pytest.mark.parametrize("with_copy", [False, True])
async def test_a_file_with_such_a_number_stops_the_start_and_is_not_replaced(
    tmp_path: Path, file: str, table: str, name: str, entry: dict[str, object], fault: str, with_copy: bool
) -> None:
    """The copy lacks what was acknowledged since, so it does not stand in."""
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    content = {"dataVersion": {"counter": 1, "timestamp": 1}, table: {name: entry}}
    (folder / file).write_text(json.dumps(content))
    if with_copy:
        (folder / f"{file}.bak").write_text(json.dumps({**content, table: {}}))
    desk = Desk(tmp_path)
    with pytest.raises(StateUnreadable) as refusal:
        await desk.start()
    assert str(refusal.value) == f"{folder / file}: {fault}. Correct it in the file, and start again."
    assert json.loads((folder / file).read_text()) == content


# ---------------------------------------------------------------------- numbers of topics and groups

FULL = "this broker has {} {}, and {} allows {}; delete unused {}, or raise {}"


def create(topic: str) -> dict[str, object]:
    return {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}


async def full(desk: Desk, *, topics: bool = False, groups: bool = False) -> tuple[str, str]:
    """Allow as many topics or groups as there are; what a refusal says of each."""
    topic_count, group_count = len(desk.broker.topics), len(desk.broker.groups.table)
    if topics:
        assert (await desk.ask(CHANGE, body=f"maxTopicNum={topic_count}".encode())).code == 0
    if groups:
        assert (await desk.ask(CHANGE, body=f"maxSubscriptionGroupNum={group_count}".encode())).code == 0
    of_topics, of_groups = ("maxTopicNum", "topics"), ("maxSubscriptionGroupNum", "groups")
    return (
        FULL.format(topic_count, of_topics[1], of_topics[0], topic_count, of_topics[1], of_topics[0]),
        FULL.format(group_count, of_groups[1], of_groups[0], group_count, of_groups[1], of_groups[0]),
    )


async def test_a_topic_too_many_is_refused_however_it_comes(desk: Desk) -> None:
    desk.topic("T")
    await desk.consumer("g", "T")
    fault, _ = await full(desk, topics=True)
    answers = {
        "U": await desk.ask(CREATE, create("U")),
        "V": await send(desk.operator, 0, b"x", topic="V"),
        "%RETRY%h": await beat(desk, "h"),
    }
    for topic, answer in answers.items():
        assert (answer.code, answer.remark) == (1, f"the topic {topic} is not made: {fault}")
    assert not {"U", "V", "%RETRY%h"} & set(desk.broker.topics)
    assert desk.broker.groups.get("h") is None and desk.broker.clients.consumer("h") is None


async def test_a_topic_that_would_not_come_by_itself_is_unknown_as_ever(desk: Desk) -> None:
    await desk.ask(CHANGE, body=b"autoCreateTopicEnable=false")
    await full(desk, topics=True)
    answer = await send(desk.operator, 0, b"x", topic="V")
    assert (answer.code, (answer.remark or "")[:18]) == (17, "topic[V] not exist")


async def test_what_is_there_stays_usable(desk: Desk) -> None:
    """Sends, changes, heartbeats, what the broker needs for itself, and the dead letters of a group that is there."""
    desk.topic("T", 4)
    await desk.ask(GROUP, body=SubscriptionGroupConfig(group_name="g", retry_max_times=0).encode())
    put = desk.store("T", 0, 0)
    await full(desk, topics=True, groups=True)
    assert (await desk.ask(CREATE, {**create("T"), "perm": 4})).code == 0
    assert (await desk.ask(CREATE, create("T"))).code == 0
    assert (await desk.ask(GROUP, body=SubscriptionGroupConfig(group_name="g", retry_max_times=0).encode())).code == 0
    assert (await send(desk.operator, 0, b"x", topic="T")).code == 0
    half = {"a": "p", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 4, "g": 1, "h": 0}
    half |= {"i": "TRAN_MSG\x01true\x02PGROUP\x01p\x02"}
    assert (await desk.ask(310, half, b"x")).code == 0
    assert (await beat(desk, "g")).code == 0
    back = {"offset": put.physical_offset, "group": "g", "delayLevel": 0, "originTopic": "T"}
    assert (await desk.ask(36, back)).code == 0
    assert {"%RETRY%g", "%DLQ%g", "RMQ_SYS_TRANS_HALF_TOPIC"} <= set(desk.broker.topics)
    await desk.restart()
    assert (await send(desk.operator, 0, b"x", topic="T")).code == 0


async def test_a_group_too_many_is_refused_however_it_comes(desk: Desk) -> None:
    desk.topic("T")
    await desk.consumer("g", "T")
    _, fault = await full(desk, groups=True)
    topics = set(desk.broker.topics)
    answers = [
        await desk.ask(GROUP, body=SubscriptionGroupConfig(group_name="h").encode()),
        await beat(desk, "h"),
        await pull(desk.operator, 0, 0, topic="T", group="h"),
        await desk.ask(36, {"offset": 0, "group": "h", "delayLevel": 0}),
        await send(desk.operator, 0, b"x", topic="%RETRY%h"),
    ]
    for answer in answers:
        assert (answer.code, answer.remark) == (1, f"the group h is not made: {fault}")
    assert desk.broker.groups.get("h") is None and desk.broker.clients.consumer("h") is None
    assert set(desk.broker.topics) == topics
    await desk.ask(207, {"groupName": "g"})
    assert (await beat(desk, "h")).code == 0


async def test_of_a_client_with_one_group_too_many_the_others_stay_online(desk: Desk) -> None:
    await desk.consumer("g", "T")
    _, fault = await full(desk, groups=True)
    answer = await beat(desk, "h", "g", producers=("p",))
    assert (answer.code, answer.remark) == (1, f"the group h is not made: {fault}")
    assert len(desk.broker.clients.consumers["g"].members) == 2 and "p" in desk.broker.clients.producers


async def test_a_bound_of_0_is_none(desk: Desk) -> None:
    assert (await desk.ask(CHANGE, body=b"maxTopicNum=0\nmaxSubscriptionGroupNum=0")).code == 0
    assert (await desk.ask(CREATE, create("U"))).code == 0
    assert (await beat(desk, "h")).code == 0


async def test_topics_that_no_registration_could_name_are_not_made(tmp_path: Path) -> None:
    """Whatever maxTopicNum says: a frame has 16 MiB."""
    table = Topics(tmp_path / "topics.json", lambda: 0)
    every = [TopicConfig(topic_name=f"{number:0127d}") for number in range(82_400)]
    table.take_over(
        TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=1, timestamp=1),
            topic_config_table={each.topic_name: each for each in every},
        )
    )
    with pytest.raises(
        Refused, match="the topic T is not made: the 82400 topics of this broker fill what a nameserver"
    ):
        table.need_room("T")
    table.need_room(every[0].topic_name)
    for known in every[:100]:
        table.remove(known.topic_name)
    table.need_room("T")


# ---------------------------------------------------------------------- what a client says of itself

LONG = "x" * (1 << 20)
TOO_LONG = "the client id has {} characters, at most 255 are allowed; shorten the instance name or the unit name"


async def test_a_client_id_has_a_bound(desk: Desk) -> None:
    """Two heartbeats with ids of 8 MB once ended a group: the list of its members was too long for a frame."""
    await desk.consumer("g", "T", client_id="good")
    for length in (256, len(LONG)):
        answer = await beat(desk, "g", producers=("p",), client_id="x" * length)
        assert (answer.code, answer.remark) == (1, TOO_LONG.format(length))
        body = LockBatchRequest(client_id="x" * length, consumer_group="g", mq_set=[MessageQueue("T", "b", 0)])
        answer = await desk.ask(LOCK, body=body.encode())
        assert (answer.code, answer.remark) == (1, TOO_LONG.format(length))
    assert json.loads((await desk.ask(MEMBERS, {"consumerGroup": "g"})).body) == {"consumerIdList": ["good"]}
    assert not desk.broker.clients.producers
    assert (await beat(desk, "g", client_id="x" * 255)).code == 0


@pytest.mark.parametrize(
    ("language", "version", "kept"),
    [
        ("JAVA", 407, ("JAVA", 407)),
        ("RUST", 32_767, ("RUST", 32_767)),
        ("KLINGON", -1, ("OTHER", 0)),
        ("x" * (1 << 20), 32_768, ("OTHER", 32_767)),
        ('JAVA","code":17,"remark":"injected', 10**12, ("OTHER", 32_767)),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_language_and_version_of_a_client_are_known_ones(
    desk: Desk, language: str, version: int, kept: tuple[str, int]
) -> None:
    peer = await desk.consumer("g", "T", peer=await desk.peer(language, version))
    body = HeartbeatData(client_id="p", producer_data_set=[ProducerData(group_name="p")])
    assert (await peer.ask(34, {}, body.encode())).code == 0
    members = (await desk.ask(203, {"consumerGroup": "g"}), await desk.ask(204, {"producerGroup": "p"}))
    for answer in members:
        [shown] = json.loads(answer.body)["connectionSet"]
        assert (shown["language"], shown["version"]) == kept


async def test_a_heartbeat_has_a_bounded_number_of_subscriptions(desk: Desk) -> None:
    """Also where they name one topic only: each of them costs what one costs."""
    each = SubscriptionData(topic="T", sub_string="*")
    for count, code in ((MOST_SUBSCRIPTIONS, 0), (MOST_SUBSCRIPTIONS + 1, 1)):
        groups = [
            ConsumerData(group_name=f"g{number}", subscription_data_set=[each] * (count // 2)) for number in (1, 2)
        ]
        groups[0].subscription_data_set += [each] * (count % 2)
        body = HeartbeatData(client_id="c", consumer_data_set=groups).encode()
        answer = await (await desk.peer()).ask(34, {}, body)
        assert answer.code == code, answer
    assert answer.remark == (
        f"the heartbeat has {count} subscriptions, at most {MOST_SUBSCRIPTIONS} are allowed; send several heartbeats"
    )


@pytest.mark.parametrize("member", ["tags_set", "code_set"])
async def test_a_subscription_has_a_bounded_number_of_tags(desk: Desk, member: str) -> None:
    for count, code in ((MOST_TAGS, 0), (MOST_TAGS + 1, 1)):
        subscription = SubscriptionData(topic="T")
        setattr(subscription, member, set(range(count)) if member == "code_set" else set(map(str, range(count))))
        group = ConsumerData(group_name="tags", subscription_data_set=[subscription])
        data = HeartbeatData(client_id="c", producer_data_set=[], consumer_data_set=[group])
        answer = await desk.ask(34, {}, data.encode())
        assert (answer.code, "the subscription to T has more than 10000 tags" in str(answer.remark)) == (code, code > 0)


async def test_a_heartbeat_has_a_bounded_number_of_tags_in_all(desk: Desk) -> None:
    for more, code in ((0, 0), (1, 1)):
        tags = [set(map(str, range(count))) for count in (MOST_TAGS, MOST_TAGS - 10, 10 + more)]
        topics = [SubscriptionData(topic=f"T{number}", tags_set=some) for number, some in enumerate(tags)]
        groups = [ConsumerData(group_name="tags", subscription_data_set=topics)]
        answer = await desk.ask(34, {}, HeartbeatData(client_id="c", consumer_data_set=groups).encode())
        assert answer.code == code, answer
    assert f"20001 tags, at most {MOST_TAGS_AT_ONCE} are allowed" in str(answer.remark)


async def test_a_long_heartbeat_is_refused_before_it_is_read(desk: Desk) -> None:
    body = HeartbeatData(client_id="c").encode()
    for length, code in ((LONGEST_HEARTBEAT, 0), (LONGEST_HEARTBEAT + 1, 1)):
        answer = await desk.ask(34, {}, body + b" " * (length - len(body)))
        assert answer.code == code, answer
    assert "it has 2097153 bytes, at most 2097152 are allowed; send several heartbeats" in str(answer.remark)


async def test_a_connection_has_a_bounded_number_of_groups(desk: Desk) -> None:
    """By all of its heartbeats together; those that it is in already may be said again."""
    peer = await desk.peer()

    async def produce(first: int, count: int = 200) -> Answered:
        groups = [ProducerData(group_name=f"p{number}") for number in range(first, first + count)]
        return await peer.ask(34, {}, HeartbeatData(client_id="c", producer_data_set=groups).encode())

    for first in range(0, MOST_GROUPS_OF_ONE, 200):
        assert (await produce(first)).code == 0
    answer = await produce(MOST_GROUPS_OF_ONE, 1)
    assert answer.code == 1 and "the connection is in 2001 groups with this heartbeat" in str(answer.remark)
    assert (await produce(0)).code == 0 and len(desk.broker.clients.producers) == MOST_GROUPS_OF_ONE
    assert (await (await desk.peer()).ask(35, {"clientID": "c", "producerGroup": "p0"})).code == 0


@pytest.mark.parametrize("length", [64 << 10, (64 << 10) + 1])
async def test_a_change_of_settings_is_bounded(desk: Desk, length: int) -> None:
    body = b"brokerPermission=4\n"
    answer = await desk.ask(25, {}, body + b"#" * (length - len(body)))
    fits = length <= 64 << 10
    assert (answer.code, desk.broker.config.broker_permission) == ((0, 4) if fits else (1, 6))
    assert fits or answer.remark == "a change of settings of 65537 bytes is too long: at most 65536 are taken"


async def test_offsets_of_ever_new_names_have_a_bound(desk: Desk) -> None:
    desk.broker.offsets.most = 3

    async def commit(group: str, topic: str, queue_id: int) -> Answered:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": 7}
        return await desk.ask(15, fields)

    for place in (("g", "T", 0), ("g", "nowhere", 1), ("nobody", "T", 2_000_000)):
        assert (await commit(*place)).code == 0
    answer = await commit("h", "T", 0)
    assert answer.code == 1 and "3 offsets are committed at this broker, 3 may be" in str(answer.remark)
    assert (await commit("g", "T", 0)).code == 0, "those that are there go on"
    desk.broker.offsets.remove_group("nobody")
    assert (await commit("h", "T", 0)).code == 0
    assert desk.broker.offsets.count == 3


async def test_a_heartbeat_names_at_most_two_hundred_groups(desk: Desk) -> None:
    few, many = tuple(f"p{number}" for number in range(100)), tuple(f"p{number}" for number in range(101))
    groups = [f"g{number}" for number in range(100)]
    answer = await beat(desk, *groups, producers=many)
    assert (answer.code, answer.remark) == (
        1,
        "the heartbeat names 201 groups, at most 200 are allowed; send several heartbeats",
    )
    assert not desk.broker.clients.producers and desk.broker.groups.get("g0") is None
    assert (await beat(desk, *groups, producers=few)).code == 0
    assert len(desk.broker.clients.producers) == 100


@pytest.mark.parametrize("name", ["", " ", "../x", "a\0b", "g" * 256, "größe"])
async def test_a_heartbeat_with_a_name_that_no_group_may_have_is_refused(desk: Desk, name: str) -> None:
    for answer in (await beat(desk, name), await beat(desk, producers=(name,))):
        assert answer.code == 1 and (answer.remark or "").startswith("the specified group")
    assert name not in desk.broker.clients.consumers and name not in desk.broker.clients.producers


@pytest.mark.parametrize("topic", ["", "../x", "x" * 128])
async def test_a_heartbeat_with_a_name_that_no_topic_may_have_is_refused(desk: Desk, topic: str) -> None:
    peer = await desk.peer()
    consumer = ConsumerData(group_name="g", subscription_data_set=[SubscriptionData(topic=topic)])
    body = HeartbeatData(client_id="c", consumer_data_set=[consumer])
    answer = await peer.ask(34, {}, body.encode())
    assert answer.code == 1 and (answer.remark or "").startswith("The specified topic")
    assert desk.broker.clients.consumer("g") is None


async def test_a_heartbeat_with_a_word_that_nobody_knows_for_its_length_is_refused(desk: Desk) -> None:
    peer = await desk.peer()
    for data in (
        ConsumerData(group_name="g", consume_type=LONG),
        ConsumerData(group_name="g", message_model="x" * 65),
        ConsumerData(group_name="g", consume_from_where="x" * 65),
        ConsumerData(group_name="g", subscription_data_set=[SubscriptionData(topic="T", expression_type="x" * 65)]),
    ):
        answer = await peer.ask(34, {}, HeartbeatData(client_id="c", consumer_data_set=[data]).encode())
        assert answer.code == 1 and "with more than 64 characters, which nobody knows" in (answer.remark or "")
    data = ConsumerData(group_name="g", consume_type="x" * 64)
    assert (await peer.ask(34, {}, HeartbeatData(client_id="c", consumer_data_set=[data]).encode())).code == 0


async def test_of_a_client_with_one_illegal_group_the_others_are_online(desk: Desk) -> None:
    answer = await beat(desk, "g", "../x", "h", producers=("a b", "p"))
    assert answer.code == 1 and (answer.remark or "").startswith("the specified group[../x] contains illegal")
    assert set(desk.broker.clients.consumers) == {"g", "h"} and set(desk.broker.clients.producers) == {"p"}


async def test_a_group_whose_retry_topic_has_too_long_a_name_is_online(desk: Desk) -> None:
    """As at Apache: such a group has no retry topic, and its clients subscribe to it all the same."""
    group = "g" * 255
    await desk.consumer(group, "T", f"%RETRY%{group}")
    assert json.loads((await desk.ask(MEMBERS, {"consumerGroup": group})).body) == {"consumerIdList": ["c"]}
