"""Apache Kafka for comparison: one broker in KRaft mode, and the jars of Spark's source for it.

Owns where the jars come from (Maven Central, by tests/bench/kafka/pom.xml, kept beside the judges' in `.cache/compat`)
and the broker's process. Everything it writes is in the folder that the caller gives.
"""

from __future__ import annotations

import base64
import subprocess
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.java import resolved_jars
from tests.support.ports import free_port
from tests.support.processes import Process

POM = Path(__file__).parent / "kafka" / "pom.xml"
HEAP = ("-Xms512m", "-Xmx1g", "-XX:+UseG1GC")
CLUSTER_ID = base64.urlsafe_b64encode(b"eruca's own test").decode().rstrip("=")
SOURCE = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")


@cache
def source_jars() -> str:
    """What `spark.jars` needs for `format("kafka")`."""
    folder = resolved_jars(POM, "kafka-source", "-Psource", f"-DincludeArtifactIds={','.join(SOURCE)}")
    return ",".join(map(str, sorted(folder.glob("*.jar"))))


class KafkaBroker:
    """A broker that makes topics of 8 partitions by itself; `address` is ip:port."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        conf = home / "server.properties"
        conf.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}\n"
            f"log.dirs={home}/logs\nnum.partitions=8\noffsets.topic.replication.factor=1\n"
            "group.initial.rebalance.delay.ms=0\n"
        )
        jars = resolved_jars(POM, "kafka-broker", "-Pbroker", "-DincludeScope=runtime")
        java = ["java", *HEAP, "-cp", f"{jars}/*"]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(conf)],
            check=True,
            capture_output=True,
            cwd=home,
        )
        self.process = Process([*java, "kafka.Kafka", str(conf)], home / "kafka.out", cwd=home)
        self.process.wait_for_port(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.stop()
