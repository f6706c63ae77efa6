"""A peer that vanished without a word, in a network of its own: its machine takes no packets any more."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

_NETWORK = ["unshare", "--map-root-user", "--net"]


def _why_none() -> str | None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare or ip is not installed"
    if subprocess.run([*_NETWORK, "true"], capture_output=True, check=False).returncode:
        return "this machine lets nobody have a network of his own"
    return None


_WHY_NOT = _why_none()
_PROGRAM = """
import socket, subprocess, sys, time
from eruca.remoting.keepalive import keep_alive, probe

def ip(*words):
    subprocess.run(["ip", *words], check=True)

ip("link", "set", "lo", "up")
for address in ("10.9.0.1", "10.9.0.2"):
    ip("addr", "add", f"{address}/32", "dev", "lo")
listening = socket.create_server(("10.9.0.1", 0))
peer = socket.create_connection(listening.getsockname(), source_address=("10.9.0.2", 0))
accepted, _ = listening.accept()
keep_alive(accepted)
accepted.settimeout(3)
if sys.argv[1] == "there":  # a process that does not read: its kernel answers
    accepted.send(b"x")
    probe(accepted)
    accepted.settimeout(9)
    try:
        accepted.recv(1)
    except TimeoutError as fault:
        print("there" if fault.errno is None else fault)
    sys.exit()
ip("addr", "del", "10.9.0.2/32", "dev", "lo")
ip("route", "add", "blackhole", "10.9.0.2/32")
if sys.argv[1] == "unread":
    accepted.send(b"x")
began = time.monotonic()
probe(accepted)
accepted.settimeout(30)
try:
    accepted.recv(1)
except OSError as fault:
    print("gone", fault.errno is not None, time.monotonic() - began < 15)
"""


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))
@pytest.mark.parametrize(
    ("peer", "said"), [("idle", "gone True True"), ("unread", "gone True True"), ("there", "there")]
)
def test_a_probe_ends_the_connection_of_a_machine_that_is_gone_and_of_no_other(peer: str, said: str) -> None:
    done = subprocess.run(
        [*_NETWORK, sys.executable, "-c", _PROGRAM, peer], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == said, done.stderr
