"""A bundle for a report: what somebody elsewhere needs to understand a broker, in one archive.

Owns the list of pieces. Must not hold secrets or messages: settings are shown as by ``mqbroker -p``, of the store only
names and sizes are listed, of the log the last lines, which hold neither. Invariant: a piece that cannot be had is a
sentence in the archive, and the others are there.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import platform
import shutil
import signal
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from eruca.admin import cli as mqadmin
from eruca.broker.config import BrokerConfig, complete
from eruca.broker.store import native
from eruca.remoting.command_line import command_line
from eruca.remoting.descriptors import limit, reason
from eruca.remoting.files import cannot_use
from eruca.remoting.operating_system import open_file
from eruca.remoting.version import version

LOG_TAIL = 1 << 20
"""The last bytes of each file of the log."""
PAGES_PORT = 5557
DUMP_TIME = 1.0
"""Seconds that a broker has to write its threads and tasks into its log."""
_PAGE_TIME = 10.0

Piece = tuple[str, Callable[[], str]]


class Bundle:
    """The pieces of one broker; ``conf`` is its broker.conf, ``pages`` its address of health and metrics."""

    def __init__(self, conf: str | None, nameserver: str | None, pages: str | None) -> None:
        arguments = ["-c", conf] if conf else []
        self._shown = command_line(BrokerConfig, "mqbroker", [*arguments, "-p", "--origins"], os.environ).shown or ""
        self._config = complete(command_line(BrokerConfig, "mqbroker", arguments, os.environ).config)
        self._nameserver = nameserver or self._config.namesrv_addr
        self._pages = (pages or f"http://127.0.0.1:{self._config.metrics.metrics_port or PAGES_PORT}").rstrip("/")

    def pieces(self) -> Iterator[Piece]:
        """Names and contents, in the order in which they are made."""
        yield "versions.txt", _versions
        yield "settings.txt", lambda: self._shown
        for page in ("healthz", "readyz", "info", "metrics"):
            yield f"{page}.txt", lambda page=page: self._page(page)  # type: ignore[misc]
        yield "clusterList.txt", lambda: self._mqadmin("clusterList")
        yield "brokerStatus.txt", lambda: self._mqadmin("brokerStatus", "-b", self._info()["address"])
        yield "store.txt", self._store
        yield "dump.txt", self._dump
        for file in self._log_files():
            yield f"log/{file.name}", lambda file=file: _tail(file)  # type: ignore[misc]

    def _page(self, name: str) -> str:
        request = f"{self._pages}/{name}"
        try:
            with urllib.request.urlopen(request, timeout=_PAGE_TIME) as answer:  # noqa: S310 - the operator's
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            return str(refused.read().decode())

    def _info(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._page("info"))
        return found

    def _mqadmin(self, command: str, *arguments: str) -> str:
        if not self._nameserver:
            return "no nameserver is known: -n or namesrvAddr\n"
        said = io.StringIO()
        asyncio.run(mqadmin.run([command, "-n", self._nameserver, *arguments], os.environ, said, said))
        return said.getvalue()

    def _store(self) -> str:
        root = Path(self._config.store.store_path_root_dir)
        space = shutil.disk_usage(root)
        lines = [f"{root}: {space.free} of {space.total} bytes are free"]
        for file in sorted(root.rglob("*")):
            if file.is_file():
                status = file.stat()
                taken = getattr(status, "st_blocks", 0) * 512
                lines.append(f"{status.st_size:>14} {taken:>14} {_moment(status.st_mtime)} {file}")
        return "\n".join(lines) + "\n"

    def _dump(self) -> str:
        """The broker writes what its threads and tasks do into its log."""
        if not hasattr(signal, "SIGUSR1"):
            return "this system has no SIGUSR1\n"
        os.kill(int(self._info()["processId"]), signal.SIGUSR1)
        time.sleep(DUMP_TIME)
        return "the log has the events thread_dumped and dumped\n"

    def _log_files(self) -> list[Path]:
        place = self._config.log.log_file
        if place is None:
            return []
        path = Path(place)
        return [path] if path.suffix == ".log" else sorted(path.glob("*.log"))


def write_bundle(bundle: Bundle, archive: Path) -> list[str]:
    """Write the archive, readable for its owner only; returns a line for each piece. Raises OSError."""
    made = []
    descriptor = open_file(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as packed:
        for name, content in bundle.pieces():
            try:
                text = content()
                made.append(f"{name}: {len(text)} characters")
            except (Exception, SystemExit) as fault:  # whatever is missing, the rest is worth having
                text = f"missing: {_why(fault)}\n"
                made.append(f"{name}: {text.strip()}")
            entry = tarfile.TarInfo(f"{archive.name.partition('.')[0]}/{name}")
            data = text.encode()
            entry.size, entry.mtime = len(data), int(time.time())
            packed.addfile(entry, io.BytesIO(data))
    return made


def _why(fault: BaseException) -> str:
    if isinstance(fault, urllib.error.URLError) and isinstance(fault.reason, OSError):
        return f"the page does not answer ({reason(fault.reason)}): give the address of the broker's pages with --pages"
    return cannot_use(fault) if isinstance(fault, OSError) else f"{type(fault).__name__}: {fault}"


def _versions() -> str:
    load = os.getloadavg() if hasattr(os, "getloadavg") else "unknown"
    return (
        f"eruca {version()}, native step {native.on}\npython {sys.version}\n{platform.platform()}\n"
        f"processors {os.cpu_count()}, load {load}\ndescriptors of this command {limit()}\n"
    )


def _moment(stamp: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stamp))


def _tail(file: Path) -> str:
    with file.open("rb") as log:
        log.seek(max(file.stat().st_size - LOG_TAIL, 0))
        return log.read(LOG_TAIL).decode("utf-8", "replace")
