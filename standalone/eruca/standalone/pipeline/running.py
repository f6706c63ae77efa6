"""What the commands ``eruca pipeline …`` share: their common options, a session, progress, and how they end.

Owns the exit codes: 0 done, 1 failed, 2 wrong arguments (click), 3 done and something is wrong (audit, triage), 130
stopped by Ctrl-C, 143 by SIGTERM. The last line of an error is its cause. PySpark is imported only when a command runs.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from eruca.spark_connector.causes import cause_of
from eruca.spark_connector.errors import NotInstalled
from eruca.spark_connector.runtime.installed import missing
from eruca.standalone.pipeline.stopping import Stopping

FAILED = 1
FOUND = 3
STOPPED = 128
"""And the number of the signal."""
LINE_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""
WIDE = 200
"""Characters of a line where there is no terminal: a log has room for whole tables."""


@dataclass
class Run:
    """What the common options say, and the console; ``progress`` is the last that was told.

    ``go_on`` is what a user is told who has stopped the command.
    """

    name_server: str
    access: Mapping[str, str]
    master: str
    python: str | None
    settings: Mapping[str, str]
    verbose: bool
    console: Console
    stopping: Stopping = field(default_factory=Stopping)
    progress: Any = None
    go_on: str = "Run it again."

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
        with run.stopping:
            code = end(lambda: command(run, **options), run)
        sys.exit(code)

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


def end(work: Callable[[], int | None], run: Run | None = None) -> int:
    """The exit code of a command that does ``work``; what went wrong is told."""
    try:
        code = work() or 0
    except KeyboardInterrupt:
        if run is None:
            sys.stderr.write("eruca pipeline: stopped\n")
            return STOPPED + signal.SIGINT
        number = run.stopping.number or signal.SIGINT  # Spark takes that one itself while a session begins
        sys.stderr.write(f"eruca pipeline: {_stopped(run, number)}\n")
        return 0 if run.stopping.awaited else STOPPED + number
    except Exception as error:
        code = FAILED
        if run is None or run.stopping.number is None:
            sys.stderr.write(f"eruca pipeline: {_sentence(error)}\n")
        elif not run.stopping.at_once:
            run.go_on = f"It could not end in order ({cause_of(error)}). {run.go_on}"
    if run is not None and run.stopping.number is not None and (run.stopping.at_once or code == FAILED):
        sys.stderr.write(f"eruca pipeline: {_stopped(run, run.stopping.number)}\n")
        return STOPPED + run.stopping.number
    return code


def _stopped(run: Run, number: int) -> str:
    told = run.progress
    if told is None or not told.done:
        return f"stopped by {signal.Signals(number).name}. {run.go_on}"
    of = "" if told.total is None else f" of {told.total:,}"
    return f"stopped by {signal.Signals(number).name}, {told.done:,}{of} {told.step} so far. {run.go_on}"


def _sentence(error: Exception) -> str:
    """What a user is told; an error that is none of theirs is raised again."""
    if isinstance(error, NotInstalled):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        found = missing(error)
        if found is error:
            raise error
        return str(found)
    from py4j.protocol import Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from eruca.spark_connector import BadOption, SinkError, SourceError
    from eruca.spark_connector.java import NoJava

    if isinstance(error, Py4JNetworkError):
        return "Spark's Java process is gone: it was ended, or had too little memory (--verbose shows its last words)."
    if not isinstance(error, PySparkException | Py4JJavaError | BadOption | SinkError | SourceError | NoJava | OSError):
        raise error
    return cause_of(error)


@contextmanager
def session(run: Run) -> Iterator[Any]:
    """The Spark session of a command; a signal ends what it does."""
    from eruca.spark_connector.pipelines import open_session

    opened = open_session(
        master=run.master,
        python=run.python,
        settings=run.settings,
        quiet=not run.verbose,
        launched=run.stopping.check,
    )
    with opened as spark, run.stopping.cancelling(spark):
        yield spark


@contextmanager
def telling(run: Run) -> Iterator[Callable[[Any], None]]:
    """Shows progress on the error output: a bar on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last = [time.monotonic()]

        def line(progress: Any) -> None:
            run.progress = progress
            if time.monotonic() - last[0] >= LINE_EVERY:
                last[0] = time.monotonic()
                of = "" if progress.total is None else f" of {progress.total:,}"
                console.print(f"{progress.done:,}{of} {progress.step}", highlight=False, markup=False)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def draw(progress: Any) -> None:
            run.progress = progress
            bar.update(task, description=progress.step, completed=progress.done, total=progress.total)

        yield draw
