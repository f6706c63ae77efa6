"""Bodies byte for byte: each golden file was written by the Java class of RocketMQ 4.9.7
(Capture.java); the same value must give the same bytes and be read back from them."""

from pathlib import Path

import pytest

from eruca.protocol import fastjson
from eruca.protocol.bodies import (
    AclConfig,
    BloomFilterData,
    Body,
    BrokerData,
    BrokerStatsData,
    BrokerStatsItem,
    CheckClientRequestBody,
    ClusterInfo,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumeQueueData,
    ConsumerConnection,
    ConsumerData,
    ConsumeResult,
    ConsumerFilterData,
    ConsumerFilters,
    ConsumerIdList,
    ConsumerOffsets,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeStatus,
    ConsumeTimeSpans,
    CorrectionOffsets,
    DataVersion,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    GroupList,
    HeartbeatData,
    KVTable,
    LocalOffsets,
    LockBatchAnswer,
    LockBatchRequest,
    OffsetWrapper,
    PlainAccessConfig,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerData,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueueData,
    QueueTimeSpan,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilters,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
    decode_file_versions,
    encode_file_versions,
)
from eruca.protocol.fastjson import Style
from eruca.protocol.queues import MessageQueue

GOLDEN = Path(__file__).parent.parent / "golden" / "fastjson"

AT = 1700000000123
AT_TEXT = "2023-11-14#22:13:20:123"
Q0 = MessageQueue("T1", "lab-a", 0)
Q1 = MessageQueue("T1", "lab-a", 1)
BROKER = BrokerData(
    cluster="Größe/1",
    broker_name="lab-a",
    broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
)
ROUTE = TopicRouteData(
    broker_datas=[BROKER],
    queue_datas=[QueueData(broker_name="lab-a", perm=6, read_queue_nums=4, write_queue_nums=8, topic_sys_flag=1)],
)
TOPIC = TopicConfig(topic_name="T1", read_queue_nums=8, write_queue_nums=4, perm=7)
TOPICS = TopicConfigSerializeWrapper(
    data_version=DataVersion(counter=3, timestamp=AT), topic_config_table={"T1": TOPIC}
)
GROUP = SubscriptionGroupConfig(group_name="G1")
GROUPS = SubscriptionGroupWrapper(
    data_version=DataVersion(counter=3, timestamp=AT), subscription_group_table={"G1": GROUP}
)
TAG_A = SubscriptionData(topic="T1", sub_string="TagA", sub_version=AT, tags_set={"TagA"}, code_set={2598919})
MEMBER = Connection(client_addr="10.0.0.1:5", client_id="c1", language="GO", version=317)
OFFSETS = ConsumerOffsets(offset_table={"T1@G1": {0: 5, 1: 6}, "T2@G1": {}})
LEVELS = DelayOffsetSerializeWrapper(offset_table={3: 3, 4: 7})
STATS = ConsumeStats(
    consume_tps=33.5,
    offset_table={Q0: OffsetWrapper(broker_offset=10, consumer_offset=3, last_timestamp=AT)},
)
STATS_ITEM = BrokerStatsItem(sum=12, tps=0.2, avgpt=1.0e-4)
UNIT = ConsumeQueueData(physic_size=176, tags_code=2598919)
FILTERS = ConsumerFilters(
    filter_data_by_topic={
        "T": TopicFilters(
            topic="T",
            group_filter_data={
                "g": ConsumerFilterData(
                    consumer_group="g",
                    topic="T",
                    expression="a > 5",
                    expression_type="SQL92",
                    born_time=AT,
                    client_version=AT,
                    bloom_filter_data=BloomFilterData(bit_num=216, bit_pos=(162, 52, 132)),
                )
            },
        )
    }
)

BODIES: list[tuple[str, Body, Style]] = [
    ("route.json", ROUTE, Style.COMPACT),
    ("route.standard.json", ROUTE, Style.STANDARD),
    (
        "route.ordered.json",
        TopicRouteData(
            broker_datas=ROUTE.broker_datas,
            queue_datas=ROUTE.queue_datas,
            order_topic_conf="lab-a:4",
        ),
        Style.COMPACT,
    ),
    (
        "cluster.json",
        ClusterInfo(broker_addr_table={"lab-a": BROKER}, cluster_addr_table={"LabCluster": ["lab-a"]}),
        Style.COMPACT,
    ),
    ("topics.json", TOPICS, Style.COMPACT),
    ("topics.pretty.json", TOPICS, Style.PRETTY),
    (
        "register.json",
        RegisterBrokerBody(topic_config_serialize_wrapper=TOPICS),
        Style.COMPACT,
    ),
    ("groups.json", GROUPS, Style.COMPACT),
    ("groups.pretty.json", GROUPS, Style.PRETTY),
    ("topiclist.json", TopicList(topic_list=["T1"]), Style.COMPACT),
    (
        "topiclist.304.json",
        TopicList(topic_list=["T1"], broker_addr="10.0.0.1:10911"),
        Style.COMPACT,
    ),
    ("grouplist.json", GroupList(group_list=["G1"]), Style.COMPACT),
    ("kvtable.json", KVTable(table={"T1": "lab-a:4"}), Style.COMPACT),
    (
        "topicstats.json",
        TopicStatsTable(offset_table={Q0: TopicOffset(max_offset=5, last_update_timestamp=AT)}),
        Style.COMPACT,
    ),
    (
        "heartbeat.json",
        HeartbeatData(
            client_id="10.0.0.1@1",
            consumer_data_set=[
                ConsumerData(
                    group_name="G1",
                    consume_type="CONSUME_PASSIVELY",
                    message_model="CLUSTERING",
                    consume_from_where="CONSUME_FROM_LAST_OFFSET",
                    subscription_data_set=[TAG_A],
                )
            ],
            producer_data_set=[ProducerData(group_name="PG")],
        ),
        Style.COMPACT,
    ),
    (
        "subscription.json",
        SubscriptionData(
            topic="T1",
            sub_string="TagA || TagB",
            sub_version=AT,
            tags_set={"TagA", "TagB"},
            code_set={2598919, 2598920},
        ),
        Style.COMPACT,
    ),
    ("consumerids.json", ConsumerIdList(consumer_id_list=["c1", "c2"]), Style.COMPACT),
    (
        "lock.json",
        LockBatchRequest(client_id="c1", consumer_group="G1", mq_set=[Q1]),
        Style.COMPACT,
    ),
    ("locked.json", LockBatchAnswer(locked=[Q1]), Style.COMPACT),
    (
        "check.json",
        CheckClientRequestBody(client_id="c1", group="G1", subscription_data=TAG_A),
        Style.COMPACT,
    ),
    (
        "consumerconnection.json",
        ConsumerConnection(
            connection_set=[MEMBER],
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_table={"T1": TAG_A},
        ),
        Style.COMPACT,
    ),
    ("producerconnection.json", ProducerConnection(connection_set=[MEMBER]), Style.COMPACT),
    (
        "producers.json",
        ProducerTableInfo(
            data={
                "PG": [
                    ProducerInfo(
                        client_id="c1",
                        remote_ip="/10.0.0.1:5",
                        language="GO",
                        version=317,
                        last_update_timestamp=AT,
                    )
                ]
            }
        ),
        Style.COMPACT,
    ),
    ("consumeroffset.json", OFFSETS, Style.COMPACT),
    ("consumeroffset.pretty.json", OFFSETS, Style.PRETTY),
    ("delayoffset.json", LEVELS, Style.COMPACT),
    ("delayoffset.pretty.json", LEVELS, Style.PRETTY),
    ("delayoffset.empty.pretty.json", DelayOffsetSerializeWrapper(), Style.PRETTY),
    ("localoffsets.pretty.json", LocalOffsets(offset_table={Q0: 5, Q1: 6}), Style.PRETTY),
    ("reset.json", ResetOffsetBody(offset_table={Q0: 5, Q1: 6}), Style.COMPACT),
    (
        "consumerstatus.221.json",
        GetConsumerStatusBody(message_queue_table={Q0: 5}),
        Style.COMPACT,
    ),
    (
        "consumerstatus.223.json",
        GetConsumerStatusBody(consumer_table={"10.0.0.1@1": {Q0: 5}}),
        Style.COMPACT,
    ),
    ("consumestats.json", STATS, Style.COMPACT),
    (
        "consumestatslist.json",
        ConsumeStatsList(
            broker_addr="10.0.0.1:10911",
            total_diff=7,
            consume_stats_list=[{"G1": [STATS]}, {"G2": []}],
        ),
        Style.COMPACT,
    ),
    ("correction.json", CorrectionOffsets(correction_offsets={0: 9}), Style.COMPACT),
    (
        "running.json",
        ConsumerRunningInfo(
            mq_table={
                Q0: ProcessQueueInfo(cached_msg_count=2, cached_msg_size_in_mib=1, locked=True),
                Q1: ProcessQueueInfo(),
            },
            properties={"PROP_CONSUMEORDERLY": "false"},
            status_table={"T1": ConsumeStatus(consume_ok_tps=12345678.9)},
            subscription_set=[TAG_A],
        ),
        Style.COMPACT,
    ),
    (
        "directly.json",
        ConsumeMessageDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS),
        Style.COMPACT,
    ),
    (
        "queuepage.json",
        QueryConsumeQueueResponseBody(max_queue_index=4, queue_data=[UNIT]),
        Style.COMPACT,
    ),
    (
        "queuepage.group.json",
        QueryConsumeQueueResponseBody(
            max_queue_index=4,
            queue_data=[UNIT],
            filter_data="null",
            subscription_data=SubscriptionData(topic="T1", sub_string="*", sub_version=AT),
        ),
        Style.COMPACT,
    ),
    (
        "timespans.json",
        ConsumeTimeSpans(
            consume_time_span_set=[
                QueueTimeSpan(
                    message_queue=Q0,
                    min_time_stamp=AT,
                    min_time_stamp_str=AT_TEXT,
                    max_time_stamp=AT,
                    max_time_stamp_str=AT_TEXT,
                    consume_time_stamp=AT,
                    consume_time_stamp_str=AT_TEXT,
                    delay_time=9,
                )
            ]
        ),
        Style.COMPACT,
    ),
    ("filters.json", FILTERS, Style.COMPACT),
    ("filters.pretty.json", FILTERS, Style.PRETTY),
    (
        "acl.json",
        AclConfig(
            plain_access_configs=[
                PlainAccessConfig(
                    access_key="RocketMQ",
                    secret_key="12345678",
                    default_group_perm="SUB",
                    default_topic_perm="DENY",
                    topic_perms=["T1=PUB|SUB"],
                )
            ]
        ),
        Style.COMPACT,
    ),
]


@pytest.mark.parametrize(("name", "body", "style"), BODIES, ids=[each[0] for each in BODIES])
def test_a_body_has_the_bytes_of_the_java_class(name: str, body: Body, style: Style) -> None:
    golden = (GOLDEN / name).read_bytes()
    assert body.encode(style) == golden
    assert type(body).decode(golden) == body


@pytest.mark.parametrize("body", [each[1] for each in BODIES], ids=[each[0] for each in BODIES])
def test_a_body_made_little_by_little_has_the_same_bytes(body: Body) -> None:
    assert "".join(fastjson.pieces(body)).encode() == body.encode()


@pytest.mark.parametrize("style", list(Style))
@pytest.mark.parametrize("body", [each[1] for each in BODIES], ids=[each[0] for each in BODIES])
def test_a_body_reads_back_from_every_style(body: Body, style: Style) -> None:
    assert type(body).decode(body.encode(style)) == body


def test_every_golden_body_is_covered() -> None:
    elsewhere = {
        "aclversions.json",
        "brokerstats.ref.json",
        "consumerstatus.ref.json",
        "reset.list.json",
    }
    assert {each[0] for each in BODIES} | elsewhere == {path.name for path in GOLDEN.glob("*.json")}


def test_shared_java_objects_are_read_through_their_references() -> None:
    assert BrokerStatsData.decode((GOLDEN / "brokerstats.ref.json").read_bytes()) == (
        BrokerStatsData(stats_minute=STATS_ITEM, stats_hour=STATS_ITEM)
    )
    both = GetConsumerStatusBody.decode((GOLDEN / "consumerstatus.ref.json").read_bytes())
    assert both == GetConsumerStatusBody(consumer_table={"10.0.0.1@1": {Q0: 5}}, message_queue_table={Q0: 5})


def test_a_reset_for_cpp_members_is_a_list() -> None:
    golden = (GOLDEN / "reset.list.json").read_bytes()
    reset = ResetOffsetBody(offset_table={Q0: 5, Q1: 6})
    assert reset.encode_list() == golden
    assert ResetOffsetBody.decode(golden) == reset


def test_versions_of_acl_files() -> None:
    golden = (GOLDEN / "aclversions.json").read_text()
    versions = {"/etc/plain_acl.yml": DataVersion(counter=1, timestamp=AT)}
    assert encode_file_versions(versions) == golden
    assert decode_file_versions(golden) == versions


def test_texts_for_people_are_those_of_java() -> None:
    assert str(TOPIC) == (GOLDEN / "topic.txt").read_text()
    assert str(GROUP) == (GOLDEN / "group.txt").read_text()
    assert str(Q0) == "MessageQueue [topic=T1, brokerName=lab-a, queueId=0]"
