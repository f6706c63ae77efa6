"""One run of a command ``eruca pipeline …``: common options, Spark session, progress, exit code.

Owns the exit codes: 0 done, 1 failed, 2 wrong arguments (click), 3 done with findings (audit, triage), 130 stopped by
Ctrl-C, 143 by SIGTERM. The last line of an error is its cause. PySpark is imported only when a command runs.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from eruca.admin.text import harmless
from eruca.client.config import NAMESERVER_VARIABLES
from eruca.spark_connector.causes import cause_of
from eruca.spark_connector.errors import NotInstalled
from eruca.spark_connector.runtime.installed import missing
from eruca.standalone.pipeline.charts import bars, shortened
from eruca.standalone.pipeline.early import STOPPED
from eruca.standalone.pipeline.signals import StopSignals, hush_py4j

FAILED = 1
FOUND = 3
LINE_EVERY = 5.0
"""Seconds between two lines of progress without a terminal."""
NARROW = len("17:30:01.123")
"""Columns of a table that are no wider stay whole."""
WIDE = 200
"""Characters of a line without a terminal: a log has room for whole tables."""


@dataclass
class Run:
    """The common options and the console; ``progress`` is the last one reported, ``steps`` the last one of each step.

    For a user who stops the command: ``goal`` is the step that says how far it is, if not every step does; ``go_on`` is
    printed at the end.
    """

    name_server: str
    access: Mapping[str, str]
    master: str
    python: str | None
    settings: Mapping[str, str]
    verbose: bool
    console: Console
    signals: StopSignals = field(init=False)
    progress: Any = None
    steps: dict[str, Any] = field(default_factory=dict)
    goal: str | None = None
    go_on: str = "Run it again."

    def __post_init__(self) -> None:
        self.signals = StopSignals(self.stopped)

    def stopped(self, number: int) -> str:
        """The last line of a command that this signal ended."""
        return f"eruca pipeline: stopped by {signal.Signals(number).name}, {_how_far(self)}. {self.go_on}\n"

    def note(self, progress: Any) -> None:
        """A pipeline reports how far it is."""
        self.progress = self.steps[progress.step] = progress

    def say(self, text: str) -> None:
        """Print one or more lines of the result; what would control the terminal is shown."""
        self.console.print(Text(harmless(text)), soft_wrap=True)

    def bars(self, counts: Mapping[str, int]) -> None:
        """Print a line for each name, in the width of the console."""
        self.say(bars(counts, columns=self.console.width))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str | int]], *, title: str | None = None) -> None:
        """Print rows, in the width of the console: what is longer than a time goes on in the next line."""
        printed = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        most = self.console.width // 2
        texts = [[f"{cell:,}" if isinstance(cell, int) else shortened(cell, most) for cell in row] for row in rows]
        for place, head in enumerate(heads):
            printed.add_column(head, overflow="fold", no_wrap=all(cell_len(row[place]) <= NARROW for row in texts))
        for row in texts:
            printed.add_row(*map(Text, row))
        self.console.print(printed)


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
    """Add the common options to a command, and exit with its code."""

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
        with run.signals:
            code = end(lambda: command(run, **options), run)
        sys.exit(code)

    call.__doc__ = command.__doc__
    call.__name__ = command.__name__
    call.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    for option in reversed(_COMMON):
        call = option(call)
    return call


_COMMON = (
    click.option("-n", "--name-server", envvar=NAMESERVER_VARIABLES, required=True, metavar="HOST:PORT",
                 help="The nameservers, several joined by ';'; else $ROCKETMQ_NAMESRV_ADDR, else $NAMESRV_ADDR."),
    click.option("--access", multiple=True, callback=_pairs, metavar="NAME=VALUE",
                 help="An option of the connection, such as tls=true or namespace=shop. Repeatable."),
    click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", help="The account; else $ROCKETMQ_ACCESS_KEY."),
    click.option("--secret-key", envvar="ROCKETMQ_SECRET_KEY", help="Its secret; better in $ROCKETMQ_SECRET_KEY."),
    click.option("--master", default="local[2]", show_default=True,
                 help="Where Spark runs: local[n], or a cluster such as spark://host:7077."),
    click.option("--python", envvar="PYSPARK_PYTHON", metavar="PATH",
                 help="The Python of Spark's tasks; else $PYSPARK_PYTHON, else this one."),
    click.option("--conf", multiple=True, callback=_pairs, metavar="NAME=VALUE",
                 help="A setting of Spark, such as spark.executor.memory=2g. Repeatable."),
    click.option("--verbose", is_flag=True, help="Show Spark's own log."),
)  # fmt: skip


def end(work: Callable[[], int | None], run: Run | None = None) -> int:
    """Run a command and return its exit code; errors go to the error output."""
    try:
        code = work() or 0
    except KeyboardInterrupt:
        if run is None:
            sys.stderr.write("eruca pipeline: stopped\n")
            return STOPPED + signal.SIGINT
        number = run.signals.number or signal.SIGINT  # Spark handles SIGINT itself while a session starts
        sys.stderr.write(run.stopped(number))
        return 0 if run.signals.awaited else STOPPED + number
    except Exception as error:
        code = FAILED
        if run is None or run.signals.number is None:
            sys.stderr.write(f"eruca pipeline: {harmless(_sentence(error))}\n")
        elif not run.signals.at_once:
            run.go_on = f"It could not end in order ({harmless(cause_of(error))}). {run.go_on}"
    if run is not None and run.signals.number is not None and (run.signals.at_once or code == FAILED):
        sys.stderr.write(run.stopped(run.signals.number))
        return STOPPED + run.signals.number
    return code


def _how_far(run: Run) -> str:
    progress = run.progress if run.goal is None else run.steps.get(run.goal)
    if progress is None:
        return "before anything was finished" if run.goal is None else f"nothing was {run.goal} yet"
    of = "" if progress.total is None else f" of {progress.total:,}"
    return f"{progress.done:,}{of} {progress.step} so far"


def _sentence(error: Exception) -> str:
    """The sentence for a user. Raises an error that is no fault of theirs again."""
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


def perform(
    run: Run, work: Callable[..., Any], *, until_stopped: bool | None = None, with_spark: bool = True, **options: Any
) -> Any:
    """The summary of a pipeline, which runs with the common options while its progress is shown.

    ``until_stopped``: of a pipeline that can go on, whether it does so until a signal.
    """
    gently = run.signals.gently() if until_stopped else nullcontext()
    opened = session(run) if with_spark else nullcontext()
    with gently as stop, opened as spark, show_progress(run) as tell:
        if until_stopped is not None:
            options["until_stopped"] = stop
        return work(spark, name_server=run.name_server, access=run.access, tell=tell, **options)


@contextmanager
def session(run: Run) -> Iterator[Any]:
    """The Spark session of a command. A signal cancels its jobs."""
    from eruca.spark_connector.pipelines import open_session

    if not run.verbose:
        hush_py4j()
    opened = open_session(
        master=run.master,
        python=run.python,
        settings=run.settings,
        quiet=not run.verbose,
        launched=run.signals.check,
    )
    with opened as spark, run.signals.cancelling(spark):
        yield spark


@contextmanager
def show_progress(run: Run) -> Iterator[Callable[[Any], None]]:
    """Show progress on the error output: a bar on a terminal, else a line every few seconds."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last = [time.monotonic()]

        def line(progress: Any) -> None:
            run.note(progress)
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
            run.note(progress)
            bar.update(task, description=progress.step, completed=progress.done, total=progress.total)

        yield draw
