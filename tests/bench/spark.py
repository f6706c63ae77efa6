"""Spark's source and sink beside Kafka's: `python -m tests.bench.spark`, the second half of `make bench`.

    --short          200,000 rows of 128 B, three runs a row (about three minutes)
    --rows N         rows in a topic; default 1,000,000
    --size BYTES,..  sizes of their bodies; default 128,1024
    --runs N         runs a row; default 5, short 3
    --only WORD,...  these rows only, of read, stream, write and micro-batch
    --eruca-only     without Kafka and Apache RocketMQ, and so without Maven

Thousand rows a second from the call to its return, in one session on two threads; a stream's start is a process that
imports everything, so its triggers are also given alone, by Spark's own account (`triggerExecution`). The systems take
turns, run by run, so that what else happens on the machine meets all of them; the first round is not counted. All
brokers are as they are installed. Prints its tables as Markdown, and writes them to docs/benchmarks.md when no
option but --short is given.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench import report
from tests.bench.command_line import some_of
from tests.bench.kafka_broker import KafkaBroker, source_jars
from tests.bench.spark_batches import base_lines
from tests.bench.spark_systems import QUEUES, RELEASE, TRIGGER, Kafka, RocketMQ
from tests.bench.systems import PROPERTIES, BenchApache
from tests.support.eruca import ErucaCluster
from tests.support.java import missing_tool
from tests.support.spark import spark_session

MICRO_BATCH = "micro-batch"
KINDS = ["read", "stream", "write", MICRO_BATCH]
MICRO_BATCHES = 30
Systems = list[RocketMQ | Kafka]
Rates = dict[str, dict[str, list[float]]]
"""Thousand rows a second by row of the table and system."""


@contextlib.contextmanager
def systems(home: Path, *, eruca_only: bool) -> Iterator[Systems]:
    """All systems of this machine, in one session."""
    config = {"spark.ui.showConsoleProgress": "false"}
    if not eruca_only:
        config["spark.jars"] = source_jars()
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(spark_session(home / "spark", config=config))
        cluster = stack.enter_context(ErucaCluster(home / "eruca", PROPERTIES))
        found: Systems = [RocketMQ("Eruca", spark, cluster, home / "eruca-queries")]
        if not eruca_only:
            apache = stack.enter_context(BenchApache(home / "apache", PROPERTIES))
            found.append(RocketMQ(f"Apache {RELEASE}", spark, apache, home / "apache-queries"))
            found.append(Kafka(spark, stack.enter_context(KafkaBroker(home / "kafka"))))
        yield found


def measure(every: Systems, size: int, rows: int, runs: int, only: list[str]) -> Rates:
    """The rows of the table for messages of this size."""
    for each in every:
        begun = time.perf_counter()
        each.fill(size, rows)
        say(f"{each.title}: filled in {time.perf_counter() - begun:.1f} s")
    rates: Rates = {}
    for turn in range(runs + 1):
        for each in every:
            for name, work in each.works(size, rows).items():
                if name.split(",")[0] not in only:
                    continue
                begun = time.perf_counter()
                triggers = work()
                took = {name: time.perf_counter() - begun}
                if triggers is not None:
                    took[f"{name}, its triggers alone"] = triggers
                for what, seconds in took.items():
                    rate = rows / seconds / 1000
                    say(f"{each.title}, {what}, {size:,} B: {rate:,.0f}")
                    if turn:
                        rates.setdefault(f"{what}, {size:,} B", {}).setdefault(each.title, []).append(rate)
    return rates


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rate_table(every: Systems, rates: Rates) -> str:
    """The rates, and those against Kafka's, as Markdown."""
    titles = [each.title for each in every]
    lines = [
        "### Spark: throughput",
        "",
        f"| thousand rows per second | {' | '.join(f'{title}: median (best)' for title in titles)} |",
        f"|---|{'---|' * len(titles)}",
    ]
    for name, cells in rates.items():
        kafka = median(cells[Kafka.title]) if Kafka.title in cells else None
        shown = []
        for title in titles:
            cell = cells.get(title)
            ratio = f", {median(cell) / kafka:.1f} x Kafka" if cell and kafka and title != Kafka.title else ""
            shown.append(f"**{median(cell):,.0f}** ({max(cell):,.0f}){ratio}" if cell else "")
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join([*lines, ""])


def batch_table(every: Systems) -> str:
    """The smallest micro-batches, and what of them is Spark's own."""
    took = {f"{each.title}, {QUEUES} queues": each.micro_batches(MICRO_BATCHES) for each in every if each.streams}
    lines = [
        "### Spark: the smallest micro-batch",
        "",
        "| ms, trigger to end | min / median / max |",
        "|---|---|",
    ]
    for name, batches in {**base_lines(every[0].spark, MICRO_BATCHES), **took}.items():
        lines.append(f"| {name} | {report.spread(batches, 0)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Print the tables, and keep them."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--short", action="store_true")
    parse.add_argument("--rows", type=int)
    parse.add_argument("--size")
    parse.add_argument("--runs", type=int)
    parse.add_argument("--only", type=some_of(KINDS))
    parse.add_argument("--eruca-only", action="store_true")
    asked = parse.parse_args()
    missing = None if asked.eruca_only else missing_tool()
    if missing:
        sys.exit(f"The benchmark cannot run: {missing}; --eruca-only needs none of it.")
    rows = asked.rows or (200_000 if asked.short else 1_000_000)
    sizes = [int(size) for size in (asked.size or ("128" if asked.short else "128,1024")).split(",")]
    runs = asked.runs or (3 if asked.short else 5)
    only = asked.only or KINDS
    with (
        tempfile.TemporaryDirectory(prefix="eruca-bench-") as folder,
        systems(Path(folder), eruca_only=asked.eruca_only) as every,
    ):
        rates: Rates = {}
        for size in sizes if set(only) - {MICRO_BATCH} else ():
            rates |= measure(every, size, rows, runs, only)
            say(rate_table(every, rates))
        parts = [
            f"Measured on {time.strftime('%Y-%m-%d %H:%M')}{' (short form)' if asked.short else ''}: {rows:,} rows in "
            f"{QUEUES} queues, {runs} runs per row, the systems in turn; streams with {TRIGGER:,} rows per trigger; "
            f"PySpark {every[0].spark.version} on two threads, brokers and Spark on one machine.",
            "",
            *([rate_table(every, rates)] if rates else []),
            *([batch_table(every)] if MICRO_BATCH in only else []),
        ]
    figures = "\n".join(parts)
    print(figures)
    if not (asked.rows or asked.size or asked.runs or asked.only or asked.eruca_only):
        report.write_page(figures, "Spark")


if __name__ == "__main__":
    main()
