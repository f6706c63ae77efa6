"""Options about the connection: an account, TLS, a namespace, and what they mean to the client."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from eruca.client import ClientSettings, Credentials, Message, Tls, sync
from eruca.spark_connector.errors import BadOption, SourceError
from eruca.spark_connector.options import Options, read_options
from eruca.spark_connector.read.batch import BatchReader
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.schema import default_schema
from eruca.spark_connector.sink_options import read_sink_options
from tests.support.certificates import Certificates
from tests.support.eruca import ErucaCluster, ErucaNameServer
from tests.support.spark import Topic

NEEDED = {"nameServer": "mq:9876", "subscribe": "orders"}
ACCOUNT = {"accessKey": "the-account", "secretKey": "the-secret", "securityToken": "the-token"}
TLS = {
    "tls": "true",
    "tlsCaFile": "/ca.pem",
    "tlsCertificateFile": "/c.pem",
    "tlsKeyFile": "/k.pem",
    "tlsKeyPassword": "open-sesame",
    "tlsVerify": "true",
    "tlsCheckHostname": "false",
    "tlsServerName": "mq.example",
}


def read(**given: str) -> Options:
    return read_options({**NEEDED, **given}, streaming=False)


def test_options_become_settings() -> None:
    assert asdict(read().settings) == asdict(ClientSettings(nameserver="mq:9876"))
    assert asdict(read(**ACCOUNT, **TLS, namespace="tenant").settings) == asdict(
        ClientSettings(
            nameserver="mq:9876",
            credentials=Credentials("the-account", "the-secret", "the-token"),
            tls=Tls(
                ca_file="/ca.pem",
                certificate_file="/c.pem",
                key_file="/k.pem",
                key_password="open-sesame",
                check_hostname=False,
                server_name="mq.example",
            ),
            namespace="tenant",
        )
    )


@pytest.mark.processes
def test_tls_that_does_not_fit_is_told_by_the_names_of_the_options(
    cluster: ErucaCluster, fresh_clients: ClusterClients, tmp_path: Path
) -> None:
    def plan(address: str, **given: str) -> None:
        options = read_options({"nameServer": address, "subscribe": "orders", **given}, streaming=False)
        BatchReader(options, default_schema(), 1).partitions()

    with pytest.raises(SourceError, match=r'then connect without TLS \(leave the option tls out, or set tls="false"\)'):
        plan(cluster.address, tls="true")
    server = Certificates(tmp_path).server
    names = {"tls.server.certPath": str(server.certificate), "tls.server.keyPath": str(server.key)}
    encrypted = ErucaNameServer(tmp_path / "encrypted", {**names, "tls.server.mode": "enforcing"})
    try:
        with pytest.raises(SourceError, match=r'TLS must be set here, too \(the option tls="true"\)'):
            plan(encrypted.address)
        with pytest.raises(
            SourceError, match=r"is not trusted .*: name the CA that signed it with the option tlsCaFile"
        ):
            plan(encrypted.address, tls="true")
    finally:
        encrypted.stop()


def test_queries_with_equal_options_share_a_connection() -> None:
    one, two = read(**ACCOUNT), read(**ACCOUNT, tags="new")

    assert one.access == two.access and hash(one.access) == hash(two.access)
    assert one.access != read().access
    assert pickle.loads(pickle.dumps(one)).access == one.access, "as it travels to executors"


def test_nothing_secret_is_shown() -> None:
    shown = repr(read(**ACCOUNT, **TLS))

    assert "the-account" in shown
    for secret in ("the-secret", "the-token", "open-sesame"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"accessKey": "a"}, "Give accessKey and secretKey together"),
        ({"secretKey": "a-secret"}, "Give accessKey and secretKey together"),
        ({"securityToken": "a-secret"}, "Give accessKey and secretKey together"),
        ({"tlsCaFile": "/ca.pem"}, 'tlsCaFile has no effect without tls: add tls="true"'),
        ({"tls": "false", "tlsVerify": "true"}, "tlsVerify has no effect without tls"),
        ({"tls": "yes"}, "true or false is expected"),
        ({"namespace": "a%b"}, 'namespace="a%b" is not allowed'),
    ],
)
def test_what_does_not_fit(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadOption, match=sentence) as refused:
        read(**given)
    assert "a-secret" not in str(refused.value)


def test_a_namespace_is_read_under_its_short_names(spark: Any, topic: Topic) -> None:
    settings = ClientSettings(nameserver=topic.name_server, namespace="tenant")
    with sync.Producer("p", settings=settings) as producer:
        producer.send(Message("short", b"of the tenant"))

    reader = spark.read.format("rocketmq").option("nameServer", topic.name_server).option("namespace", "tenant")
    rows = reader.option("accessKey", "me").option("secretKey", "not checked here").option("subscribe", "short").load()

    assert [(row.topic, bytes(row.body)) for row in rows.collect()] == [("short", b"of the tenant")]


def test_the_sink_takes_the_same_options(spark: Any, topic: Topic) -> None:
    settings = ClientSettings(nameserver=topic.name_server, namespace="tenant")
    writer = spark.sql("SELECT 'by the sink' AS body").write.format("rocketmq").mode("append")
    writer = writer.option("nameServer", topic.name_server).option("namespace", "tenant").option("topic", "written")
    writer.option("accessKey", "me").option("secretKey", "not checked here").save()

    with sync.PullConsumer(settings=settings) as puller:
        pulled = [puller.pull(queue, 0) for queue in puller.fetch_queues("written")]
    assert [record.body for each in pulled for record in each.records] == [b"by the sink"]
    with pytest.raises(BadOption, match="Give accessKey and secretKey together"):
        read_sink_options({"nameServer": "mq:9876", "topic": "t", "accessKey": "a"}, streaming=False)
