"""What the commands ``eruca pipeline …`` share: their common options, a session, progress, and how they end.

Owns the exit codes: 0 done, 1 failed, 2 wrong arguments (click), 3 done and something is wrong (audit, triage), 130
stopped. The last line of an error is its cause. PySpark is imported only when a command runs.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from eruca.spark_connector.errors import NotInstalled
from eruca.spark_connector.installed import missing

FAILED = 1
FOUND = 3
STOPPED = 130
LINE_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""
WIDE = 200
"""Characters of a line where there is no terminal: a log has room for whole tables."""
_CAUSE = re.compile(r"^(?:[\w.]+\.)?(?:BadOption|SourceError|SinkError|GroupReset|OSError): (.+)$", re.MULTILINE)
_OTHER = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception): .+)$", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """What the common options say, and the console."""

    name_server: str
    access: Mapping[str, str]
    master: str
    python: str | None
    settings: Mapping[str, str]
    verbose: bool
    console: Console

    def say(self, text: str) -> None:
        """A line, or several, of the result."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


def _pairs(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise click.BadParameter(f'"{each}" is expected to be NAME=VALUE.')
        pairs[name] = value
    return pairs


def common(command: Callable[..., int | None]) -> Callable[..., None]:
    """The common options, and the end of the command by its result."""

    def call(
        name_server: str,
        access: dict[str, str],
        access_key: str | None,
        secret_key: str | None,
        master: str,
        python: str | None,
        conf: dict[str, str],
        verbose: bool,
        **options: Any,
    ) -> None:
        account = {"accessKey": access_key, "secretKey": secret_key}
        given = {**{name: value for name, value in account.items() if value}, **access}
        run = Run(name_server, given, master, python, conf, verbose, _console())
        sys.exit(end(lambda: command(run, **options)))

    call.__doc__ = command.__doc__
    call.__name__ = command.__name__
    call.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    for option in reversed(_COMMON):
        call = option(call)
    return call


_COMMON = (
    click.option("-n", "--name-server", envvar="NAMESRV_ADDR", required=True, metavar="HOST:PORT",
                 help="The nameservers, several joined by ';'; else $NAMESRV_ADDR."),
    click.option("--access", multiple=True, callback=_pairs, metavar="NAME=VALUE",
                 help="An option of the connection, such as tls=true or namespace=shop. Repeatable."),
    click.option("--access-key", envvar="MQ_ACCESS_KEY", help="The account; else $MQ_ACCESS_KEY."),
    click.option("--secret-key", envvar="MQ_SECRET_KEY", help="Its secret; better in $MQ_SECRET_KEY."),
    click.option("--master", default="local[2]", show_default=True,
                 help="Where Spark runs: local[n], or a cluster such as spark://host:7077."),
    click.option("--python", envvar="PYSPARK_PYTHON", metavar="PATH",
                 help="The Python of Spark's tasks; else $PYSPARK_PYTHON, else this one."),
    click.option("--conf", multiple=True, callback=_pairs, metavar="NAME=VALUE",
                 help="A setting of Spark, such as spark.executor.memory=2g. Repeatable."),
    click.option("--verbose", is_flag=True, help="Show Spark's own log."),
)  # fmt: skip


def end(work: Callable[[], int | None]) -> int:
    """The exit code of a command that does ``work``; what went wrong is told."""
    try:
        return work() or 0
    except KeyboardInterrupt:
        sys.stderr.write("eruca pipeline: stopped\n")
        return STOPPED
    except ModuleNotFoundError as error:
        found = missing(error)
        if found is error:
            raise
        sys.stderr.write(f"eruca pipeline: {found}\n")
        return FAILED
    except NotInstalled as error:
        sys.stderr.write(f"eruca pipeline: {error}\n")
        return FAILED
    except Exception as error:
        if not _is_expected(error):
            raise
        sys.stderr.write(f"eruca pipeline: {cause(error)}\n")
        return FAILED


def _is_expected(error: Exception) -> bool:
    from pyspark.errors import PySparkException

    from eruca.spark_connector import BadOption, SinkError, SourceError
    from eruca.spark_connector.java import NoJava

    return isinstance(error, PySparkException | BadOption | SinkError | SourceError | NoJava | OSError)


def cause(error: Exception) -> str:
    """The sentence that says why: that of Eruca's own error, however deep Spark has wrapped it."""
    text = str(error)
    found = _CAUSE.findall(text)
    if found:
        return str(found[-1]).strip()
    if others := _OTHER.findall(text):  # the end of a traceback in one of Spark's Python processes
        return str(others[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def session(run: Run) -> Iterator[Any]:
    """The Spark session of a command."""
    from eruca.spark_connector.pipelines import open_session

    with open_session(master=run.master, python=run.python, settings=run.settings, quiet=not run.verbose) as spark:
        yield spark


@contextmanager
def telling(run: Run) -> Iterator[Callable[[Any], None]]:
    """Shows progress on the error output: a bar on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last = [time.monotonic()]

        def line(progress: Any) -> None:
            if time.monotonic() - last[0] >= LINE_EVERY:
                last[0] = time.monotonic()
                of = "" if progress.total is None else f" of {progress.total:,}"
                console.print(f"{progress.done:,}{of} {progress.step}", highlight=False, markup=False)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda progress: bar.update(
            task, description=progress.step, completed=progress.done, total=progress.total
        )


@contextmanager
def stop_by_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, instead of ending the program at once."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
