"""No files are written in the home directory, and nothing to the terminal but errors; `logging` gets it all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eruca.standalone.background import BackgroundCluster
from tests.client.conftest import small_broker

pytestmark = pytest.mark.processes

PROGRAM = """
import asyncio, logging, sys
from eruca.client import LitePullConsumer, Message, Producer, PushConsumer, TransactionProducer, TransactionState, sync

async def main(address):
    done = asyncio.Event()

    seen = set()

    def listener(message):
        seen.add(message.body)
        if len(seen) == 2:
            loop.call_soon_threadsafe(done.set)
        if message.body == b"bad":
            raise ValueError("a message that cannot be consumed")

    loop = asyncio.get_running_loop()
    async with Producer("p", nameserver=address) as producer:
        await producer.send(Message("T", b"bad"))
        await producer.send(Message("T", b"good"))
    async with PushConsumer("g", listener, nameserver=address, start_from="first").subscribe("T"):
        await done.wait()
    async with LitePullConsumer("l", nameserver=address, start_from="first").subscribe("T") as consumer:
        await consumer.poll()

def blocking(address):
    with sync.Producer("s", nameserver=address) as producer:
        producer.send(Message("T", b"good"))

if sys.argv[2:] == ["structlog"]:
    import structlog

    handler = logging.StreamHandler()
    before = [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, structlog.processors.format_exc_info]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processor=structlog.processors.JSONRenderer(), foreign_pre_chain=before)
    )
    logging.getLogger("eruca.client").addHandler(handler)
elif sys.argv[2:]:
    logging.basicConfig(level=sys.argv[2], format="%(name)s %(levelname)s %(message)s")
asyncio.run(main(sys.argv[1]))
blocking(sys.argv[1])
"""


def run(home: Path, *arguments: str) -> tuple[str, str, list[str]]:
    """Standard output, standard error and the files that are in the home directory afterwards."""
    home.mkdir()
    environment = {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr, [str(each) for each in home.rglob("*")]


def test_what_a_program_finds_at_home_and_on_its_terminal(tmp_path: Path) -> None:
    with BackgroundCluster(tmp_path / "cluster", broker=small_broker()) as cluster:
        out, err, files = run(tmp_path / "unconfigured", cluster.address)
        assert (out, files) == ("", [])
        [failed, *_, cause] = err.splitlines()
        assert failed.startswith("the listener of g failed with message ")
        assert cause == "ValueError: a message that cannot be consumed"

        out, err, files = run(tmp_path / "heard", cluster.address, "INFO")
        assert (out, files) == ("", [])
        assert {line.split()[0] for line in err.splitlines() if " INFO " in line or " WARNING " in line} == {
            "eruca.client"
        }
        assert "a message that cannot be consumed" in err

        out, err, _ = run(tmp_path / "structured", cluster.address, "structlog")
        said = [json.loads(line) for line in err.splitlines()]
        assert out == "" and {each["logger"] for each in said} == {"eruca.client"}
        assert any("a message that cannot be consumed" in each.get("exception", "") for each in said)
