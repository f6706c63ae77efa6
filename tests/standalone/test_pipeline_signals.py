"""Signals to `eruca pipeline …`: during work in Python, during calls to Spark, and with --until-stopped."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

import pytest
from rich.console import Console

from eruca.spark_connector import SourceError
from eruca.spark_connector.pipelines import Progress
from eruca.standalone.pipeline.run import Run, end
from eruca.standalone.pipeline.signals import SIGNALS, StopSignals, hush_py4j
from tests.support.processes import Process


@pytest.fixture
def run() -> Iterator[Run]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    run = Run("mq:9876", {}, "local[2]", None, {}, False, Console(), go_on="Run it again: it goes on.")
    with run.signals:
        yield run
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


class Session:
    """A fake Spark session whose jobs end when they are cancelled."""

    def __init__(self) -> None:
        self.streams = self.sparkContext = self
        self.active: list[object] = []
        self.cancelled = threading.Event()

    def cancelAllJobs(self) -> None:
        self.cancelled.set()


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def inside(module: str, work: Callable[[], None]) -> Callable[[], None]:
    """The function, as if it were defined in that module."""
    assert isinstance(work, FunctionType)
    there = {**work.__globals__, "__name__": module}
    return FunctionType(work.__code__, there, closure=work.__closure__)


WHILE_IMPORTING = """
import os, sys
class Signals:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Signals())
sys.argv = ["eruca", "pipeline", "archive", "-n", "mq:9876", "--topic", "t", "--to", "lake"]
from eruca.standalone.start import main
main()
"""


@pytest.mark.parametrize("module", ["eruca.standalone.cli", "eruca.standalone.pipeline.charts"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_command_that_is_still_being_imported(number: signal.Signals, module: str) -> None:
    program = [sys.executable, "-c", WHILE_IMPORTING.format(module=module, number=int(number))]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)

    assert done.returncode == 128 + number
    assert done.stderr == f"eruca pipeline: stopped by {number.name}, before anything was begun. Run it again.\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_imported_early_leaves_the_signals_as_they_were(number: signal.Signals) -> None:
    program = (
        "import signal; from eruca.standalone.pipeline import early; "
        f"before = signal.getsignal({int(number)}); early.listen(); "
        "from eruca.standalone.pipeline.signals import StopSignals\n"
        "with StopSignals(str): pass\n"
        f"assert signal.getsignal({int(number)}) is before"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_what_python_does_at_once(
    run: Run, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def work() -> None:
        with run.signals.cancelling(Session()):
            run.note(Progress("sent", 1200, 5000))
            send(number)
            raise AssertionError("this is not reached")

    assert end(work, run) == 128 + number
    assert capsys.readouterr().err == (
        f"eruca pipeline: stopped by {number.name}, 1,200 of 5,000 sent so far. Run it again: it goes on.\n"
    )


def test_while_spark_is_asked_its_work_is_cancelled_and_nothing_is_raised(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    spark = Session()

    def ask() -> None:
        send(signal.SIGTERM)
        assert spark.cancelled.wait(60)
        raise SourceError("the job was cancelled")

    def work() -> None:
        with run.signals.cancelling(spark):
            inside("py4j.clientserver", ask)()

    assert end(work, run) == 143
    assert capsys.readouterr().err == TOLD


TOLD = "eruca pipeline: stopped by SIGTERM, before anything was finished. Run it again: it goes on.\n"


def test_who_stops_a_command_is_told_how_far_the_goal_is(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise KeyboardInterrupt

    for reported, said in (
        ([Progress("tasks of the count", 3, 8)], "nothing was sent yet"),
        ([Progress("sent", 0, 5000)], "0 of 5,000 sent so far"),
        ([Progress("sent", 5000, 5000), Progress("tasks of the grouping", 1, 2)], "5,000 of 5,000 sent so far"),
    ):
        run.goal, run.steps = "sent", {}
        for each in reported:
            run.note(each)
        assert end(work, run) == 130
        assert capsys.readouterr().err == f"eruca pipeline: stopped by SIGINT, {said}. Run it again: it goes on.\n"


def test_while_spark_starts_a_signal_waits_for_the_launch_of_java_alone(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = []

    def launch() -> None:
        send(signal.SIGTERM)
        reached.append("Java is there")

    def work() -> None:
        inside("pyspark.java_gateway", launch)()
        run.signals.check()
        raise AssertionError("this is not reached")

    assert (end(work, run), reached, capsys.readouterr().err) == (143, ["Java is there"], TOLD)


def test_while_spark_starts_its_answer_is_not_waited_for(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def begin() -> None:
        send(signal.SIGTERM)
        raise AssertionError("this is not reached")

    assert end(inside("py4j.clientserver", begin), run) == 143
    assert capsys.readouterr().err == TOLD


def test_before_spark_is_there_nothing_is_to_be_ended_in_order(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with run.signals.gently():
            send(signal.SIGTERM)
            raise AssertionError("this is not reached")

    assert (end(work, run), capsys.readouterr().err) == (0, TOLD), "the signal is what it was to wait for"


def test_ctrl_c_that_spark_has_taken_ends_the_command_too(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise KeyboardInterrupt

    assert (end(work, run), capsys.readouterr().err) == (130, TOLD.replace("SIGTERM", "SIGINT"))


def test_what_py4j_logs_of_a_call_that_is_interrupted_is_not_shown_until_the_command_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def log() -> None:
        logging.getLogger().error("Exception while sending command.")
        logging.getLogger("py4j.clientserver").error("There was an exception while executing the Python Proxy")

    with StopSignals(str):
        hush_py4j()
        log()
        assert caplog.records == []
    log()
    assert len(caplog.records) == 2


def test_what_goes_on_until_it_is_stopped_ends_as_it_should(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with run.signals.gently() as stop, run.signals.cancelling(Session()):
            send(signal.SIGTERM)
            assert stop.wait(60)

    assert (end(work, run), capsys.readouterr().err) == (0, "")


def test_what_fails_at_its_end_says_so(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with run.signals.gently(), run.signals.cancelling(Session()):
            send(signal.SIGINT)
            raise SourceError("The broker is away.")

    assert end(work, run) == 130
    assert capsys.readouterr().err == (
        "eruca pipeline: stopped by SIGINT, before anything was finished. It could not end in order "
        "(The broker is away.). Run it again: it goes on.\n"
    )


STUBBORN = """
import time
from types import SimpleNamespace
from rich.console import Console
from eruca.spark_connector.pipelines import Progress
from eruca.standalone.pipeline.run import Run

run = Run("mq:9876", {}, "local[2]", None, {}, False, Console(), go_on="Run it again: it goes on.")
run.note(Progress("sent", 1200, 5000))
nothing = SimpleNamespace(active=[])
with run.signals, run.signals.gently() as stop, run.signals.cancelling(SimpleNamespace(streams=nothing)):
    print("works", flush=True)
    stop.wait()
    print("ends", flush=True)
    while True:
        time.sleep(60)
"""


def test_the_second_signal_ends_the_program_at_once_and_says_how_far_it_was(tmp_path: Path) -> None:
    with Process([sys.executable, "-c", STUBBORN], tmp_path / "told") as process:
        process.wait_for_line("works")
        process.signal(signal.SIGTERM)
        process.wait_for_line("ends")
        process.signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT
        assert process.output.splitlines()[-1] == TOLD.strip().replace("SIGTERM", "SIGINT").replace(
            "before anything was finished", "1,200 of 5,000 sent so far"
        )
