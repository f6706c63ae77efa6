"""The metrics of a daemon: how they are read, bounded and written."""

from __future__ import annotations

import asyncio
import sys
from time import monotonic

import pytest

from eruca.remoting.clock import ClockShift
from eruca.remoting.exposition import Exposition, Unavailable
from eruca.remoting.histogram import Histogram
from eruca.remoting.metrics import ExporterType, Family, Kind, Metrics, MetricsSettings
from eruca.remoting.settings import BadSetting
from eruca.remoting.sources import read


async def lines(metrics: Metrics, accept: str = "") -> list[str]:
    """The series of a scrape, without comments and what a scrape says of itself."""
    _, text = await Exposition(metrics).scrape(accept)
    own = ("eruca_metrics_failed_total", "eruca_scrape_seconds", "eruca_metrics_failed")
    return [line for line in text.decode().splitlines() if not line.startswith(("#", *own))]


async def test_each_kind_of_family_and_of_read() -> None:
    async def later() -> dict[str, float]:
        await asyncio.sleep(0)
        return {"x": 5}

    metrics = Metrics({"node_id": "b"})
    sizes = Histogram((1.0, 10.0))
    for size in (0.5, 1.0, 2.0, 20.0):
        sizes.add(size)
    metrics.counter("a_total", "A.", lambda: 1)
    metrics.gauge("b", "B.", lambda: {("x", "y"): 2, ("x", "z"): 3}, "first", "second")
    metrics.gauge("c", "C.", lambda: [("x", 4.5)], "first")
    metrics.gauge("d", "D.", later, "first")
    metrics.gauge("d_again", "D.", lambda: later(), "first")
    metrics.histogram("e", "E.", lambda: sizes)
    metrics.gauge("f", "F.", dict, "first")

    assert await lines(metrics) == [
        'a_total{node_id="b"} 1.0',
        'b{first="x",node_id="b",second="y"} 2.0',
        'b{first="x",node_id="b",second="z"} 3.0',
        'c{first="x",node_id="b"} 4.5',
        'd{first="x",node_id="b"} 5.0',
        'd_again{first="x",node_id="b"} 5.0',
        'e_bucket{le="1.0",node_id="b"} 2.0',
        'e_bucket{le="10.0",node_id="b"} 3.0',
        'e_bucket{le="+Inf",node_id="b"} 4.0',
        'e_count{node_id="b"} 4.0',
        'e_sum{node_id="b"} 23.5',
    ]


async def test_open_metrics_when_it_is_asked_for() -> None:
    metrics = Metrics({})
    metrics.counter("a_total", "A.", lambda: dict.fromkeys(map(str, range(100)), 1), "number")

    kind, text = await Exposition(metrics).scrape("application/openmetrics-text; version=1.0.0, text/plain;q=0.5")

    assert kind.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n") and text.count(b"# EOF") == 1
    assert text.startswith(b"# HELP a A.\n# TYPE a counter\na_total{") and text.count(b"# TYPE a ") == 1
    kind, text = await Exposition(Metrics({})).scrape("*/*")
    assert kind.startswith("text/plain") and b"# EOF" not in text


@pytest.mark.parametrize("value", ["plain", 'a "quote"', "back\\slash", "a\nline", "命令 {x=1}", ""])
async def test_values_of_labels_stay_in_their_quotes(value: str) -> None:
    metrics = Metrics({})
    metrics.gauge("a", "A.", lambda: {value: 1}, "topic")

    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    assert await lines(metrics) == [f'a{{topic="{escaped}"}} 1.0']


async def test_labels_of_the_operator_do_not_replace_those_of_a_metric() -> None:
    metrics = Metrics({"topic": "mine", "zone": "a"})
    metrics.gauge("a", "A.", lambda: {"T": 1}, "topic")

    assert await lines(metrics) == ['a{topic="T",zone="a"} 1.0']


async def test_what_is_beyond_the_bound_is_in_one_series() -> None:
    metrics = Metrics({}, lambda: 3)
    numbers = {(f"t{number}", "g"): number for number in range(10)}
    metrics.counter("a_total", "A.", lambda: numbers, "topic", "group")
    metrics.gauge("b", "B.", lambda: numbers, "topic", "group", merge=max)

    assert await lines(metrics) == [
        'a_total{group="g",topic="t0"} 0.0',
        'a_total{group="g",topic="t1"} 1.0',
        'a_total{group="g",topic="t2"} 2.0',
        'a_total{group="_other",topic="_other"} 42.0',
        'b{group="g",topic="t0"} 0.0',
        'b{group="g",topic="t1"} 1.0',
        'b{group="g",topic="t2"} 2.0',
        'b{group="_other",topic="_other"} 9.0',
    ]


async def test_each_bucket_of_a_histogram_is_a_series() -> None:
    metrics = Metrics({}, lambda: 2000)
    one = Histogram(tuple(map(float, range(7))))
    one.add(3.0)
    metrics.histogram("a", "A.", lambda: {f"t{number}": one for number in range(500)}, "topic")

    found = await lines(metrics)

    assert 1980 <= len(found) <= 2000 + 10
    assert 'a_count{topic="_other"} 300.0' in found


async def test_a_family_that_fails_spoils_no_other() -> None:
    def broken() -> float:
        raise LookupError("planted")

    async def broken_later() -> float:
        raise LookupError("planted")

    metrics = Metrics({})
    metrics.gauge("a", "A.", broken)
    metrics.gauge("b", "B.", broken_later)
    metrics.gauge("c", "C.", lambda: {"too": 1}, "few", "labels")
    metrics.several((Family("d", Kind.GAUGE, "D."), Family("e", Kind.GAUGE, "E.")), lambda: (1,))
    metrics.gauge("f", "F.", lambda: "text")  # type: ignore[arg-type,return-value]
    metrics.gauge("g", "G.", lambda: 1)
    exposition = Exposition(metrics)

    _, text = await exposition.scrape()

    assert b"\ng 1.0\n" in text
    assert {line.split(b" ")[2] for line in text.splitlines() if line.startswith(b"# HELP")} == {
        b"g",
        b"eruca_metrics_failed_total",
        b"eruca_scrape_seconds",
    }
    assert exposition.failed == 6


async def test_scrapes_at_the_same_time_are_made_one_after_the_other() -> None:
    at_once, most = 0, 0

    async def work() -> float:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return 1

    metrics = Metrics({})
    metrics.gauge("a", "A.", work)
    exposition = Exposition(metrics)

    await asyncio.gather(*(exposition.scrape() for _ in range(5)))

    assert most == 1


async def test_a_long_scrape_leaves_the_loop_to_others() -> None:
    metrics = Metrics({}, lambda: 50_000)
    metrics.gauge("a", "A.", lambda: {f"topic-{number}": number for number in range(20_000)}, "topic")
    gaps = []

    async def tick() -> None:
        last = monotonic()
        while True:
            await asyncio.sleep(0)
            now = monotonic()
            gaps.append(now - last)
            last = now

    ticking = asyncio.ensure_future(tick())
    await Exposition(metrics).scrape()
    ticking.cancel()

    assert len(gaps) > 50, "the loop turns meanwhile"


async def test_without_prometheus_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.exposition", None)
    with pytest.raises(Unavailable, match=r"pip install 'eruca-client\[prometheus\]'"):
        await Exposition(Metrics({})).scrape()


def test_a_name_is_there_once() -> None:
    metrics = Metrics({})
    metrics.gauge("a", "A.", lambda: 1)
    with pytest.raises(ValueError, match="there is a metric a already"):
        metrics.counter("a", "A.", lambda: 1)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", {}),
        ("zone:a", {"zone": "a"}),
        (" zone : a , rack:7 ", {"zone": "a", "rack": "7"}),
        ("zone:a,", {"zone": "a"}),
        ("zone:", {"zone": ""}),
    ],
)
def test_labels_of_the_operator(text: str, labels: dict[str, str]) -> None:
    assert read(MetricsSettings, text=f"metricsLabel={text}").config.labels == labels


@pytest.mark.parametrize("text", ["zone", "zone:a:b", "1zone:a", "zone-a:b", ":a", "a:b,,c:d"])
def test_labels_that_are_refused(text: str) -> None:
    with pytest.raises(BadSetting, match=r"metricsLabel.*label:value pairs"):
        read(MetricsSettings, text=f"metricsLabel={text}")


def test_other_exporters_of_rocketmq_are_named() -> None:
    assert MetricsSettings().off is None
    assert MetricsSettings(metrics_exporter_type=ExporterType.OTLP_GRPC).off == (
        "metricsExporterType is OTLP_GRPC; with PROM the metrics are here"
    )


def test_the_shift_of_the_wall_clock_is_what_it_has_moved_against_the_other() -> None:
    wall, passed = 1_700_000_000_000, 5_000
    shift = ClockShift(lambda: wall, lambda: passed)
    wall, passed = wall + 60_000, passed + 60_000
    assert shift.seconds == 0
    wall -= 90_500
    assert shift.seconds == -90.5
