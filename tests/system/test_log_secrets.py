"""What never reaches a log: secrets of whatever origin, and what a peer sends to upset a terminal; and floods."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.lone import MANY_PEERS, LoneBroker
from tests.support.pairs import eventually
from tests.support.peers import Peer
from tests.support.programme import ENOUGH

pytestmark = [pytest.mark.processes, ENOUGH]
SECRET = "marked-by-the-test-0123456789"
ESCAPES = "\x1b[2J\x1b]0;owned\x07\u009b31m\u202e\r\n2026-11-22T17:17:43.826128Z [info] forged\x7f"
ACCOUNTS = f"""
accounts:
  - accessKey: administrator
    secretKey: {SECRET}-admin
    admin: true
  - accessKey: ordinary
    secretKey: {SECRET}-ordinary
    defaultTopicPerm: PUB|SUB
"""
FLOOD = int(os.environ.get("BAD_FRAMES", "3000"))
"""The full form of the last test: BAD_FRAMES=1000000."""


def everything(folder: Path, broker: LoneBroker) -> bytes:
    """All that was written, to whatever file of the log or stream."""
    return b"".join(file.read_bytes() for file in folder.rglob("*.log*")) + broker.log.read_bytes()


def unsigned(fields: dict[str, str]) -> dict[str, str]:
    """Fields with the marks of an account, and a signature that is none."""
    return {**fields, "AccessKey": "administrator", "Signature": f"{SECRET}-signature", "SecurityToken": SECRET}


async def ask_all(broker: LoneBroker) -> None:
    """Ask every code, with secrets and with escapes in each place that a client fills."""
    hostile = {name: ESCAPES for name in ("topic", "group", "groupName", "consumerGroup", "accessKey", "msgId", "key")}
    secret = {"secretKey": f"{SECRET}-new", "accessKey": "newcomer", "value": f"{SECRET}-value"}
    bodies = [b"", f"tls.server.keyPassword={SECRET}\nsecretKey={SECRET}\nlogLevel={ESCAPES}".encode(), b"{" * 50]
    for code in (10, 11, 15, 17, 25, 34, 37, 50, 51, 53, 99, 200, 207, 215, 222, 306, 309, 314, 316, 323, 329):
        for fields in (hostile, secret, unsigned(hostile), unsigned(secret)):
            for body in bodies:
                peer = await Peer().connect(broker.address)
                with suppress(TimeoutError, ConnectionError, asyncio.CancelledError):
                    await peer.ask(code, fields, body, within=0.5)
                await peer.close()


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("acl", ["true", "false"])
async def test_no_secret_and_no_escape_sequence_reaches_a_log(tmp_path: Path, form: str, acl: str) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    settings = {
        **MANY_PEERS,
        "logFormat": form,
        "logFile": str(tmp_path / "logs"),
        "logLevel": "DEBUG",
        "aclEnable": acl,
        "rocketmqHome": str(home),
        "tls.server.keyPassword": f"{SECRET}-password",
        "noSuchSecretKey": f"{SECRET}-unknown",
    }
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", settings)
    try:
        await ask_all(broker)
        broker.signal(signal.SIGHUP)
        await eventually(lambda: b"reloaded" in everything(tmp_path / "logs", broker))
        assert await asyncio.to_thread(broker.stop) == 0
    finally:
        broker.kill()
    text = everything(tmp_path / "logs", broker)
    assert text.count(b"request_refused") > 10, "it was asked"
    assert b"log_file_failed" not in text
    assert SECRET.encode() not in text
    lines = text.decode().split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert [line for line in lines if line.startswith("2026-11-22T17:17:43")] == []
    if form == "json":
        files = [file for file in (tmp_path / "logs").iterdir()]
        assert all(json.loads(line) for file in files for line in file.read_text().splitlines())


async def test_a_flood_of_bad_frames_is_a_small_log(tmp_path: Path) -> None:
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", MANY_PEERS)
    host, _, port = broker.address.rpartition(":")

    async def flood(count: int) -> None:
        for _ in range(count):
            with suppress(ConnectionError):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                await reader.read()
                writer.close()

    try:
        await asyncio.gather(*(flood(FLOOD // 50) for _ in range(50)))
        assert await asyncio.to_thread(broker.stop) == 0
    finally:
        broker.kill()
    lines = len(re.findall(r"\bbad_frame +error=", broker.output))
    more = re.findall(r"\bbad_frame: and (\d+) more", broker.output)
    assert lines + sum(map(int, more)) == FLOOD // 50 * 50
    assert len(broker.output) <= 100_000
