"""Streams and sinks under load outlive maintenance of Eruca's brokers, by content; tests/compat has Apache's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eruca.spark_connector import register
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.etcd import needs_etcd
from tests.support.failover_cluster import FailoverCluster
from tests.support.spark_copies import Copies

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(600)]
ROOMY = {"mappedFileSizeCommitLog": str(16 << 20), "mappedFileSizeConsumeQueue": str(20_000 * 20)}


@needs_etcd
async def test_masters_are_killed_and_hand_over_and_others_are_elected(spark: SparkSession, tmp_path: Path) -> None:
    async with FailoverCluster(tmp_path / "group", settings=ROOMY) as group:
        await group.all_in_set()

        def lead() -> None:
            register(spark)  # in this thread, too
            with Copies(spark, group.names.address, tmp_path) as copies:
                copies.go_on()
                group.kill(1)
                wait(group.led_by_another(1))
                copies.go_on()
                wait(group.start(1))
                wait(group.all_in_set())
                wait(group.hand_over(1))
                copies.go_on()
                copies.check()

        loop = asyncio.get_running_loop()

        def wait(step: object) -> None:
            asyncio.run_coroutine_threadsafe(step, loop).result()  # type: ignore[arg-type]

        await asyncio.to_thread(lead)


def test_brokers_are_restarted_one_after_the_other(spark: SparkSession, tmp_path: Path) -> None:
    names = ErucaNameServer(tmp_path / "names")
    brokers: dict[str, ErucaBroker] = {}

    def start(name: str) -> None:
        brokers[name] = ErucaBroker(tmp_path / name, names.address, {"brokerName": name})

    try:
        for name in ("broker-a", "broker-b"):
            start(name)
        with Copies(spark, names.address, tmp_path, (*brokers,)) as copies:
            copies.go_on()
            for name in ("broker-a", "broker-b"):
                brokers[name].stop()
                copies.send_on()
                start(name)  # at another port
                copies.go_on()
            brokers["broker-a"].process.kill()
            start("broker-a")
            copies.go_on()
            copies.check()
    finally:
        for broker in brokers.values():
            broker.process.kill()
        names.stop()
