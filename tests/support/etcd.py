"""Real etcd members as processes, from Debian's ``etcd-server``; where it is missing, tests are skipped."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.support.ports import free_port
from tests.support.processes import Process

needs_etcd = pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd: apt install etcd-server")
QUICK = ("--heartbeat-interval", "50", "--election-timeout", "250")
AS_INSTALLED = ("--heartbeat-interval", "100", "--election-timeout", "1000")
"""etcd's own defaults, for what is measured."""


class EtcdCluster:
    """Members on this machine; they serve when the constructor returns. ``peers`` is where each listens for the others,
    and where they find it."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        more: Sequence[str] = (),
        scheme: str = "http",
        peers: Sequence[tuple[str, str]] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        peers = peers or [(address, address) for address in (f"127.0.0.1:{free_port()}" for _ in range(count))]
        group = ",".join(f"m{number}=http://{found}" for number, (_, found) in enumerate(peers))
        self._folder = folder
        self._scheme = scheme
        self._commands = [
            [
                *("etcd", "--name", f"m{number}", "--data-dir", str(folder / f"m{number}"), *QUICK, *more),
                *("--listen-client-urls", f"{scheme}://{self.addresses[number]}"),
                *("--advertise-client-urls", f"{scheme}://{self.addresses[number]}"),
                *("--listen-peer-urls", f"http://{listens}", "--initial-advertise-peer-urls", f"http://{found}"),
                *("--initial-cluster", group),
            ]
            for number, (listens, found) in enumerate(peers)
        ]
        self.members = [self._run(number) for number in range(count)]
        for member in self.members:
            member.wait_for_line("ready to serve client requests")

    def _run(self, number: int) -> Process:
        return Process(self._commands[number], self._folder / f"m{number}.out", env={"ETCD_LOG_LEVEL": "info"})

    @property
    def urls(self) -> list[str]:
        return [f"{self._scheme}://{address}" for address in self.addresses]

    def leader(self, within: float = 30.0) -> int:
        """The number of the member that leads, as soon as one does."""
        until = time.monotonic() + within
        while time.monotonic() < until:
            for number, member in enumerate(self.members):
                if member.running and self._leads(number):
                    return number
            time.sleep(0.05)
        raise TimeoutError(f"no member of etcd led within {within:g} s")

    def _leads(self, number: int) -> bool:
        try:
            status = self._ask(number, "maintenance/status")
        except OSError:  # a member that has just started, or hangs
            return False
        return bool(status["header"]["member_id"] == status.get("leader"))

    def ids(self) -> list[str]:
        """How the members name themselves to each other."""
        found = {each["name"]: int(each["ID"]) for each in self._ask(self.leader(), "cluster/member/list")["members"]}
        return [f"{found[f'm{number}']:x}" for number in range(len(self.members))]

    def empty(self) -> None:
        """Lose all keys, as when all disks of etcd are new."""
        every = "AA=="  # from the byte 0 on: without an end
        self._ask(self.leader(), "kv/deleterange", key=every, range_end=every)

    def _ask(self, number: int, what: str, **fields: str) -> dict[str, Any]:
        """Raises OSError."""
        ask = urllib.request.Request(f"http://{self.addresses[number]}/v3/{what}", data=json.dumps(fields).encode())
        with urllib.request.urlopen(ask, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def kill(self, number: int) -> None:
        self.members[number].kill()

    def start(self, number: int) -> None:
        """A member that was killed, again."""
        self.members[number] = self._run(number)

    def pause(self, number: int) -> None:
        self.members[number].signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        self.members[number].signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            if member.running:
                member.kill()
            member.close_pipes()


async def cluster(
    folder: Path, count: int = 3, more: Sequence[str] = (), peers: Sequence[tuple[str, str]] = ()
) -> EtcdCluster:
    """As the constructor, while the loop runs on."""
    return await asyncio.to_thread(EtcdCluster, folder, count, more, peers=peers)


def member(said: bytes) -> str | None:
    """Which member asks by a connection between members that begins so; "" if it does not say."""
    if b"\r\n\r\n" not in said:
        return None
    found = re.search(rb"X-Server-From: *([0-9a-f]+)", said, re.IGNORECASE)
    return found[1].decode() if found is not None else ""
