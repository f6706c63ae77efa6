"""Blocking clients made on import: they start at their first use in each process, and stop at its end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import urllib.request
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from eruca.client import Message, SendStatus, sync
from eruca.client.errors import BadConfig, NoNameserver, UsageError
from tests.support.ports import free_port


def stored(address: str, topic: str) -> int:
    """How many messages a topic has."""
    with sync.PullConsumer(nameserver=address) as puller:
        return sum(puller.max_offset(queue) for queue in puller.fetch_queues(topic))


def test_it_starts_at_its_first_use(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCKETMQ_NAMESRV_ADDR", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    producer = sync.lazy(sync.Producer, "orders", retries=5)
    assert isinstance(producer, sync.Producer) and repr(producer) == "<lazy sync.Producer orders>"
    producer.stop()
    with pytest.raises(NoNameserver):
        producer.send(Message("T", b"x"))
    monkeypatch.setenv("NAMESRV_ADDR", address)
    assert producer.send(Message("T", b"x")).status is SendStatus.SEND_OK
    assert producer.in_flight == 0
    producer.stop()
    with producer:
        producer.send(Message("T", b"y"))
    producer.start_send(Message("T", b"z")).result(10)
    producer.stop()
    with sync.lazy(sync.PullConsumer) as puller:
        assert len(puller.fetch_queues("T")) == 4


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "sentence"),
    [
        (sync.PushConsumer, ("g",), UsageError, r"lazy\(\) is for Producer, TransactionProducer, PullConsumer"),
        (print, (), UsageError, r"lazy\(\) is for"),
        (sync.Producer, ("g", "http://a/b"), BadConfig, "Producer: it takes group without a name, but 2 values"),
        (sync.Producer, ("no group",), UsageError, "illegal"),
    ],
)
def test_wrong_use_is_refused_at_once(kind: Any, arguments: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        sync.lazy(kind, *arguments)
    with pytest.raises(BadConfig, match="retries=-1"):
        sync.lazy(sync.Producer, "g", retries=-1)
    with pytest.raises(AttributeError, match="no attribute 'sent'"):
        _ = sync.lazy(sync.Producer, "g").sent  # type: ignore[attr-defined]


producer = sync.lazy(sync.Producer, "orders")


def work(pipe: Connection) -> None:
    """A task of a worker that was forked: its last send is not waited for."""
    pipe.send(producer.send(Message("Forked", b"x")).status.name)
    producer.start_send(Message("Forked", b"y"))


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_pool_that_forks_as_celery_does(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", address)
    context: Any = multiprocessing.get_context("fork")
    producer.send(Message("Forked", b"of the parent"))
    here, there = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, which is what is tested
        children = [context.Process(target=work, args=(there,)) for _ in range(2)]
        for child in children:
            child.start()
    for child in children:
        child.join(30)
    assert [here.recv(), here.recv()] == ["SEND_OK", "SEND_OK"] and not any(child.exitcode for child in children)
    producer.send(Message("Forked", b"of the parent"))
    producer.stop()
    assert stored(address, "Forked") == 6


WSGI = """
from eruca.client import Message, sync

producer = sync.lazy(sync.Producer, "orders")
producer.send(Message("Web", b"while the application is loaded"))

def app(environ, start_response):
    producer.send(Message("Web", b"from a worker"))
    producer.start_send(Message("Web", b"from a worker, not waited for"))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"sent"]
"""


@pytest.mark.processes
@pytest.mark.slow
def test_gunicorn_with_preload(tmp_path: Path, address: str) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "web.py").write_text(WSGI)
    port = free_port()
    options = ["--preload", "--no-control-socket", "--workers", "2", "--bind", f"127.0.0.1:{port}"]
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "web:app"],
        cwd=tmp_path,
        env={**os.environ, "ROCKETMQ_NAMESRV_ADDR": address, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        said = ""
        while said.count("Booting worker") < 2:
            line = server.stderr.readline()
            assert line, said
            said += line
        for _ in range(6):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=30) as reply:
                assert reply.read() == b"sent"
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=60)
    finally:
        if server.poll() is None:
            server.kill()
            server.communicate()
    assert server.returncode == 0, said + rest
    assert stored(address, "Web") == 13
