"""What fails again and again: a line at first, one a minute, and one at the end."""

from eruca.remoting.log_repeats import Repeats


def test_a_failure_that_lasts_is_a_line_a_minute_with_a_count() -> None:
    now = 0.0
    repeats = Repeats(lambda: now)
    lines = []
    for tick in range(0, 181, 2):
        now = float(tick)
        lines.append(repeats.failed("10.0.0.1:9876"))
    assert [line for line in lines if line is not None] == [
        {},
        {"failures": 31, "seconds": 60},
        {"failures": 61, "seconds": 120},
        {"failures": 91, "seconds": 180},
    ]
    now = 185.0
    assert repeats.failed("10.0.0.2:9876") == {}
    assert repeats.over("10.0.0.1:9876") == {"failures": 91, "seconds": 185}
    assert repeats.over("10.0.0.1:9876") is None
    assert repeats.failed("10.0.0.1:9876") == {}


def test_ten_thousand_failures_are_remembered() -> None:
    repeats = Repeats(lambda: 0.0)
    for number in range(10_000):
        repeats.failed(number)
    assert repeats.failed(0) is None, "it has had its line"
    assert repeats.failed("one more") == {}
    assert repeats.over(0) is None, "with one more all are forgotten"
