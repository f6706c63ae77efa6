"""The pages of a daemon over HTTP, as Prometheus and curl see them."""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple


class Page(NamedTuple):
    """An answer."""

    status: int
    fields: dict[str, str]
    text: str


async def page(port: int, path: str, accept: str = "", method: str = "GET") -> Page:
    """What a path answers on the loopback address."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    return Page(int(first.split()[1]), fields, body.decode())


class Scrape:
    """The families and series of /metrics in Prometheus' text format."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.types: dict[str, str] = dict(re.findall(r"(?m)^# TYPE (\w+) (\w+)$", text))
        self._series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
                assert match is not None, line
                name, labels, value = match.groups()
                key = name, frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))
                assert key not in self._series, f"twice: {line}"
                self._series[key] = float(value)

    def all(self, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        """The series of a name that have these labels, among others."""
        wanted = labels.items()
        return {
            those: value
            for (each, those), value in self._series.items()
            if each == name and wanted <= dict(those).items()
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the one series with these labels, None where there is none."""
        found: list[Any] = list(self.all(name, **labels).values())
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None

    def labels(self, name: str) -> set[str]:
        """The names of the labels of a family's series."""
        return {label for those in self.all(name) for label, _ in those}


async def scrape(port: int) -> Scrape:
    """What /metrics answers."""
    answer = await page(port, "/metrics")
    assert answer.status == 200, answer
    return Scrape(answer.text)
