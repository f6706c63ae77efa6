"""The figures as tables in Markdown, and the page that has them.

Owns the layout: minimum, median and maximum of both systems side by side, and their ratio. Writes between two marks of
docs/benchmarks.md; the rest of the page is written by hand.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.bench.rows import Measured, Row
from tests.bench.systems import SYSTEMS, System
from tests.support.java import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
END = "<!-- end of figures -->"
Runs = Mapping[System, Sequence[Measured]]


def spread(values: Sequence[float], digits: int = 1) -> str:
    """`min / **median** / max`."""
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), median(values), max(values)))
    return f"{low} / **{middle}** / {high}"


def table(title: str, rows: Sequence[tuple[str, Mapping[System, Sequence[float]]]], unit: str, digits: int = 1) -> str:
    """One table; the last column is Eruca's median divided by Apache's."""
    apache, eruca = SYSTEMS
    lines = [
        f"### {title}",
        "",
        f"| {unit} | {apache.title}: min / median / max | {eruca.title}: min / median / max | Eruca / Apache |",
        "|---|---|---|---|",
    ]
    for name, values in rows:
        ratio = median(values[eruca]) / median(values[apache])
        lines.append(f"| {name} | {spread(values[apache], digits)} | {spread(values[eruca], digits)} | {ratio:.2f} |")
    return "\n".join([*lines, ""])


def load_tables(measured: Mapping[Row, Runs], latency: str) -> str:
    """CPU per message, messages per second, latencies."""

    def of(choose: Callable[[Measured], float]) -> list[tuple[str, dict[System, list[float]]]]:
        return [
            (row.title, {system: [choose(each) for each in runs[system]] for system in SYSTEMS})
            for row, runs in measured.items()
            if row.name != latency
        ]

    parts = [
        table("Broker: CPU per message", of(lambda run: run.cpu_us), "µs, user and system"),
        table("Broker: throughput", of(lambda run: run.rate), "messages per second", 0),
    ]
    for row, runs in measured.items():
        if row.name == latency:
            spans = [
                ("median", {system: [run.p50_us / 1000 for run in runs[system]] for system in SYSTEMS}),
                ("99 %", {system: [run.p99_us / 1000 for run in runs[system]] for system in SYSTEMS}),
            ]
            parts.append(table(f"Latency: {row.title}", spans, "ms", 2))
    return "\n".join(parts)


def conditions(home: Path, runs: int, short: bool) -> str:
    """The machine and the method."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()[0]
    return "\n".join(
        [
            f"Measured on {time.strftime('%Y-%m-%d %H:%M')} by `make bench`"
            f"{' (short form)' if short else ''}: {runs} runs per row, the two systems in turn; client, nameserver "
            "and broker on one machine, loopback; load by Apache's Java client 4.9.7; by default bodies of 128 B, "
            "binary headers, ASYNC_FLUSH; topics of 8 queues.",
            "",
            f"- {os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}, "
            f"Python {platform.python_version()}, {java}",
            f"- fdatasync of 4 KiB on this disk: {fsync_ms(home):.2f} ms (median)",
            f"- load average at the end: {os.getloadavg()[0]:.1f} (the benchmark alone makes about 2)",
            "",
        ]
    )


def fsync_ms(home: Path) -> float:
    """The time of a small durable write on this disk: the median of 50."""
    spans = []
    with (home / "fsync").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(4096))
            begun = time.monotonic()
            os.fdatasync(file.fileno())
            spans.append((time.monotonic() - begun) * 1000)
    return median(spans)


def write_page(figures: str, what: str = "figures") -> None:
    """Replace the figures of that name in the page."""
    begin = f"<!-- {what}: written by make bench -->"
    before, found, rest = PAGE.read_text().partition(begin)
    if not found:
        raise ValueError(f"{PAGE} has no line {begin}")
    PAGE.write_text(f"{before}{begin}\n{figures}\n{END}{rest.partition(END)[2]}")
