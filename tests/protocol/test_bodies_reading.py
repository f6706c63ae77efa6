"""Bodies as other clients send them, and bodies that are refused."""

import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import bodies
from eruca.protocol.bodies import (
    Body,
    ClusterInfo,
    ConsumerRunningInfo,
    ConsumeStats,
    DataVersion,
    HeartbeatData,
    LockBatchRequest,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    body_crc32,
)
from eruca.protocol.bodies.routes import MAX_INFLATED
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import MessageQueue

GOLDEN = Path(__file__).parent.parent / "golden" / "fastjson"
EVERY_BODY = sorted(
    (each for each in vars(bodies).values() if isinstance(each, type) and issubclass(each, Body)),
    key=lambda each: each.__name__,
)

numbers = st.integers(0, 2**31 - 1)
words = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=8)
topic_configs = st.builds(
    TopicConfig, topic_name=words, read_queue_nums=numbers, write_queue_nums=numbers, perm=numbers
)


class TestHeartbeat:
    def test_lists_may_be_null_or_absent(self) -> None:
        nulls = b'{"clientID":"c","consumerDataSet":null,"producerDataSet":null}'
        assert HeartbeatData.decode(nulls) == HeartbeatData(client_id="c")
        assert HeartbeatData.decode(b'{"clientID":"c"}') == HeartbeatData(client_id="c")

    def test_go_sends_null_tags(self) -> None:
        text = (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY",'
            b'"messageModel":"Clustering","consumeFromWhere":"","subscriptionDataSet":'
            b'[{"classFilterMode":false,"topic":"T","subString":"*","tagsSet":null,'
            b'"codeSet":null,"subVersion":1,"expressionType":"TAG"}],"unitMode":false}],'
            b'"producerDataSet":[]}'
        )
        (consumer,) = HeartbeatData.decode(text).consumer_data_set
        assert consumer.subscription_data_set == [SubscriptionData(topic="T", sub_string="*", sub_version=1)]
        assert consumer.message_model == "Clustering"

    def test_names_of_later_versions_are_kept(self) -> None:
        text = b'{"clientID":"c","consumerDataSet":[{"consumeType":"CONSUME_POP","x":{"y":[1]}}]}'
        (consumer,) = HeartbeatData.decode(text).consumer_data_set
        assert consumer.consume_type == "CONSUME_POP"

    def test_cpp_writes_numbers_as_text_and_text_as_numbers(self) -> None:
        text = b'{"topic":5,"subVersion":"12","classFilterMode":0,"codeSet":["65"],"tagsSet":[1]}'
        assert SubscriptionData.decode(text) == SubscriptionData(
            topic="5", sub_version=12, code_set={65}, tags_set={"1"}
        )


class TestRoute:
    def test_keys_of_the_address_table_may_be_quoted_or_bare(self) -> None:
        for key in (b"0", b'"0"', b"'0'"):
            route = TopicRouteData.decode(b'{"brokerDatas":[{"brokerAddrs":{%b:"a:1"}}]}' % key)
            assert route.broker_datas[0].master() == "a:1"

    def test_without_a_master(self) -> None:
        table = ClusterInfo.decode(b'{"brokerAddrTable":{"b":{"brokerAddrs":{1:"a:1"}}}}')
        assert table.broker_addr_table["b"].master() is None


class TestReset:
    queue = MessageQueue("T", "b", 3)

    @pytest.mark.parametrize(
        "table",
        [
            b'{{"brokerName":"b","queueId":3,"topic":"T"}:5}',
            b'{{"topic":"T", "brokerName":"b", "queueId":3} : "5",}',
            b'{"{\\"brokerName\\":\\"b\\",\\"queueId\\":3,\\"topic\\":\\"T\\"}":5}',
            b'[{"brokerName":"b","offset":5,"queueId":3,"topic":"T"}]',
            b'[[{"topic":"T","brokerName":"b","queueId":3},5]]',
        ],
    )
    def test_every_form_of_the_table(self, table: bytes) -> None:
        body = ResetOffsetBody.decode(b'{"offsetTable":%b}' % table)
        assert body == ResetOffsetBody(offset_table={self.queue: 5})

    @pytest.mark.parametrize("text", [b'{"offsetTable":[]}', b'{"offsetTable":null}', b"{}"])
    def test_nothing_to_reset(self, text: bytes) -> None:
        assert ResetOffsetBody.decode(text) == ResetOffsetBody()

    @pytest.mark.parametrize("table", [b"[5]", b"[[1,2]]", b"[[{}]]", b"[[{},5],7]", b'{"x":5}', b"{5:5}", b"7"])
    def test_other_forms_are_refused(self, table: bytes) -> None:
        with pytest.raises(ProtocolError):
            ResetOffsetBody.decode(b'{"offsetTable":%b}' % table)


class TestFigures:
    def test_a_figure_java_could_not_compute_is_zero(self) -> None:
        assert ConsumeStats.decode(b'{"consumeTps":null}').consume_tps == 0.0

    def test_lag_is_what_waits(self) -> None:
        stats = ConsumeStats.decode((GOLDEN / "consumestats.json").read_bytes())
        assert stats.lag() == 7

    def test_running_info_of_a_go_client(self) -> None:
        text = (
            b'{"jstack":"","mqTable":{{"topic":"T","brokerName":"b","queueId":0}:'
            b'{"commitOffset":5,"droped":false}},"properties":{"PROP_CONSUMEORDERLY":"false"},'
            b'"statusTable":{"T":{"pullRT":0,"consumeOKTPS":1}},"subscriptionSet":[]}'
        )
        info = ConsumerRunningInfo.decode(text)
        assert info.mq_table[MessageQueue("T", "b", 0)].commit_offset == 5
        assert info.status_table["T"].consume_ok_tps == 1.0


class TestCompressedRegistration:
    # Captured from a fresh broker with compressedRegister=true.
    VERSION = b'{"counter":0,"timestamp":1795250335124}'
    LINES = (
        b"SCHEDULE_TOPIC_XXXX 18 18 6 SINGLE_TAG",
        b"LabCluster_REPLY_TOPIC 1 1 6 SINGLE_TAG",
        b"BenchmarkTest 1024 1024 6 SINGLE_TAG",
        b"OFFSET_MOVED_EVENT 1 1 6 SINGLE_TAG",
        b"TBW102 8 8 7 SINGLE_TAG",
        b"lab-b 1 1 7 SINGLE_TAG",
        b"SELF_TEST_TOPIC 1 1 6 SINGLE_TAG",
        b"LabCluster 16 16 7 SINGLE_TAG",
    )

    def content(self, *lines: bytes, servers: bytes = b"[]") -> bytes:
        pieces = [sized(self.VERSION), len(lines).to_bytes(4), *map(sized, lines), sized(servers)]
        return b"".join(pieces)

    def test_a_fresh_broker(self) -> None:
        content = self.content(*self.LINES)
        body = RegisterBrokerBody.decompress(zlib.compress(content))
        topics = body.topic_config_serialize_wrapper
        assert topics.data_version == DataVersion(counter=0, timestamp=1795250335124)
        assert list(topics.topic_config_table)[:2] == [
            "SCHEDULE_TOPIC_XXXX",
            "LabCluster_REPLY_TOPIC",
        ]
        assert topics.topic_config_table["TBW102"] == TopicConfig(
            topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7
        )
        assert body.filter_server_list == []
        assert zlib.decompress(body.compress()) == content
        # Size and checksum of the captured bytes themselves.
        assert len(body.compress()) == 206
        assert body_crc32(body.compress()) == 1220307532

    def test_bytes_of_the_java_class(self) -> None:
        golden = (GOLDEN / "register.compressed").read_bytes()
        plain = RegisterBrokerBody.decode((GOLDEN / "register.json").read_bytes())
        assert RegisterBrokerBody.decompress(golden) == plain
        assert zlib.decompress(plain.compress()) == zlib.decompress(golden)

    def test_the_attributes_of_5x_are_ignored(self) -> None:
        line = b'T 1 2 6 SINGLE_TAG {"+a.b":"c d"}'
        body = RegisterBrokerBody.decompress(zlib.compress(self.content(line)))
        table = body.topic_config_serialize_wrapper.topic_config_table
        assert table["T"] == TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=2)

    @pytest.mark.slow
    @given(st.lists(topic_configs, max_size=5), st.lists(words, max_size=3))
    def test_reads_back(self, configs: list[TopicConfig], servers: list[str]) -> None:
        body = RegisterBrokerBody(
            filter_server_list=servers,
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                topic_config_table={config.topic_name: config for config in configs}
            ),
        )
        assert RegisterBrokerBody.decompress(body.compress()) == body

    @pytest.mark.parametrize(
        "line",
        [b"T", b"", b"T 1 2 6", b"T x 2 6 SINGLE_TAG", b"T 1 2 2147483648 SINGLE_TAG",
         b"T 1  2 6 SINGLE_TAG", b"\xff 1 1 6 S"],
    )  # fmt: skip
    def test_a_malformed_topic_is_refused(self, line: bytes) -> None:
        with pytest.raises(ProtocolError, match="malformed topic"):
            RegisterBrokerBody.decompress(zlib.compress(self.content(line)))

    def test_whatever_is_cut_off_is_refused(self) -> None:
        content = self.content(*self.LINES)
        for end in range(len(content)):
            with pytest.raises(ProtocolError):
                RegisterBrokerBody.decompress(zlib.compress(content[:end]))
        stream = zlib.compress(content)
        for end in range(len(stream)):
            with pytest.raises(ProtocolError):
                RegisterBrokerBody.decompress(stream[:end])

    def test_a_bomb_is_refused(self) -> None:
        with pytest.raises(ProtocolError, match="cut off or too long"):
            RegisterBrokerBody.decompress(zlib.compress(bytes(MAX_INFLATED + 1), 1))

    @given(st.binary(max_size=80))
    def test_any_content_gives_a_body_or_a_protocol_error(self, content: bytes) -> None:
        for stream in (content, zlib.compress(content)):
            with suppress(ProtocolError):
                RegisterBrokerBody.decompress(stream)


def sized(piece: bytes) -> bytes:
    return len(piece).to_bytes(4) + piece


def test_a_version_follows_its_predecessor() -> None:
    assert DataVersion(counter=3, timestamp=5).following(9) == DataVersion(counter=4, timestamp=9)


@pytest.mark.parametrize("kind", EVERY_BODY)
def test_every_body_decodes_an_empty_object_to_its_defaults(kind: type[Body]) -> None:
    assert kind.decode(b"{}") == kind()
    assert kind.decode(kind().encode()) == kind()


@pytest.mark.parametrize("kind", EVERY_BODY)
@pytest.mark.parametrize("text", [b"", b"null", b"5", b'"x"', b"[", b"{", b"\xff", b'{"a":}'])
def test_every_body_refuses_what_is_no_object(kind: type[Body], text: bytes) -> None:
    with pytest.raises(ProtocolError):
        kind.decode(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (LockBatchRequest, b'{"mqSet":{}}'),
        (LockBatchRequest, b'{"mqSet":[{"queueId":2147483648}]}'),
        (LockBatchRequest, b'{"mqSet":[[]]}'),
        (DataVersion, b'{"counter":9223372036854775808}'),
        (TopicConfig, b'{"perm":"rw"}'),
        (TopicConfig, b'{"perm":"1_0"}'),
        (ConsumeStats, b'{"consumeTps":"1_0"}'),
        (ConsumeStats, b'{"consumeTps":"inf"}'),
        (ConsumeStats, b'{"consumeTps":"1e999"}'),
        (TopicConfig, b'{"order":"perhaps"}'),
        (ConsumeStats, b'{"consumeTps":[]}'),
        (ClusterInfo, b'{"clusterAddrTable":{"c":"b"}}'),
    ],
)
def test_members_of_the_wrong_kind_are_refused(kind: type[Body], text: bytes) -> None:
    with pytest.raises(ProtocolError):
        kind.decode(text)
