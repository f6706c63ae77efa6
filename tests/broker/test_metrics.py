"""The metrics of a broker: what they count, under which names and labels."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eruca.broker.app import BrokerApp
from eruca.broker.store import native
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.protocol import frame
from eruca.remoting.metrics import Kind, Metrics
from eruca.remoting.tls_settings import TlsSettings
from tests.bench.broker_micro import MESSAGES, Load
from tests.support.certificates import Certificates
from tests.support.desk import START, Desk
from tests.support.pages import Scrape, page, scrape

DOCS = Path(__file__).parents[2] / "docs" / "observability.md"
COMMON = {"cluster", "node_id", "node_type"}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with Desk(tmp_path) as desk:
        await desk.app.pages.start("127.0.0.1", None, 0)
        yield desk
        await desk.app.pages.stop()


async def metrics(desk: Desk) -> Scrape:
    return await scrape(desk.app.pages.port)


def send_fields(topic: str, **more: str) -> dict[str, str]:
    return {
        "producerGroup": "pg",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": str(START),
        "flag": "0",
        **more,
    }


async def pull(desk: Desk, group: str, topic: str, offset: int) -> None:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    assert (await desk.ask(11, fields)).code == 0


async def test_messages_that_come(desk: Desk) -> None:
    desk.topic("Orders", queues=2)
    for queue, size in ((0, 10), (1, 10), (1, 3000), (0, 600_000)):
        fields = send_fields("Orders", queueId=str(queue))
        assert (await desk.ask(10, fields, bytes(size))).code == 0

    found = await metrics(desk)

    labels = {"topic": "Orders", "message_type": "normal", "is_system": "false", "node_id": "broker-a"}
    assert found.value("rocketmq_messages_in_total", **labels) == 4
    stored = found.value("rocketmq_throughput_in_total", **labels)
    assert stored is not None and 603_020 < stored < 604_500
    buckets = {
        le: found.value("rocketmq_message_size_bucket", le=le, **labels) for le in ("1024.0", "4096.0", "524288.0")
    }
    assert buckets == {"1024.0": 2, "4096.0": 3, "524288.0": 3}
    assert found.value("rocketmq_message_size_bucket", le="1048576.0", **labels) == 4
    assert found.value("rocketmq_message_size_count", **labels) == 4
    assert found.value("rocketmq_message_size_sum", **labels) == stored


async def test_messages_that_go_and_what_a_group_has_not_confirmed(desk: Desk) -> None:
    desk.topic("Orders")
    desk.store("Orders", 0, *range(1000, 11_000, 1000))
    desk.broker.offsets.commit("kitchen", "Orders", 0, 0)
    await desk.ask(34, {}, b"{}")
    await desk.consumer("kitchen", "Orders")
    await pull(desk, "kitchen", "Orders", 0)
    desk.broker.offsets.commit("kitchen", "Orders", 0, 4)
    desk.store("Orders", 0, 11_000, 12_000)
    desk.now = START + 20_000

    found = await metrics(desk)

    labels = {"consumer_group": "kitchen", "topic": "Orders", "is_system": "false"}
    assert found.value("rocketmq_messages_out_total", **labels) == 10
    assert found.value("rocketmq_consumer_lag_messages", **labels) == 8
    assert found.value("rocketmq_consumer_inflight_messages", **labels) == 6
    assert found.value("rocketmq_consumer_ready_messages", **labels) == 2
    assert found.value("rocketmq_consumer_lag_latency", **labels) == 15_000
    assert found.value("rocketmq_consumer_queueing_latency", **labels) == 9_000
    assert found.value("rocketmq_consumer_connections", consumer_group="kitchen") == 1
    assert found.labels("rocketmq_consumer_connections") == COMMON | {
        *("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system")
    }


async def test_a_group_that_is_not_online_has_a_lag_too(desk: Desk) -> None:
    desk.topic("Orders")
    desk.store("Orders", 0, 0, 1, 2)
    desk.broker.offsets.commit("gone", "Orders", 0, 1)

    found = await metrics(desk)

    assert found.value("rocketmq_consumer_lag_messages", consumer_group="gone", topic="Orders") == 2


async def test_what_requests_took(desk: Desk) -> None:
    await desk.ask(105, {"topic": "x"})
    await desk.ask(999_999, {})
    for _ in range(3):
        await desk.ask(28, {})

    found = await metrics(desk)

    assert (
        found.value("rocketmq_rpc_latency_count", request_code="get_broker_runtime_info", response_code="success") == 3
    )
    unknown = found.all("rocketmq_rpc_latency_count", request_code="_other", response_code="request_code_not_supported")
    assert list(unknown.values()) == [1]
    assert found.labels("rocketmq_rpc_latency_count") == COMMON | {
        *("protocol_type", "request_code", "response_code", "is_long_polling", "result")
    }


@pytest.mark.skipif(not native.on, reason="the native step is not compiled here, or ERUCA_PURE is set")
@pytest.mark.parametrize("kind", ["sends", "halves"])
async def test_what_sends_took_that_the_native_step_stored(desk: Desk, kind: str) -> None:
    desk.topic("T", queues=4)
    load = Load(desk, "send", "latin", frame.JSON)
    for _ in range(3):
        await load.feed(getattr(load, kind)())

    rows = dict(desk.broker.rpc_latency.rows())

    took = rows["remoting", "send_message_v2", "success", "false", "success"]
    assert sum(took.counts) >= MESSAGES and took.sum < 60_000 * MESSAGES


async def test_a_pull_that_waited_is_apart(desk: Desk) -> None:
    desk.topic("Orders")
    desk.store("Orders", 0, 0)
    await desk.consumer("kitchen", "Orders")
    fields = {
        "consumerGroup": "kitchen",
        "topic": "Orders",
        "queueId": "0",
        "queueOffset": "1",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "50",
        "subscription": "*",
        "subVersion": "0",
    }
    assert (await desk.ask(11, fields)).code == 19

    found = await metrics(desk)

    held = found.all("rocketmq_rpc_latency_count", request_code="pull_message", is_long_polling="true")
    assert list(held.values()) == [1]


async def test_dead_letters(desk: Desk) -> None:
    desk.topic("Orders")
    put = desk.store("Orders", 0, 0)
    await desk.consumer("kitchen", "Orders")
    fields = {"group": "kitchen", "offset": str(put.physical_offset), "delayLevel": "-1", "originTopic": "Orders"}
    assert (await desk.ask(36, fields)).code == 0

    found = await metrics(desk)

    assert found.value("rocketmq_send_to_dlq_messages_total", consumer_group="kitchen", topic="Orders") == 1


async def test_state_of_the_broker(desk: Desk) -> None:
    desk.topic("Orders")
    desk.store("Orders", 0, 0, 1000)
    desk.now = START + 5000
    await desk.producer("pg")

    found = await metrics(desk)

    assert found.value("rocketmq_topic_number") == len(desk.broker.topics)
    assert found.value("rocketmq_consumer_group_number") == len(desk.broker.groups.table)
    assert found.value("rocketmq_broker_permission") == 6
    assert found.value("rocketmq_producer_connections", language="java", version="v4_9_7") == 1
    assert found.value("rocketmq_storage_message_reserve_time", storage_medium="disk") == 5000
    size = found.value("rocketmq_storage_size", storage_type="local")
    assert size is not None and size > 0
    assert found.value("eruca_log_max_offset_bytes") == desk.broker.store.figures().max_offset
    assert found.value("eruca_connections", state="idle") == 2
    assert found.value("eruca_limit", limit="topics") == 20_000
    assert found.value("eruca_limit_used", limit="topics") == len(desk.broker.topics)
    assert found.value("eruca_ready") == 1
    tasks = found.value("eruca_tasks")
    assert tasks is not None and tasks > 5


# ---------------------------------------------------------------------- the page


def rows_of_the_page() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, type and labels of each metric in the tables."""
    text = DOCS.read_text().partition("### Metrics of RocketMQ 5")[2]
    for names, kind, labels in re.findall(r"(?m)^\| (`[^|]+`) \| (\w+) \| ([^|]*) \|", text):
        for name in re.findall(r"`(\w+)`", names):
            yield name, kind, tuple(re.findall(r"`(\w+)`", labels))


def families_of(*daemons: Metrics) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(family.name, str(family.kind), family.labels) for daemon in daemons for family in daemon.families}


async def test_the_page_has_each_metric_with_its_type_and_labels(tmp_path: Path) -> None:
    async with Desk(tmp_path / "master") as master:
        slave = slave_of(master, tmp_path / "slave")
        files = Certificates(tmp_path / "tls").server
        tls = TlsSettings(tls_server_cert_path=str(files.certificate), tls_server_key_path=str(files.key))
        nameserver = Nameserver(NamesrvConfig(tls=tls))
        found = families_of(master.broker.metrics, slave.broker.metrics, nameserver.metrics)

    assert set(rows_of_the_page()) == found


def slave_of(master: Desk, folder: Path) -> BrokerApp:
    from eruca.broker.config import BrokerConfig, BrokerRole

    config = BrokerConfig(broker_name="broker-a", broker_id=1, broker_ip1="127.0.0.1")
    config.store.broker_role = BrokerRole.SLAVE
    config.store.store_path_root_dir = str(folder)
    return BrokerApp(config)


ROCKETMQ_5 = """
rocketmq_processor_watermark rocketmq_broker_permission rocketmq_topic_number rocketmq_consumer_group_number
rocketmq_messages_in_total rocketmq_messages_out_total rocketmq_throughput_in_total rocketmq_throughput_out_total
rocketmq_message_size rocketmq_topic_create_execution_time rocketmq_consumer_group_create_execution_time
rocketmq_producer_connections rocketmq_consumer_connections rocketmq_consumer_lag_messages
rocketmq_consumer_lag_latency rocketmq_consumer_inflight_messages rocketmq_consumer_queueing_latency
rocketmq_consumer_ready_messages rocketmq_send_to_dlq_messages_total rocketmq_commit_messages_total
rocketmq_rollback_messages_total rocketmq_finish_message_latency rocketmq_half_messages rocketmq_rpc_latency
rocketmq_storage_size rocketmq_storage_flush_behind_bytes rocketmq_storage_dispatch_behind_bytes
rocketmq_storage_message_reserve_time rocketmq_timer_enqueue_lag rocketmq_timer_enqueue_latency
rocketmq_timer_dequeue_lag rocketmq_timer_dequeue_latency rocketmq_timing_messages rocketmq_timer_enqueue_total
rocketmq_timer_dequeue_total rocketmq_timer_message_snapshot rocketmq_delay_message_latency
rocketmq_pop_buffer_scan_time_consume rocketmq_pop_revive_in_message_total rocketmq_pop_revive_out_message_total
rocketmq_pop_revive_retry_messages_total rocketmq_pop_revive_lag rocketmq_pop_revive_latency
rocketmq_pop_offset_buffer_size rocketmq_pop_checkpoint_buffer_size rocketmq_rocksdb_bytes_written
rocketmq_rocksdb_bytes_read rocketmq_rocksdb_times_written_self rocketmq_rocksdb_times_written_other
rocketmq_rocksdb_rate_cache_hit rocketmq_rocksdb_times_compressed rocketmq_rocksdb_read_amplification_bytes
rocketmq_rocksdb_times_read
"""
"""The metrics of a broker of RocketMQ 5.3.3: BrokerMetricsConstant, DefaultStoreMetricsConstant,
RemotingMetricsConstant, PopMetricsConstant."""


async def test_each_metric_of_rocketmq_5_is_there_or_listed_as_missing(desk: Desk) -> None:
    there = set((await metrics(desk)).types)
    paragraph = DOCS.read_text().partition("Not there, as Eruca has nothing to report:")[2].partition("\n\n")[0]
    missing = re.findall(r"`(\w+\*?)`", paragraph)

    for name in ROCKETMQ_5.split():
        listed = [each for each in missing if re.fullmatch(each.replace("*", r"\w*"), name)]
        assert (name in there) != bool(listed), name
    assert {name for name in there if name.startswith("rocketmq_")} <= set(ROCKETMQ_5.split())


def test_names_are_those_of_prometheus_conventions() -> None:
    for name, kind, _ in rows_of_the_page():
        assert name.endswith("_total") == (kind == Kind.COUNTER), name
        assert re.match(r"(rocketmq|eruca|process)_[a-z0-9_]+$", name), name


# ---------------------------------------------------------------------- readiness


async def test_ready_and_not_ready(desk: Desk) -> None:
    port = desk.app.pages.port
    assert (await page(port, "/readyz")).text == '{"ready": true, "reasons": {}}\n'

    desk.fill_disk()
    desk.broker.store.check_disk()
    desk.broker.readiness.withdraw("tasks", "one has ended")
    answer = await page(port, "/readyz")

    assert answer.status == 503 and '"tasks": "one has ended"' in answer.text
    assert (await page(port, "/healthz")).status == 200
    found = await metrics(desk)
    assert (found.value("eruca_ready"), found.value("eruca_not_ready", part="tasks")) == (0, 1)


async def test_a_broker_that_starts_or_stops_has_no_metrics_yet(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    app = BrokerApp(desk.config)
    await app.pages.start("127.0.0.1", None, 0)
    try:
        assert (await page(app.pages.port, "/metrics")).status == 503
        assert (await page(app.pages.port, "/readyz")).text == (
            '{"ready": false, "reasons": {"start": "it has not started yet"}}\n'
        )
        assert (await page(app.pages.port, "/healthz")).status == 200
        assert (await page(app.pages.port, "/info")).status == 200
        await app.start()
        assert (await page(app.pages.port, "/metrics")).status == 200
        await app.stop()
        assert (await page(app.pages.port, "/metrics")).status == 503
        assert '"stop": "it is stopping"' in (await page(app.pages.port, "/readyz")).text
    finally:
        await app.pages.stop()


async def test_a_broker_without_a_nameserver_that_answers_is_not_ready(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = "127.0.0.1:1"
    async with desk:
        assert dict(desk.broker.readiness.reasons) == {
            "registration": "no nameserver has registered this broker in the last 60 s: 127.0.0.1:1"
        }
        assert desk.broker.registration.ages()["127.0.0.1:1"] >= 0


async def test_no_page_shows_a_setting(desk: Desk) -> None:
    port = desk.app.pages.port
    text = "".join([(await page(port, path)).text for path in ("/healthz", "/readyz", "/info", "/metrics")])
    assert str(desk.folder) not in text


async def test_other_exporters_switch_metrics_off_and_nothing_else(tmp_path: Path) -> None:
    from eruca.remoting.metrics import ExporterType

    desk = Desk(tmp_path)
    desk.config.metrics.metrics_exporter_type = ExporterType.DISABLE
    async with desk:
        await desk.app.pages.start("127.0.0.1", None, 0)
        answer = await page(desk.app.pages.port, "/metrics")
        assert (answer.status, answer.text) == (404, "metricsExporterType is DISABLE; with PROM the metrics are here\n")
        assert (await page(desk.app.pages.port, "/readyz")).status == 200
        await desk.app.pages.stop()
