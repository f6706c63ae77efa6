"""The charts of `eruca pipeline`, and the exit code for alarms."""

from __future__ import annotations

import io
import struct
import zlib
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from eruca.client import Message
from eruca.client.sync import Producer, PullConsumer
from eruca.spark_connector.pipelines.units import spell_times
from eruca.standalone.background import BackgroundCluster
from eruca.standalone.cli import main
from eruca.standalone.pipeline.charts import bars, sparkline, svg
from eruca.standalone.pipeline.png import png
from eruca.standalone.pipeline.run import Run


def test_bars_are_ranked_and_the_rest_is_summed_up() -> None:
    assert bars({}) == ""
    assert bars({"a": 5, "long": 10, "no": 0}, width=4).splitlines() == ["long  ████ 10", "a     ██ 5", "no     0"]
    assert bars({"a": 4, "b": 3, "c": 2, "d": 1}, width=4, most=2).splitlines()[2:] == ["2 others  ███ 3"]


def test_bars_of_any_names_stand_in_line_and_fit_the_terminal() -> None:
    tags = {"付款": 2000, "paid": 1000, "x" * 30 + "middle" + "y" * 30: 500, "a\nb\x1b[2J": 1}
    drawn = bars(tags, columns=60).splitlines()
    assert [line.partition("█")[0].rstrip() for line in drawn] == [
        "付款",
        "paid",
        f"{'x' * 14}…{'y' * 15}",
        "a\\nb\\x1b[2J",
    ]
    assert {cell_len(line.partition("█")[0]) for line in drawn} == {32}
    assert max(map(cell_len, drawn)) == 60


def test_a_table_shows_texts_as_they_are_and_fits_the_terminal() -> None:
    cause = "list[int] :smile: [/b] \x1b[31m of " + "a very long story " * 9
    for width in (80, 200):
        printed = io.StringIO()
        run = Run("mq:9876", {}, "local[2]", None, {}, False, Console(file=printed, width=width))
        row = ("orders-of-the-north", cause, "[red]", 1234, 1234, 16, "12:00:01", "12:00:02")
        run.table(("topic", "cause", "tag", "letters", "waiting", "retries", "first", "last"), [row], title="UTC")
        lines = printed.getvalue().splitlines()
        assert max(map(cell_len, lines)) <= width and "\x1b" not in printed.getvalue()
        assert lines[2].rstrip().endswith("[red]  1,234    1,234    16       12:00:01  12:00:02")
    assert r"list[int] :smile: [/b] \x1b[31m of " in lines[2]
    printed.truncate(0)
    run.say("an example\n(\x1b[2J [b])")
    assert printed.getvalue().endswith("an example\n(\\x1b[2J [b])\n")


def test_a_line_of_blocks_is_as_wide_as_it_may_be() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 1, 4, 8]) == " ▂▅█"
    assert sparkline([1] * 120, width=60) == "█" * 60


def test_a_picture_has_a_column_for_each_count() -> None:
    root = ElementTree.fromstring(svg("Messages <by> window", [("10:00", 5.0), ("10:01", 10.0)], "messages"))
    columns = [each for each in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert [each[0].text for each in columns] == ["10:00: 5", "10:01: 10"]
    assert float(columns[1].attrib["height"]) == 2 * float(columns[0].attrib["height"])
    assert root[0].text == "Messages <by> window"


def test_a_picture_is_a_png_that_can_be_read() -> None:
    data = png("Messages by window: Orders_1", [("10:00", 5.0), ("10:01", 10.0)], "messages")

    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND" + zlib.crc32(b"IEND").to_bytes(4))
    wide, high = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    rows = zlib.decompress(data[start : start + int.from_bytes(data[start - 8 : start - 4])])
    assert len(rows) == high * (wide + 1)
    bars = [bytes(rows[y * (wide + 1) + 1 : (y + 1) * (wide + 1)]).count(2) for y in range(high)]
    full = max(bars)
    assert bars.count(full) == 105, "both columns, as high as the first"
    assert sum(1 for each in bars if each) == 210, "the second column"


@pytest.mark.parametrize("name", ["orders.gif", "orders", "orders.svg.bak"])
def test_a_picture_has_the_format_that_its_name_says(name: str) -> None:
    asked = CliRunner().invoke(main, ["pipeline", "rollup", "-n", "mq:9876", "--topic", "orders", "--picture", name])

    assert asked.exit_code == 2
    assert f"{name} is no name of a picture: end it with .svg or .png." in asked.stderr


def test_times_of_a_table_are_as_short_as_they_differ() -> None:
    noon = 1_714_564_800_000
    for stamps, texts, common in (
        ([], [], "UTC"),
        ([noon, noon + 60_000], ["12:00", "12:01"], "2024-05-01 UTC"),
        ([noon, noon + 5000], ["12:00:00", "12:00:05"], "2024-05-01 UTC"),
        ([noon, noon + 7], ["12:00:00.000", "12:00:00.007"], "2024-05-01 UTC"),
        ([noon, noon + 86_400_000], ["05-01 12:00", "05-02 12:00"], "2024 UTC"),
        ([noon, noon + 366 * 86_400_000], ["2024-05-01 12:00", "2025-05-02 12:00"], "UTC"),
    ):
        spelled, shared = spell_times(stamps)
        assert ([spelled[each] for each in stamps], shared) == (texts, common)


def test_an_audit_exits_with_3_when_a_group_is_behind(rocketmq: BackgroundCluster) -> None:
    topic = rocketmq.create_topic("audited", queues=1)
    with Producer("auditors", nameserver=rocketmq.address) as producer:
        for _ in range(5):
            queue = producer.send(Message(topic, b"body", tags="a")).queue
    with PullConsumer(nameserver=rocketmq.address) as consumer:
        consumer.update_offset(queue, 3, group="readers")
    audit = ["pipeline", "audit", "--topic", topic, "--group", "readers", "--offsets-only"]
    clients, tools = {"ROCKETMQ_NAMESRV_ADDR": rocketmq.address}, {"NAMESRV_ADDR": rocketmq.address}

    behind = CliRunner().invoke(main, audit, env={"NAMESRV_ADDR": "127.0.0.1:1", **clients})
    allowed = CliRunner().invoke(main, [*audit, "--max-behind", "2"], env={"ROCKETMQ_NAMESRV_ADDR": None, **tools})

    assert behind.exit_code == 3, behind.output
    assert max(map(len, behind.stdout.splitlines())) <= 80
    assert behind.stdout.splitlines()[-1] == f"readers on {topic} has not consumed 2 messages."
    assert allowed.exit_code == 0, allowed.output
    assert allowed.stdout.splitlines()[-1] == "Every group has consumed what it should."
    refused = CliRunner().invoke(main, [*audit, "--window", "soon"], env=clients)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.startswith('eruca pipeline: The window "soon" cannot be read: ')
