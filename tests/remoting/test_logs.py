"""What daemons log, and where servers within a program log to."""

import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog
from structlog.typing import EventDict

from eruca.remoting.log import log
from eruca.remoting.logs import log_to_logging, log_to_stderr
from tests.support.full_pipes import fill_pipe
from tests.support.stopwatch import Stopwatch


def test_a_traceback_shows_code_and_no_values(capfd: pytest.CaptureFixture[str]) -> None:
    secret_key = "".join(("top", "-", "secret"))
    with log_to_stderr():
        try:
            raise ValueError(len(secret_key))
        except ValueError:
            structlog.get_logger().exception("request_failed", opaque=7)
        structlog.get_logger().debug("too much")
    out, err = capfd.readouterr()
    assert out == ""
    assert "request_failed" in err and "opaque=7" in err and "ValueError: 10" in err
    assert "top-secret" not in err and "too much" not in err and "\x1b" not in err


def test_a_flood_of_one_event_is_ten_lines_and_a_count(capfd: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr():
        for number in range(500):
            log.warning("bad_frame", number=number)
        for number in range(20):
            structlog.get_logger("eruca.broker.audit").info("topic_deleted", number=number)
    lines = capfd.readouterr().err.splitlines()
    frames = [line for line in lines if " bad_frame " in line]
    more = [int(found[1]) for line in lines if (found := re.search(r"bad_frame: and (\d+) more$", line))]
    assert len(frames) + sum(more) == 500
    assert len(more) <= len(frames) // 10 <= 5  # unless the machine slept for seconds
    assert sum("topic_deleted" in line for line in lines) == 20


def test_messages_of_logging_warnings_and_threads_go_the_same_way(capfd: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr():
        logging.getLogger("asyncio").error("Task was destroyed\n\x1b[2J")
        wrong = logging.LogRecord("asyncio", logging.ERROR, "file", 1, "wrong %d", ("arguments",), None)
        logging.getLogger().handlers[-1].handle(wrong)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("odd", stacklevel=1)
        thread = threading.Thread(target=lambda: 1 // 0, name="worker")
        thread.start()
        thread.join()
    err = capfd.readouterr().err
    assert "[error    ] asyncio                        message='Task was destroyed\\n\\x1b[2J'\n" in err
    assert "message='wrong %d'\n" in err
    assert "[warning  ] py.warnings " in err and "UserWarning: odd" in err
    assert "[error    ] thread_failed " in err and "\n  ZeroDivisionError" in err
    assert [line for line in err.splitlines() if not line.startswith(("2", "  "))] == []


def test_the_last_sentence_comes_last_and_an_error_ends_with_70(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, log_to_stderr() as say:
        log.warning("configuration")
        say("boot success")
        sys.exit("mqbroker: cannot start")
    out, err = capfd.readouterr()
    assert (end.value.code, out) == (1, "boot success\n")
    assert err.splitlines()[-1] == "mqbroker: cannot start" and err.count("\n") == 2
    with pytest.raises(SystemExit) as end, log_to_stderr():
        raise ZeroDivisionError
    assert end.value.code == os.EX_SOFTWARE == 70
    assert "[error    ] daemon_failed" in capfd.readouterr().err
    with pytest.raises(SystemExit) as end, log_to_stderr():
        sys.exit(3)
    assert end.value.code == 3


@contextmanager
def stalled_streams() -> Iterator[None]:
    """Standard output and standard error are pipes that nobody reads, and that are full."""
    pipes = [os.pipe() for _ in range(2)]
    streams = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for (_, writing), (number, _) in zip(pipes, streams, strict=True):
            fill_pipe(writing)
            os.dup2(writing, number)
        yield
    finally:
        for number, former in streams:
            os.dup2(former, number)
            os.close(former)
        for descriptors in pipes:
            for descriptor in descriptors:
                os.close(descriptor)


def test_the_end_waits_a_second_for_both_streams_together(capfd: pytest.CaptureFixture[str]) -> None:
    with stalled_streams():
        began = time.monotonic()
        with Stopwatch() as watch, log_to_stderr() as say:
            log.warning("unread")
            say("unread")
        assert time.monotonic() - began >= 1 and watch.seconds < 1.7


def test_servers_within_a_program_log_to_logging(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log_to_logging()
    with caplog.at_level(logging.INFO):
        structlog.get_logger("eruca.broker").info("store_opened", clean=True)
        log.warning("bad_frame", remote="127.0.0.1:1")
        try:
            raise ValueError
        except ValueError:
            structlog.get_logger("eruca.nameserver").exception("request_failed")
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        ("eruca.broker", "INFO", "store_opened clean=True"),
        ("eruca.remoting", "WARNING", "bad_frame remote='127.0.0.1:1'"),
        ("eruca.nameserver", "ERROR", "request_failed"),
    ]
    assert "ValueError" in str(caplog.records[-1].exc_info)
    structlog.get_logger().info("said by the program itself")
    out, err = capsys.readouterr()
    assert "said by the program itself" in out and "eruca" not in out and "store_opened" not in out + err


def test_a_program_that_configured_structlog_gets_it_all_there(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []

    def hear(logger: object, level: str, event: EventDict) -> str:
        heard.append(event["event"])
        return ""

    structlog.configure(processors=[hear])
    log_to_logging()
    structlog.get_logger("eruca.broker").warning("store_opened")
    log.warning("bad_frame")
    assert (heard, caplog.records) == (["store_opened", "bad_frame"], [])
