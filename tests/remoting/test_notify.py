"""What systemd hears from a daemon, read from the socket that it would listen on."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.remoting.notify import Supervisor


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.chdir(tmp_path)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("notify")
        heard.settimeout(5)
        yield heard


async def test_a_daemon_is_ready_then_stops(systemd: socket.socket) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": "notify"})

    supervisor.ready("listening on\n10911")
    supervisor.stopping()

    assert systemd.recv(200) == b"READY=1\nSTATUS=listening on 10911"
    assert systemd.recv(200) == b"STOPPING=1"
    assert supervisor.beat_every is None


async def test_the_watchdog_is_fed_by_the_loop_until_the_daemon_stops(systemd: socket.socket) -> None:
    systemd.setblocking(False)
    supervisor = Supervisor({"NOTIFY_SOCKET": "notify", "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "7"}, pid=7)
    loop = asyncio.get_running_loop()

    supervisor.ready()
    heard = [await loop.sock_recv(systemd, 200) for _ in range(4)]
    supervisor.stopping()

    assert supervisor.beat_every == 0.01
    assert heard == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"WATCHDOG=1"]
    while (last := await loop.sock_recv(systemd, 200)) == b"WATCHDOG=1":
        pass  # sent before the daemon began to stop
    assert last == b"STOPPING=1"
    assert supervisor._next is None


@pytest.mark.parametrize(
    "environment",
    [
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "8"},
    ],
)
async def test_no_beat_unless_it_is_asked_of_this_process(environment: dict[str, str]) -> None:
    assert Supervisor(environment, pid=7).beat_every is None


async def test_an_abstract_socket_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("")  # the kernel picks an abstract name
        heard.settimeout(5)
        name = heard.getsockname().decode()

        Supervisor({"NOTIFY_SOCKET": "@" + name[1:]}).ready()

        assert heard.recv(200) == b"READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "20000"}])
async def test_nobody_listening_disturbs_nothing(environment: dict[str, str]) -> None:
    supervisor = Supervisor(environment)

    supervisor.ready("up")
    supervisor.stopping()

    assert supervisor._next is None


async def test_a_start_that_takes_long_asks_for_more_time(systemd: socket.socket) -> None:
    Supervisor({"NOTIFY_SOCKET": "notify"}).starting("recovering: 42%", 30)

    assert systemd.recv(200) == b"EXTEND_TIMEOUT_USEC=30000000\nSTATUS=recovering: 42%"


async def test_a_ready_daemon_that_reloads_says_so_and_is_ready_again(systemd: socket.socket) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": "notify"})
    done: list[str] = []

    supervisor.reload(lambda: done.append("before it was ready"))
    supervisor.ready()
    supervisor.reload(lambda: done.append("ready"))
    supervisor.stopping()
    supervisor.reload(lambda: done.append("stopping"))

    assert done == ["before it was ready", "ready", "stopping"]
    assert systemd.recv(200) == b"READY=1"
    heard = systemd.recv(200).decode()
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", heard), heard
    assert abs(int(heard.rpartition("=")[2]) / 1_000_000 - time.clock_gettime(time.CLOCK_MONOTONIC)) < 60
    assert systemd.recv(200) == b"READY=1"
    assert systemd.recv(200) == b"STOPPING=1"
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(200)
