"""The steps of the demonstration, each timed and checked, and a summary.

Owns the order of the steps. Each claim of the summary is compared message by message before it is printed. A step that
does not hold raises Failed with the expected and the actual result.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from eruca.client import Message, Producer, SendResult, SendStatus
from eruca.remoting.clock import now_ms
from eruca.standalone.demo.processes import Failed, mqadmin, printed, running, start_cluster
from eruca.standalone.demo.replay import SparkFailed, count_with_spark, spark_missing
from eruca.standalone.demo.tally import Place, Tally
from eruca.standalone.demo.text import Line, first_lines

TOPIC = "DemoLines"
GROUP = "demo-readers"
QUEUES = 4
WINDOW = 512
"""Sends in flight at most."""
STEP_SECONDS = 60.0
"""Seconds after which a step has failed."""


class Demonstration:
    """One run with ``count`` lines of text; prints progress and a summary on ``console``."""

    def __init__(self, console: Console, count: int = 10_000) -> None:
        self._console = console
        self._count = count
        self._tally = Tally()
        self._reported = asyncio.Event()
        self._rows: list[tuple[str, str, str]] = []
        self._expected_times: Counter[Place] = Counter()

    async def run(self) -> None:
        """Run all steps and print the summary. Raises Failed. Stops all processes, also on Ctrl-C."""
        lines = first_lines(self._count)
        with tempfile.TemporaryDirectory(prefix="eruca-demo-") as name:
            folder = Path(name)
            async with AsyncExitStack() as stack:
                await self._steps(stack, folder, lines)
        self._console.print(self._summary())
        self._console.print(
            f"All checks passed: {self._count:,} messages were stored, consumed, and consumed again after each rewind, "
            "and each one was compared with what was sent. All processes have ended; all files are deleted."
        )

    async def _steps(self, stack: AsyncExitStack, folder: Path, lines: list[Line]) -> None:
        start = time.perf_counter()
        nameserver = await start_cluster(stack, folder)
        self._done("start a nameserver and a broker", "2 processes", start)
        line = ["updateTopic", "-n", nameserver, "-c", "DefaultCluster", "-t", TOPIC]
        made = await mqadmin(*line, "-r", str(QUEUES), "-w", str(QUEUES))
        self._row("mqadmin updateTopic", f"{TOPIC}, {QUEUES} queues", made.seconds)
        middle, end = await self._send(nameserver, lines)
        await self._consume(stack, folder, nameserver)
        await self._rewind(nameserver, "the middle", middle)
        await self._rewind(nameserver, "the start", 0)
        await self._read_with_spark(nameserver, lines, middle, end)

    # ------------------------------------------------------------------ sending

    async def _send(self, nameserver: str, lines: list[Line]) -> tuple[int, int]:
        """Send both halves of the text; returns a time between the halves and a time after them (ms)."""
        start = time.perf_counter()
        half = len(lines) // 2
        async with Producer("demo-writers", nameserver=nameserver) as producer:
            before = await self._send_all(producer, lines[:half])
            middle = await _next_millisecond(before)
            after = await self._send_all(producer, lines[half:])
        self._done(f"send {len(lines):,} lines of Python's sources", "all acknowledged", start, len(lines))
        return middle, await _next_millisecond(after)

    async def _send_all(self, producer: Producer, lines: list[Line]) -> int:
        """Send lines with a bounded number in flight; returns the time of the last acknowledgement (ms)."""
        in_flight: deque[tuple[Line, asyncio.Future[SendResult]]] = deque()

        async def acknowledge() -> None:
            line, future = in_flight.popleft()
            result = await future
            if result.status is not SendStatus.SEND_OK:
                raise Failed(f"a send was answered with {result.status.name}")
            self._tally.sent(Place(result.queue.queue_id, result.offset), line.body, line.file)

        for line in lines:
            if len(in_flight) >= WINDOW:
                await acknowledge()
            in_flight.append((line, producer.start_send(Message(TOPIC, line.body, keys=line.file))))
        while in_flight:
            await acknowledge()
        return now_ms()

    # ------------------------------------------------------------------ consuming

    async def _consume(self, stack: AsyncExitStack, folder: Path, nameserver: str) -> None:
        start = time.perf_counter()
        log = folder / "consumer.log"
        consumer = await stack.enter_async_context(
            running("-m", "eruca.standalone.demo.consumer", nameserver, TOPIC, GROUP, log=log)
        )
        async with asyncio.timeout(STEP_SECONDS):
            await printed(consumer, "(ready)", log)
        watching = asyncio.ensure_future(self._watch(consumer))
        stack.callback(watching.cancel)
        await self._until(self._count)
        self._expect_again(self._tally.expected.keys())
        self._done("consume in another process", "each compared", start, self._count)

    async def _watch(self, consumer: asyncio.subprocess.Process) -> None:
        assert consumer.stdout is not None
        async for line in consumer.stdout:
            self._tally.consumed(line.decode().rstrip("\n"))
            self._reported.set()

    async def _until(self, total: int) -> None:
        """Wait until ``total`` messages were consumed."""
        try:
            async with asyncio.timeout(STEP_SECONDS):
                while self._tally.total < total:
                    self._reported.clear()
                    await self._reported.wait()
        except TimeoutError:
            raise Failed(f"expected {total:,} consumed messages, got {self._tally.total:,}") from None

    def _expect_again(self, places: Iterable[Place]) -> None:
        """Check that each message was consumed as often as expected, and these once more."""
        self._expected_times.update(places)
        differences = self._tally.differences(self._expected_times)
        if differences:
            raise Failed(f"{len(differences)} messages are wrong; the first: {differences[0]}")

    # ------------------------------------------------------------------ rewinding

    async def _rewind(self, nameserver: str, where: str, to: int) -> None:
        """Reset the group to a time while its consumer is online, and wait for the expected messages."""
        before = self._tally.total
        start = time.perf_counter()
        reset = await mqadmin("resetOffsetByTime", "-n", nameserver, "-g", GROUP, "-t", TOPIC, "-s", str(to))
        offsets = {
            int(queue): int(offset) for queue, offset in re.findall(r"^\S+ +(\d+) +(\d+) *$", reset.output, re.M)
        }
        if len(offsets) != QUEUES:
            raise Failed(f"mqadmin resetOffsetByTime printed no offsets for {QUEUES} queues:\n{reset.output}")
        again = self._tally.from_offsets(offsets)
        self._row(f"mqadmin resetOffsetByTime to {where}", f"to consume again: {len(again):,} messages", reset.seconds)
        await self._until(before + len(again))
        self._expect_again(again)
        text = f"exactly {len(again):,} messages, each compared"
        self._done("the online consumer gets them again (from the start of the command)", text, start)

    # ------------------------------------------------------------------ Spark

    async def _read_with_spark(self, nameserver: str, lines: list[Line], middle: int, end: int) -> None:
        """Read the second half as a batch by its time interval, and count the rows by file."""
        reason = spark_missing()
        if reason is not None:
            self._rows.append(("read the interval with Spark", f"skipped: {reason}", ""))
            return
        start = time.perf_counter()
        expected = Counter(line.file for line in lines[len(lines) // 2 :])
        counted = await count_with_spark(nameserver, TOPIC, middle, end)
        if counted != expected:
            raise Failed(f"Spark counted {counted}, but {expected} were sent in that interval")
        text = f"{sum(expected.values()):,} rows of {len(expected)} files, as sent"
        self._done("read the interval of the second half with Spark", text, start)

    # ------------------------------------------------------------------ results

    def _done(self, step: str, result: str, start: float, messages: int = 0) -> None:
        seconds = time.perf_counter() - start
        if messages:
            result += f", {messages / seconds:,.0f}/s"
        self._row(step, result, seconds)

    def _row(self, step: str, result: str, seconds: float) -> None:
        self._rows.append((step, result, f"{seconds:.2f} s"))
        self._console.print(f"  [green]done[/green]  {step}: {result} ({seconds:.2f} s)", highlight=False)

    def _summary(self) -> Table:
        table = Table("step", "result", "time", title="The main job, on real processes")
        for row in self._rows:
            table.add_row(*row)
        return table


async def _next_millisecond(after: int) -> int:
    """A time (ms) later than ``after`` and already past: messages stored from now on are later still."""
    await asyncio.sleep(0.003)
    return after + 1


def main() -> int:
    """Run the demonstration; returns the exit code."""
    console = Console()
    console.print("Eruca demonstration: a nameserver, a broker, a consumer and mqadmin, each in its own process.")
    try:
        asyncio.run(Demonstration(console).run())
    except (Failed, SparkFailed) as failure:
        console.print(f"[red]The demonstration failed:[/red] {failure}", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped. All processes have ended.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
