"""Options and columns of the sink: what is read, and the one sentence for what is not."""

import pytest
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, MapType, StringType, StructField, StructType

from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.sink_options import SinkOptions, check_columns, read_sink_options

MARKED = {"delivery": "transactional", "markertopic": "markers"}

KINDS: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def read(*, streaming: bool = True, **options: str) -> SinkOptions:
    return read_sink_options({"NAMESERVER": "mq:9876", "topic": "orders", **options}, streaming=streaming)


def test_defaults_and_values() -> None:
    options = read(checkpointlocation="/x", queryName="q")
    assert (options.delivery, options.idempotent, options.require_send_ok) == ("at-least-once", True, True)
    assert (options.retry_timeout_ms, read(streaming=False).retry_timeout_ms) == (600_000, 30_000)
    assert read(sendbatchbytes="1m", idempotent="false").send_batch_bytes == 1024 * 1024
    assert read(delivery="transactional", markertopic="markers").transactional
    assert read(streaming=False, writeid="load-7", delivery="transactional", markertopic="m").write_id == "load-7"


@pytest.mark.parametrize(
    ("options", "streaming", "sentence"),
    [
        ({"topics": "a"}, True, "The rocketmq sink has no option topics: did you mean topic?"),
        ({"path": "orders"}, False, "has no option path: did you mean topic?"),
        ({"kafka.acks": "all"}, True, "leave it out, a message is sent when its broker has stored it."),
        ({"kafka.batch.size": "9"}, True, "did you mean sendBatchBytes?"),
        ({"topic": "a b"}, True, "illegal characters"),
        ({"delivery": "exactly-once"}, True, "at-least-once or transactional is expected"),
        ({"sendbatchbytes": "5m"}, True, "a number of bytes from 1 to 4m is expected"),
        ({"delivery": "transactional"}, True, "needs the option markerTopic"),
        ({"markertopic": "m"}, True, 'is for delivery="transactional"'),
        (MARKED, False, "needs the option writeId"),
        ({"writeid": "x"}, True, "writeId is for df.write"),
        ({"writeid": "a/b"}, False, "at most 100 characters"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(options: dict[str, str], streaming: bool, sentence: str) -> None:
    with pytest.raises(BadOption) as raised:
        read(streaming=streaming, **options)
    assert sentence in str(raised.value)


def check(columns: str, **options: str) -> None:
    fields = [StructField(name, KINDS[kind]) for name, kind in (each.split() for each in columns.split(", "))]
    check_columns(StructType(fields), read_sink_options({"nameServer": "m:1", **options}, streaming=True))


def test_columns() -> None:
    check("body string, topic string, tags string, keys string, properties map<string,string>, shardingKey bigint")
    check("body binary, queueId int, brokerName string, flag int, delayLevel int", topic="orders")
    check("Body binary, queueID int, TAGS string", topic="orders")


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("xyz string", {"topic": "t"}, "The rocketmq sink has no column xyz: it takes body, topic"),
        ("body string, tag string", {"topic": "t"}, "no column tag: did you mean tags?"),
        ("value string", {"topic": "t"}, "The rocketmq sink has no column value: did you mean body?"),
        ("body string, key string", {"topic": "t"}, "no column key: did you mean keys?"),
        ("body string, headers string", {"topic": "t"}, "no column headers: did you mean properties?"),
        ("body string, timestamp bigint", {"topic": "t"}, "no column timestamp: it takes body, topic"),
        ("body int", {"topic": "t"}, "The column body is of type int, the sink takes binary or string: cast it."),
        ("tags string", {"topic": "t"}, "The rows have no column body"),
        ("body string", {}, "Where to send is missing"),
        ("body string, delayLevel int, delayTimeMs bigint", {"topic": "t"}, "Give one of the columns delayLevel"),
        ("body string, delayLevel int", {"topic": "t", **MARKED}, "in a transaction cannot be delayed"),
        ("body string, BODY string", {"topic": "t"}, "The rows have the column body several times: select it once."),
        ("body string, brokername string", {"topic": "t"}, "needs the column queueId"),
        ("body string, queueId int, shardingKey string", {"topic": "t"}, "shardingKey or queueId, not both"),
    ],
)
def test_columns_that_cannot_be_sent(columns: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadOption) as raised:
        check(columns, **options)
    assert sentence in str(raised.value)
