"""What goes through, counted and sampled: the clock is ours, a second at a time."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from eruca.broker.state.statistics import Moment, Span, Statistics

START = 1_700_000_000_000


class Run:
    """A broker's statistics over time, sampled every second."""

    def __init__(self, start: int = START) -> None:
        self.now = start
        self.statistics = Statistics("DefaultCluster", start, start)
        self.puts = self.found = self.missed = self.transferred = 0

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.now += 1000
            self.statistics.sample(Moment(self.now, self.puts, self.found, self.missed, self.transferred), self.now)

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None:
        self.statistics.put(topic, queue_id, count, size)
        self.puts += count

    def minute(self, name: str, key: str) -> Span:
        spans = self.statistics.spans(name, key)
        assert spans is not None
        return spans[0]


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_topic_is_the_sum_of_its_queues(run: Run) -> None:
    run.put("T", 0, 1, 100)
    run.put("T", 1, 3, 500)
    run.seconds(10)
    assert run.minute("TOPIC_PUT_NUMS", "T") == Span(4, 0.4, 2.0)
    assert run.minute("TOPIC_PUT_SIZE", "T") == Span(600, 60.0, 300.0)
    assert run.minute("QUEUE_PUT_NUMS", "T@1") == Span(3, 0.3, 3.0)
    assert run.minute("BROKER_PUT_NUMS", "DefaultCluster").sum == 4


def test_a_group_counts_what_it_got(run: Run) -> None:
    run.statistics.got("g", "T", 0, 32, 3200)
    run.statistics.got("g", "T", 1, 8, 800)
    run.statistics.got("other", "T", 0, 1, 1)
    run.seconds(10)
    assert run.minute("GROUP_GET_NUMS", "T@g") == Span(40, 4.0, 20.0)
    assert run.minute("QUEUE_GET_SIZE", "T@0@g") == Span(3200, 320.0, 3200.0)
    assert run.minute("BROKER_GET_NUMS", "DefaultCluster").sum == 41
    assert run.statistics.consume_tps("g", "T") == 4.0
    assert run.statistics.consume_tps("nobody", "T") == 0.0


def test_a_window_begins_just_before_its_counter_did_and_then_moves_on(run: Run) -> None:
    run.seconds(30)
    run.put("T", 0, 60, 60)
    run.seconds(10)
    assert run.minute("TOPIC_PUT_NUMS", "T") == Span(60, 6.0, 60.0)
    run.put("T", 0, 60, 60)
    run.seconds(10)
    assert run.minute("TOPIC_PUT_NUMS", "T") == Span(120, 6.0, 60.0)
    run.seconds(50)
    assert run.minute("TOPIC_PUT_NUMS", "T") == Span(60, 1.0, 60.0), "the first ten seconds are more than a minute ago"
    run.seconds(10)
    assert run.minute("TOPIC_PUT_NUMS", "T") == Span(0, 0.0, 0.0)


def test_hour_and_day_are_sampled_more_slowly(run: Run) -> None:
    run.put("T", 0, 3600, 1)
    run.seconds(10)
    assert run.statistics.spans("TOPIC_PUT_NUMS", "T") == (Span(3600, 360.0, 3600.0), Span(), Span())
    run.seconds(3590)
    spans = run.statistics.spans("TOPIC_PUT_NUMS", "T")
    assert spans is not None
    minute, hour, day = spans
    assert minute == Span(0, 0.0, 0.0)
    assert hour == Span(3600, 1.0, 3600.0)
    assert day == Span(3600, 1.0, 3600.0)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "nobody"),
        ("TOPIC_PUT_NUMS", "T@0"),
        ("TOPIC_PUT", "T"),
        ("QUEUE_PUT_NUMS", "T@7"),
        ("QUEUE_PUT_NUMS", "T@x"),
        ("GROUP_GET_NUMS", "T@g"),
        ("BROKER_PUT_NUMS", "AnotherCluster"),
        ("BROKER_PUT_SIZE", "DefaultCluster"),
        ("NO_SUCH_NUMS", "T"),
        ("", ""),
    ],
)
def test_what_was_never_counted_is_not_there(run: Run, name: str, key: str) -> None:
    run.put("T", 0, 1, 1)
    run.seconds(10)
    assert run.statistics.spans(name, key) is None


def test_a_counter_is_there_before_its_first_sample(run: Run) -> None:
    run.put("T", 0, 1, 1)
    run.statistics.sent_back("g", "T")
    assert run.minute("TOPIC_PUT_NUMS", "T") == Span()
    assert run.minute("SNDBCK_PUT_NUMS", "T@g") == Span()


def test_a_deleted_topic_starts_from_nothing(run: Run) -> None:
    run.put("T", 0, 100, 1)
    run.put("U", 0, 7, 1)
    run.statistics.got("g", "T", 0, 100, 1)
    run.seconds(20)
    run.statistics.forget_topic("T")
    assert run.statistics.spans("TOPIC_PUT_NUMS", "T") is None
    assert run.statistics.spans("GROUP_GET_NUMS", "T@g") is None
    run.put("T", 0, 1, 1)
    run.seconds(10)
    assert run.minute("TOPIC_PUT_NUMS", "T").sum == 1
    assert run.minute("TOPIC_PUT_NUMS", "U").sum == 7


def test_a_deleted_group_is_forgotten(run: Run) -> None:
    run.put("T", 0, 1, 1)
    run.statistics.got("g", "T", 0, 1, 1)
    run.statistics.got("h", "T", 0, 1, 1)
    run.seconds(10)
    run.statistics.forget_group("g")
    assert run.statistics.spans("GROUP_GET_NUMS", "T@g") is None
    assert run.minute("GROUP_GET_NUMS", "T@h").sum == 1
    assert run.minute("TOPIC_PUT_NUMS", "T").sum == 1


def test_rates_need_as_many_seconds_as_they_speak_of(run: Run) -> None:
    run.seconds(1)
    assert run.statistics.rates(lambda moment: moment.puts) == [None, None, None]
    run.puts = 500
    run.seconds(10)
    assert run.statistics.rates(lambda moment: moment.puts) == [50.0, None, None]
    run.seconds(600)
    assert run.statistics.rates(lambda moment: moment.puts) == [0.0, 0.0, 0.0]


def test_totals_are_noted_every_midnight(utc: None) -> None:
    noon = int(datetime.fromisoformat("2026-11-20T23:59:50+00:00").timestamp() * 1000)
    run = Run(noon)
    run.puts, run.transferred = 100, 40
    run.seconds(9)
    assert (run.statistics.put_today, run.statistics.got_today) == (0, 0)
    run.seconds(1)
    assert (run.statistics.put_today, run.statistics.got_today) == (100, 40)
    run.puts = 150
    run.seconds(24 * 3600)
    assert (run.statistics.put_yesterday, run.statistics.put_today) == (100, 150)
    assert (run.statistics.got_yesterday, run.statistics.got_today) == (40, 40)


def test_slow_puts_are_told_apart(run: Run) -> None:
    run.puts = 1000
    for millis in (5, 10, 30, 20_000):
        run.statistics.put_took(millis)
    run.seconds(1)
    times = dict(run.statistics.put_times())
    assert times["[<=0ms]"] == 996
    assert (times["[0~10ms]"], times["[10~50ms]"], times["[10s~]"]) == (1, 2, 1)
    assert run.statistics.slowest_put == 20_000
    assert run.statistics.put_latency(0.99) == 0.0
    assert run.statistics.put_latency(0.999) == 20_000.0
    run.seconds(60)
    assert dict(run.statistics.put_times())["[10s~]"] == 1
    run.seconds(60)
    assert sum(dict(run.statistics.put_times()).values()) == 0
    assert run.statistics.put_latency(0.999) == 0.0


def test_many_queues_are_sampled_at_little_cost(run: Run) -> None:
    """The least of three samples: a machine that others use counts what they took as this thread's."""
    times = []
    for _ in range(3):
        for queue in range(10_000):
            run.put(f"T{queue % 100}", queue, 1, 1)
        run.seconds(9)
        used = time.thread_time()
        run.seconds(1)
        times.append(time.thread_time() - used)
    assert min(times) < 0.5


def test_pulls_that_waited_for_the_disk_have_a_latency(run: Run) -> None:
    for _ in range(4):
        run.statistics.got("G", "T", 1, 10, 100)
    run.statistics.get_took("G", "T", 1, 60)
    run.seconds(10)

    assert run.minute("GROUP_GET_LATENCY", "1@T@G") == Span(60, 6.0, 15.0)
    assert run.statistics.slowest_get == 60
    assert run.statistics.spans("GROUP_GET_LATENCY", "0@T@G") is None
    assert run.statistics.spans("GROUP_GET_LATENCY", "T") is None


def test_counters_that_stand_still_cost_no_memory() -> None:
    queues = 10_000
    with measured() as memory:
        statistics = Statistics("C", 0, 0)
        for queue in range(queues):
            statistics.put("T", queue, 1, 10)
            statistics.got("g", "T", queue, 1, 10)
        statistics.sample(Moment(10_000, 0, 0, 0, 0), 10_000)
        before = memory()
        statistics.sample(Moment(20_000, 0, 0, 0, 0), 20_000)
        assert memory() - before < queues, "less than a byte a queue"
        statistics.put("T", 7, 1, 10)
        statistics.sample(Moment(30_000, 0, 0, 0, 0), 30_000)
        assert memory() - before < 60 * queues, "one new table, whose values are the old ones but for one"
        assert statistics.spans("TOPIC_PUT_NUMS", "T") is not None
        statistics.forget_topic("T")
        assert statistics.spans("TOPIC_PUT_NUMS", "T") is None
        assert memory() < before // 2, "counters and samples of a topic that was deleted go"


@contextmanager
def measured() -> Iterator[Callable[[], int]]:
    """How many bytes more than at the start are in use."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
