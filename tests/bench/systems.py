"""The two systems side by side: Apache RocketMQ 4.9.7 and Eruca, as operators run them.

Owns how each is started for a measurement and the command line of its mqadmin. Both get the same
broker.conf; stores lie side by side on one disk.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import raw
from tests.support.apache import ApacheBroker, ApacheCluster, ApacheNameServer
from tests.support.eruca import SCRIPTS, ErucaCluster
from tests.support.java import LONG_LIFE, jars, opened_modules, write_logback

RELEASE = "4.9.7"
HEAP = ("-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g", *LONG_LIFE)
# Files of the default sizes, and a disk that is never too full for a measurement.
PROPERTIES = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "diskMaxUsedSpaceRatio": "95",
    "autoCreateTopicEnable": "true",
}
_SEND = 310


class BenchApache(ApacheCluster):
    """Apache's cluster with a heap that its broker is at ease with."""

    def __init__(self, home: Path, properties: Mapping[str, str]) -> None:
        self.name = "apache"
        self.home = home
        self.name_server = ApacheNameServer(RELEASE, home, heap=("-Xms128m", "-Xmx256m"))
        try:
            self.broker = ApacheBroker(RELEASE, home, self.name_server.address, properties, heap=HEAP)
        except BaseException:
            self.name_server.stop()
            raise


@dataclass(frozen=True)
class System:
    """One of the two."""

    name: str
    title: str

    def start(self, home: Path, properties: Mapping[str, str] | None = None) -> BenchApache | ErucaCluster:
        """A cluster in that folder, ready to serve."""
        settings = {**PROPERTIES, **(properties or {})}
        if self.name == "apache":
            return BenchApache(home, settings)
        return ErucaCluster(home, settings)

    def mqadmin(self, home: Path, *line: str) -> float:
        """Wall time in seconds of one command as a process; raises RuntimeError when it fails."""
        begun = time.monotonic()
        done = subprocess.run(self.command(home, *line), capture_output=True, text=True, cwd=home, timeout=60)
        took = time.monotonic() - begun
        if done.returncode != 0 or (done.stderr and self.name != "eruca"):  # Eruca's says there what a reset means
            raise RuntimeError(f"{self.title}: mqadmin {' '.join(line)} failed: {done.stderr[-500:]}")
        return took

    def command(self, home: Path, *line: str) -> list[str]:
        """A command of mqadmin as an operator starts it."""
        if self.name == "eruca":
            return [str(SCRIPTS / "mqadmin"), *line]
        return [
            *("java", "-Xms1g", "-Xmx1g", "-Xmn256m", *opened_modules(), f"-Duser.home={home}"),
            *(f"-Drocketmq.home.dir={write_logback(home, 'tools').parents[1]}", "-cp", f"{jars(RELEASE)}/*"),
            *("org.apache.rocketmq.tools.command.MQAdminStartup", *line),
        ]

    def start_to_first_send(self, home: Path) -> float:
        """Seconds from the start of the broker's process to the answer of the first send, once it is registered."""
        with self.start(home) as cluster:
            while True:
                try:
                    header, _ = raw.ask(cluster.broker.address, _SEND, _send_fields(), b"first")
                except OSError:
                    continue
                if header["code"] == 0:
                    return time.monotonic() - cluster.broker.process.started


SYSTEMS = (System("apache", f"Apache {RELEASE}"), System("eruca", "Eruca"))


def _send_fields() -> dict[str, str]:
    """The header of a SEND_MESSAGE_V2 to a topic that is to be created."""
    return {
        **{"a": "BenchProducers", "b": "FirstSend", "c": "TBW102", "d": "4", "e": "0", "f": "0"},
        **{"g": str(time.time_ns() // 1_000_000), "h": "0", "i": "", "j": "0", "k": "false", "l": "0", "m": "false"},
    }
