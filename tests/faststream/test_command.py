"""FastStream's command with an application over RocketMQ: run, a signal, workers, and the document."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eruca.client import LitePullConsumer, Message, Producer
from eruca.standalone.background import BackgroundCluster

pytestmark = pytest.mark.processes

PROGRAM = """
import os
from faststream import FastStream
from eruca.faststream import RocketMQBroker

broker = RocketMQBroker(logger=None)
app = FastStream(broker)
TOPIC = os.environ["TOPIC"]

@broker.subscriber(TOPIC, start_from="first")
@broker.publisher(f"{TOPIC}-done")
async def work(text: str) -> str:
    return f"{text} by {os.getpid()}"

@app.after_startup
async def say():
    print("runs", flush=True)

@app.after_shutdown
async def tell():
    print("stopped in order", flush=True)
"""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="one process"),
        pytest.param(["--workers", "2"], id="workers", marks=pytest.mark.slow),
        pytest.param(["--reload"], id="reload", marks=pytest.mark.slow),
    ],
)
async def test_run_handles_messages_until_a_signal(
    cluster: BackgroundCluster, topic: str, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    cluster.create_topic(f"{topic}-done", queues=1)
    environment = {**os.environ, "ROCKETMQ_NAMESRV_ADDR": cluster.address, "TOPIC": topic, "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "faststream",
        "run",
        "shop:app",
        *options,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    count = 2 if "--workers" in options else 1
    try:
        async with asyncio.timeout(60):
            for _ in range(count):
                while b"runs" not in await process.stdout.readline():
                    assert not process.stdout.at_eof()
        async with (
            Producer("test", nameserver=cluster.address) as producer,
            LitePullConsumer("test", nameserver=cluster.address, start_from="first").subscribe(
                f"{topic}-done"
            ) as reader,
        ):
            await producer.send(Message(topic, b"salad"))
            async with asyncio.timeout(60):
                async for message in reader:
                    done = message.body.decode()
                    break
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert done.startswith("salad by ")
    assert output.decode().count("stopped in order") == count, output.decode()
    assert process.returncode == 0


async def test_the_document_is_written(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "faststream",
        "docs",
        "gen",
        "shop:app",
        cwd=tmp_path,
        env={**os.environ, "TOPIC": "orders"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    document = json.loads((tmp_path / "asyncapi.json").read_text())
    assert "orders:Work" in document["channels"]
