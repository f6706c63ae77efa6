"""What daemons log."""

from collections.abc import Iterator

import pytest
import structlog

from eruca.remoting.logs import log_to_stderr


@pytest.fixture(autouse=True)
def defaults_again() -> Iterator[None]:
    yield
    structlog.reset_defaults()


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
