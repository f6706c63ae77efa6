"""What daemons log, and where servers within a program log to."""

import logging

import pytest
import structlog
from structlog.typing import EventDict

from eruca.remoting.log import log
from eruca.remoting.logs import log_to_logging, log_to_stderr


def test_a_traceback_shows_code_and_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    secret_key = "".join(("top", "-", "secret"))
    try:
        raise ValueError(len(secret_key))
    except ValueError:
        structlog.get_logger().exception("request_failed", opaque=7)
    structlog.get_logger().debug("too much")
    out, err = capsys.readouterr()
    assert out == ""
    assert "request_failed" in err and "opaque=7" in err and "ValueError: 10" in err
    assert "top-secret" not in err and "too much" not in err and "\x1b" not in err


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
