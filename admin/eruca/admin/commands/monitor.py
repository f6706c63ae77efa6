"""The command that watches a cluster until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from eruca.admin.command import Job, Shown, command
from eruca.admin.errors import AdminError, Status
from eruca.admin.posix import Option
from eruca.admin.results.monitor import Line, Monitor
from eruca.admin.text import millis_text


@command(
    "startMonitoring",
    Option("", "interval", "seconds from round to round; default 60", kind="number", least=1),
    Option("", "rounds", "end after this number of rounds; default: never", kind="number", least=1),
    results=(Line,),
)
async def start_monitoring(job: Job) -> AsyncIterator[Shown]:
    """206 and, for each group with members, 203, 208, 307, and the last message of each queue; 106 and 28."""
    interval, rounds = job.number("interval", 60), job.number("rounds")
    monitor = Monitor(job.admin)
    done = failed = 0
    while True:
        done += 1
        try:
            async for line in monitor.round():
                yield Shown(line, partial(job.line, f"{millis_text(line.at.ms)} {line.text}"))
        except AdminError as error:
            failed += 1
            if done == rounds == failed:
                raise
            more = "" if done == rounds else f"; the next round is in {interval} s"
            job.say(f"mqadmin startMonitoring: {error}{more}")
        job.finish()
        if done == rounds:
            job.status = Status.PARTIAL if failed else job.status
            return
        await asyncio.sleep(interval)
