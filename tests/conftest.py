"""What every test run shares: its order, the marker of Spark's tests, and the summary in plain words at its end.

Examples have no deadline, machines are slow.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
os.environ.setdefault("ERUCA_METRICS_PORT", "0")
"""Brokers of tests run side by side, and the usual port of their pages is one; a test of the pages names its own."""
_WORDS = {"passed": "passed", "failed": "failed", "error": "broke", "skipped": "left out", "xfailed": "known to fail"}


_OWNERS_STATE = os.path.expanduser("~/.local/state/mqadmin")


def _keep_out(event: str, details: tuple[object, ...]) -> None:
    if event in ("open", "os.mkdir") and str(details[0]).startswith(_OWNERS_STATE):
        raise AssertionError(f"{details[0]} is the state of whoever runs the tests: give mqadmin an XDG_STATE_HOME")


sys.addaudithook(_keep_out)


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where programs that tests start keep what they want to have again, such as the ways back of mqadmin's resets."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


_LONG_FIRST = ("slow", "spark", "processes")
"""Markers by what their tests take, the longest first."""
_PIPELINES = "tests/spark_connector/pipelines/"


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: many tests wait for other processes."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses a Spark session; side by side, begin with what takes long, so that no worker is left with it.

    Two workers have a session, each with about half of the tests that need one, and no other has.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
            item.add_marker(pytest.mark.xdist_group("pipelines" if item.nodeid.startswith(_PIPELINES) else "spark"))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in _LONG_FIRST])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that failed has its own name, without the group that stands behind it in a worker: it is asked by that."""
    if hasattr(report, "node") and report.nodeid.rfind("@") > report.nodeid.rfind("]"):
        report.nodeid = report.nodeid.rpartition("@")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test leaves nothing to the next one.

    The log is as it was, whatever servers within this process made of it. What a failed test left open goes with it:
    its frames hold sockets, of which the next test would be accused.
    """
    failed = item.session.testsfailed
    done = yield
    structlog.reset_defaults()
    if item.session.testsfailed > failed:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    return done


@pytest.fixture(scope="session")
def quick_java() -> Iterator[None]:
    """Each Java that is started from here on starts quickly."""
    from tests.support import quick_java

    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_java.environment().items():
            patch.setenv(name, value)
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what happened, part by part, above pytest's own list and closing line."""
    parts: Counter[str] = Counter()
    for outcome in _WORDS:
        for report in terminalreporter.stats.get(outcome, []):
            if isinstance(report, pytest.TestReport):
                parts[_part(report.nodeid)] += 1
    counts = {word: len(terminalreporter.stats.get(outcome, [])) for outcome, word in _WORDS.items()}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    terminalreporter.section("in plain words")
    for part, count in sorted(parts.items()):
        terminalreporter.write_line(f"  {part:<18} {count:>6} tests")
    if counts["failed"] or counts["broke"]:
        terminalreporter.write_line(f"Something is wrong: {said}. The names stand below, under 'short test summary'.")
    elif counts["left out"] and not counts["passed"]:
        terminalreporter.write_line(f"Nothing was tested: {said}. Why stands below, test by test.")
    elif counts["left out"]:
        terminalreporter.write_line(f"All is well: {said}. Why some were left out stands below, test by test.")
    else:
        terminalreporter.write_line(f"All is well: {said or 'no test was chosen'}.")


def _part(nodeid: str) -> str:
    """``tests/broker/store/test_x.py::test_y`` belongs to the part ``broker``."""
    pieces = nodeid.split("::")[0].split("/")
    return pieces[1] if len(pieces) > 2 else pieces[-1]
