"""What a start imports: clients and mqadmin, which start often, bring no server and nothing that few of them need."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVERS_ONLY = {
    *("access.accounts", "access.guard", "connection_limits", "listener", "metrics", "server", "tls_daemon", "health"),
    *("http", "exposition", "log_writer", "logs", "signals", "memory"),
}
RARE = {"importlib.metadata", "email", "csv", "yaml", "cryptography", "prometheus_client", "opentelemetry"}
RARE |= {"starlette", "uvicorn", "jinja2"}


@pytest.mark.parametrize("module", ["eruca.client", "eruca.admin.cli"])
def test_it_imports_nothing_of_servers(module: str) -> None:
    look = f"import {module}, sys; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.split()
    )

    assert module in loaded
    assert loaded & {f"eruca.remoting.{name}" for name in SERVERS_ONLY} == set()
    assert loaded & RARE == set()


def test_the_client_brings_no_log_and_no_terminal() -> None:
    look = "import eruca.client, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert set(run.stdout.split()) & {"structlog", "rich", "click"} == set()
