"""What a start imports: clients and mqadmin, which start often, bring no server and nothing that few of them need."""

from __future__ import annotations

import subprocess
import sys

import pytest

import eruca.client

SERVERS_ONLY = {
    *("access.accounts", "access.guard", "connection_limits", "listener", "metrics", "server", "tls_daemon", "health"),
    *("http", "exposition", "log_writer", "logs", "signals", "memory"),
}
RARE = {"importlib.metadata", "email", "csv", "yaml", "cryptography", "prometheus_client", "opentelemetry"}
RARE |= {"starlette", "uvicorn", "jinja2"}
SELDOM_MET = {"eruca.client.consuming.arguments"}
SELDOM_MET |= {"eruca.protocol.fastjson.parser", "eruca.protocol.fastjson.references"}
SELDOM_MET |= {"eruca.client.consuming.local_offsets", "eruca.remoting.files", "pathlib", "urllib.parse"}
"""What type checkers read, what reads JSON that is none, offsets of broadcasting members, and dear ones of Python."""
MOST_OF_OURS = 150
MOST_OF_OTHERS = 20


@pytest.mark.parametrize("module", ["eruca.client", "eruca.admin.cli"])
def test_it_imports_nothing_of_servers(module: str) -> None:
    look = f"import {module}, sys; from {module} import *; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.split()
    )

    assert module in loaded
    assert loaded & {f"eruca.remoting.{name}" for name in SERVERS_ONLY} == set()
    assert loaded & RARE == set()


def test_the_client_brings_no_log_and_no_terminal() -> None:
    look = "from eruca.client import *; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert set(run.stdout.split()) & {"structlog", "rich", "click"} == set()


def test_a_part_of_the_client_is_loaded_when_it_is_used() -> None:
    look = "import eruca.client as c, sys; print('asyncio' in sys.modules); c.Producer; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    before, after = run.stdout.splitlines()

    assert before == "False"
    assert "eruca.client.producing.producer" in after.split()
    assert "eruca.client.consuming.push_consumer" not in after.split()


def test_sending_and_consuming_load_what_they_need_and_no_more() -> None:
    """A module costs 0.4 ms of every start. Who needs one more here looks first whether few programs use it."""
    look = (
        "import asyncio, dataclasses, logging, msgspec, sys; before = {*sys.modules}; "
        "from eruca.client import Producer, PushConsumer; print(*{*sys.modules} - before)"
    )
    run = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    ours = {name for name in loaded if name.partition(".")[0] == "eruca"}

    assert loaded & SELDOM_MET == set()
    assert len(ours) <= MOST_OF_OURS and len(loaded - ours) <= MOST_OF_OTHERS, sorted(loaded)


def test_every_name_of_the_client_is_there_without_another_import() -> None:
    look = "import eruca.client as c; print(*(getattr(c, name).__name__ for name in c.__all__)); c.errors, c.sync"
    run = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert len(run.stdout.split()) == len(eruca.client.__all__)
    assert {*eruca.client.__all__, "errors", "sync"} <= {*dir(eruca.client)}
