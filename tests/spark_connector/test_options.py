"""Options: what is read, and the one sentence for what is not."""

import json
import re
import time
from dataclasses import fields

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from eruca.protocol.queues import MessageQueue
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.offsets.positions import StreamOffset
from eruca.spark_connector.options import READERS, Options, read_options
from eruca.spark_connector.schema import check_projection, default_schema
from eruca.spark_connector.sink_options import SinkOptions, read_sink_options

NEEDED = {"nameserver": "mq:9876", "subscribe": "orders"}


def read(streaming: bool = False, **options: str) -> Options:
    return read_options({**NEEDED, **options}, streaming=streaming)


def read_sink(*, streaming: bool, **options: str) -> SinkOptions:
    return read_sink_options({"nameServer": "mq:9876", "topic": "orders", **options}, streaming=streaming)


def test_names_in_any_case_and_defaults() -> None:
    options = read_options({"NAMESERVER": "mq:9876", "subscribe": "orders, payments ,orders"}, streaming=False)

    assert options.subscribe == ("orders", "payments")
    assert (options.starting_offsets, options.ending_offsets) == ("earliest", "latest")
    assert read(streaming=True).starting_offsets == "latest"
    assert options.fail_on_data_loss and not options.filtered
    assert (options.expression, options.expression_type) == ("*", "TAG")


def test_values_of_every_kind() -> None:
    offsets = '{"orders": {"broker-a": {"0": 5, "1": -2}}}'
    options = read(
        startingoffsets=offsets, failondataloss="False", minpartitions="3", sqlfilter="a > 1", endingtimestamp="7"
    )

    assert options.starting_offsets == {
        MessageQueue("orders", "broker-a", 0): 5,
        MessageQueue("orders", "broker-a", 1): -2,
    }
    assert not options.fail_on_data_loss and options.min_partitions == 3 and options.ending_timestamp == 7
    assert options.filtered and options.expression_type == "SQL92"
    assert read(streaming=True, maxtriggerdelay="15m").max_trigger_delay == 900_000
    assert read(streaming=True, maxtriggerdelay="250").max_trigger_delay == 250
    for size, wanted in (("100", 100), ("64k", 65_536), ("2 MB", 2 << 20), ("1g", 1 << 30)):
        assert read(streaming=True, maxbytespertrigger=size).max_bytes_per_trigger == wanted


def test_one_way_to_choose_topics() -> None:
    assigned = read_options({"nameserver": "m:1", "assign": '{"t": {"b": [2, 0, 2]}}'}, streaming=False)
    assert assigned.assign == {"t": {"b": (0, 2)}}
    with pytest.raises(
        BadOption, match=r'assign="orders" cannot be read: \{"topic": \{"broker": \[0, 1\]\}\} is expected; sub'
    ):
        read_options({"nameserver": "m:1", "assign": "orders"}, streaming=False)

    with pytest.raises(BadOption, match="not 2 of them"):
        read(subscribepattern="o.*")
    with pytest.raises(BadOption, match="not 0 of them"):
        read_options({"nameserver": "m:1"}, streaming=False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingofset": "latest"}, "has no option startingofset: did you mean startingOffsets?"),
        ({"kafka.bootstrap.servers": "a:1"}, "has no option kafka.bootstrap.servers: did you mean nameServer?"),
        ({"KAFKA.group.id": "g"}, "did you mean pullGroup?"),
        ({"path": "orders"}, "has no option path: did you mean subscribe?"),
        ({"paths": '["orders","payments"]'}, "has no option paths: did you mean subscribe?"),
        ({"topic": "orders"}, "has no option topic: did you mean subscribe?"),
        ({"topicpattern": "o.*"}, "did you mean subscribePattern?"),
        ({"includeheaders": "true"}, "leave it out, the column properties is there without one."),
        ({"kafka.auto.offset.reset": "latest"}, "leave it out, startingOffsets says where a query begins."),
        ({"kafka.fetch.min.bytes": "1"}, "settings of Kafka's clients have no meaning here; there are accessKey"),
        (
            {"pushdown": "true"},
            "leave it out, Spark 4.3 applies what one query of a frame pushes to all its queries; use",
        ),
        ({"xyz": "1"}, "has no option xyz: there are accessKey"),
        ({"minpartitions": "0"}, 'minPartitions="0" cannot be read: a whole number from 1 to 100000 is expected.'),
        ({"failondataloss": "yes"}, "true or false is expected"),
        ({"startingoffsets": "oldest"}, 'earliest, latest, group or {"topic"'),
        ({"startingoffsets": "{"}, "it is no JSON"),
        ({"startingoffsets": '{"t": {"b": {"0": -3}}}'}, "a whole number from -2 on"),
        ({"startingoffsets": '{"t": [0]}'}, "an object with a broker of t as key"),
        ({"startingoffsets": '{"t": {"b": {"0": 1, "0": 3}}}'}, 'cannot be read: "0" is named twice.'),
        ({"startingoffsets": '{"t": {"b": {"0": 1}}, "t": {"b": {"1": 3}}}'}, 'cannot be read: "t" is named twice.'),
        ({"startingoffsets": '{"t": {"b": {"0": 1, "00": 3}}}'}, "t, b: the queue 0 is named twice."),
        ({"startingoffsets": '{"t": {"b": {"٣": 1}}}'}, "is expected to be a queue id and a whole number"),
        ({"startingoffsets": '{"t":' * 5000}, "it is no JSON"),
        (
            {"startingoffsets": '{"t": {"b": {"*": 3}}}', "endingoffsets": '{"t": {"b": {"*": 2}}}'},
            'startingOffsets names 3 for "*" of t at b, which is above 2 in endingOffsets',
        ),
        (
            {"startingoffsets": json.dumps(StreamOffset({MessageQueue("t", "b", 0): 7}).to_json())},
            'it is an offset of a stream: give what stands under "queues" in it.',
        ),
        ({"startingoffsets": "group"}, "needs the option commitGroup"),
        ({"endingoffsets": "group"}, 'endingOffsets="group" needs the option commitGroup'),
        (
            {"startingoffsets": '{"t": {"b": {"0": 50}}}', "endingoffsets": '{"t": {"b": {"0": 5}}}'},
            "which is above 5 in endingOffsets: exchange or correct them",
        ),
        (
            {
                "startingoffsetsbytimestamp": '{"t": {"b": {"0": 1800000000002}}}',
                "endingoffsetsbytimestamp": '{"t": {"b": {"0": 1800000000001}}}',
            },
            "which is above 1800000000001 in endingOffsetsByTimestamp",
        ),
        ({"commitgroup": "a b"}, "contains illegal characters"),
        ({"tags": " "}, "The option tags is empty"),
        ({"tags": "a,b"}, "tags are joined by two bars, 'a || b'."),
        ({"tags": "||"}, "The tag expression '||' names no tag; use '*' for all."),
        (
            {"startingtimestamp": "1800000000000000000"},
            "nanoseconds? A datetime or ms since 1970, such as 1800000000000,",
        ),
        ({"startingtimestamp": "yesterday 25:00"}, "'yesterday 25:00' is no time: hour must be in 0..23."),
        ({"startingtimestamp": "1e12"}, "yesterday 17:30, -30m or 2h ago, or 2h."),
        ({"startingtimestamp": "1800000000"}, "seconds? A datetime or ms since 1970, such as 1800000000000,"),
        ({"startingoffsetsbytimestamp": '{"t": {"b": {"0": 1800000000}}}'}, "seconds? A datetime or ms since 1970"),
        ({"tags": "a", "sqlfilter": "b = 1"}, "Give tags or sqlFilter, not both"),
        ({"startingtimestamp": "9", "endingtimestamp": "8"}, "startingTimestamp=9 is above endingTimestamp=8"),
        ({"minpartitions": "9", "maxpartitions": "8"}, "minPartitions=9 is above maxPartitions=8"),
        ({"ongroupreset": "fail"}, "onGroupReset is for spark.readStream"),
        ({"maxoffsetspertrigger": "5"}, "maxOffsetsPerTrigger is for spark.readStream"),
        ({"maxbytespertrigger": "5m"}, "maxBytesPerTrigger is for spark.readStream: a batch has no triggers."),
        ({"maxpartitions": "8", "maxrecordsperpartition": "9"}, "Give maxPartitions or maxRecordsPerPartition, not"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadOption) as raised:
        read_options({**NEEDED, **options}, streaming=False)
    assert sentence in str(raised.value)
    assert not str(raised.value).endswith("..")


NUMBERS = {
    "maxOffsetsPerTrigger": ("1", "9223372036854775807"),
    "minOffsetsPerTrigger": ("1", "9223372036854775807"),
    "maxBytesPerTrigger": ("1", "9223372036854775807"),
    "maxTriggerDelay": ("0", "36500d"),
    "minPartitions": ("1", "100000"),
    "maxPartitions": ("1", "100000"),
    "maxRecordsPerPartition": ("1", "9223372036854775807"),
    "brokerLossTimeoutMs": ("0", "2147483647"),
    "commitIntervalMs": ("0", "2147483647"),
    "pullBatchSize": ("1", "65536"),
    "pullPipeline": ("1", "1024"),
    "pullTimeoutMs": ("1", "2147483647"),
    "arrowBatchRows": ("1", "1000000"),
    "maxBody": ("1", "2147483647"),
    "latestOffsetCacheMs": ("0", "2147483647"),
    "sendBatchRows": ("1", "1000000"),
    "sendBatchBytes": ("1", "4m"),
    "sendPipeline": ("1", "1024"),
    "sendTimeoutMs": ("1", "2147483647"),
    "retryTimeoutMs": ("0", "2147483647"),
    "maxRowsPerSecond": ("0.001", "1000000000"),
}
TIMES = {"starting_timestamp", "ending_timestamp"}


def test_every_number_says_its_range() -> None:
    for type_ in (Options, SinkOptions):
        of_numbers = {each.name for each in fields(type_) if re.match("int|float", str(each.type))} - TIMES
        public = {re.sub("_(.)", lambda match: match[1].upper(), name) for name in of_numbers}
        assert public <= NUMBERS.keys()
    for name, (least, most) in NUMBERS.items():
        read_number = read if name in READERS else read_sink
        for text in (least, most):
            read_number(streaming=True, **{name: text})
        beyond = [str(int(least) - 1)] if least.isdecimal() else ["0"]
        number, unit = re.match(r"(\d+)(.*)", most).groups()  # type: ignore[union-attr]
        beyond += [str(int(number) + 1) + unit, "9" * 40, "9" * 5000, "-1", "many", "nan", "inf", "1e99", "1,5", "٣"]
        for text in beyond + ["1.5", "1_000"] * (name != "maxRowsPerSecond"):
            with pytest.raises(BadOption) as raised:
                read_number(streaming=True, **{name: text})
            said = str(raised.value)
            assert said.startswith(f'The option {name}="{text}" cannot be read: a '), said
            assert f"from {least} to {most}" in said and "expected" in said, said


def test_a_stream_has_no_end() -> None:
    with pytest.raises(BadOption, match=r"endingTimestamp is for spark.read"):
        read(streaming=True, endingtimestamp="8")
    with pytest.raises(BadOption, match=r"maxTriggerDelay.*such as 15m"):
        read(streaming=True, maxtriggerdelay="soon")
    for size in ("much", "0", "5t", "-1k"):
        with pytest.raises(
            BadOption, match=rf'maxBytesPerTrigger="{size}" cannot be read: a number of bytes from 1 to 9'
        ):
            read(streaming=True, maxbytespertrigger=size)
    with pytest.raises(BadOption, match=r"needs the option commitGroup"):
        read(streaming=True, ongroupreset="fail")
    with pytest.raises(BadOption, match=r"ignore or fail"):
        read(streaming=True, ongroupreset="follow")


def test_times_as_people_write_them() -> None:
    now = time.time_ns() // 1_000_000
    for options, name, wanted in (
        ({"startingtimestamp": "2024-05-01T14:00+02:00"}, "starting_timestamp", 1_714_564_800_000),
        ({"startingtimestamp": "2024-05-01 12:00"}, "starting_timestamp", 1_714_564_800_000),
        ({"endingtimestamp": "2024-05-01"}, "ending_timestamp", 1_714_521_600_000),
    ):
        assert getattr(read(streaming=False, **options), name) == wanted
    for text in ("-2h", "2h ago", "2h"):
        found = read(streaming=True, startingtimestamp=text).starting_timestamp
        assert found is not None and 0 <= found - (now - 7_200_000) < 60_000
    by_queue = {"t": {"b": {"0": "2024-05-01T12:00Z", "1": 1_714_564_800_001}}}
    positions = read(streaming=True, startingoffsetsbytimestamp=json.dumps(by_queue)).starting_offsets_by_timestamp
    assert positions is not None and sorted(positions.values()) == [1_714_564_800_000, 1_714_564_800_001]
    with pytest.raises(BadOption, match=r"^The option startingTimestamp=\"soon\" cannot be read: 'soon' is no time"):
        read(streaming=False, startingtimestamp="soon")


def test_a_projection_names_columns_that_there_are() -> None:
    check_projection(default_schema())
    check_projection(StructType([StructField("QUEUEoffset", LongType())]))
    with pytest.raises(BadOption, match="has no column offset: did you mean queueOffset"):
        check_projection(StructType([StructField("offset", LongType())]))
    for name, ours in {"value": "body", "key": "keys", "partition": "queueId", "timestamp": "storeTimestamp"}.items():
        with pytest.raises(BadOption, match=f"has no column {name}: did you mean {ours}"):
            check_projection(StructType([StructField(name, LongType())]))
    with pytest.raises(BadOption, match="queueOffset is of type bigint, not int"):
        check_projection(StructType([StructField("queueOffset", IntegerType())]))
    with pytest.raises(BadOption, match="names no column"):
        check_projection(StructType([]))
