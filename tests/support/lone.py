"""One `mqbroker` as a process, without a nameserver, its files where the test wants them."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.processes import Process

SMALL = {
    "listenPort": "0",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "512",
    "maxIndexNum": "4096",
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceCleanForciblyRatio": "0.97",
    "diskSpaceWarningLevelRatio": "0.98",
    "brokerFastFailureEnable": "false",
    "flushIntervalConsumeQueue": "100",
    "flushConsumeQueueThoroughInterval": "400",
    "flushConsumerOffsetInterval": "200",
}
MANY_PEERS = {"serverMaxConnectionsPerAddress": "20000", "serverMaxConnectsPerSecondPerAddress": "0"}
"""For a test that opens thousands of connections, all from this machine."""


class LoneBroker(Process):
    """It runs when the constructor returns; ``startup`` are the seconds that took."""

    def __init__(
        self,
        home: Path,
        store: Path,
        settings: Mapping[str, str] | None = None,
        errors: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        begin = time.monotonic()
        command = self.command(home, store, settings)
        super().__init__(command, home / "broker.out", env={"PYTHONFAULTHANDLER": "1", **(env or {})}, errors=errors)
        found = re.search(r"\[[^,]+, ([\d.]+:\d+)\]", self.wait_for_line("boot success"))
        assert found is not None
        self.address = found.group(1)
        self.startup = time.monotonic() - begin

    @staticmethod
    def command(home: Path, store: Path, settings: Mapping[str, str] | None = None) -> list[str]:
        """The command line of such a broker; writes its configuration file."""
        home.mkdir(parents=True, exist_ok=True)
        conf = home / "broker.conf"
        lines = {**SMALL, "storePathRootDir": str(store), **(settings or {})}
        conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return [str(Path(sys.executable).parent / "mqbroker"), "-c", str(conf)]

    @classmethod
    async def start(
        cls,
        home: Path,
        store: Path,
        settings: Mapping[str, str] | None = None,
        errors: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> LoneBroker:
        """As the constructor, while the loop runs on."""
        return await asyncio.to_thread(cls, home, store, settings, errors, env)
