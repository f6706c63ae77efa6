"""The examples of docs/spark.md and docs/spark-notebook.md run as they stand, and print what stands there; options and
their defaults are those of the page."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eruca.spark_connector.options import READERS, Options
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.schema import COLUMNS
from eruca.spark_connector.sink_options import SINK_COLUMNS, SINK_READERS, SinkOptions
from tests.support.spark import Topic

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "spark.md").read_text()
NOTEBOOK = (DOCS / "spark-notebook.md").read_text()
LOG = re.compile(r"\S*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d.*\[.*(debug|info|warning)")


def test_the_examples_run(
    spark: SparkSession,
    topic: Topic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic.fill(10)
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "the-account")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "its-secret")
    names: dict[str, Any] = {}

    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        text = example.replace("localhost:9876", topic.name_server).replace('"orders"', f'"{topic.name}"')
        text = text.replace("'orders'", f"'{topic.name}'").replace("'copies'", f"'{topic.name}_copies'")
        text = text.replace('"copies"', f'"{topic.name}_copies"')
        exec(text.replace("/tmp/lake", str(tmp_path)), names)

    told = capsys.readouterr().out
    assert "message 0" in told
    assert re.search("No route info of this topic: nowhere", told), "the cause of a query that fails"
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 10
    assert names["deduplicated"](names["copies"]).count() == 30
    assert names["stream"].isStreaming
    spark.sql("DROP TABLE shop")


def test_the_notebook_prints_what_stands_there(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    cells = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", NOTEBOOK, re.DOTALL)
    try:
        for cell, printed in cells:
            exec(cell, names)
            told = [line for line in capsys.readouterr().out.splitlines() if not LOG.match(line)]
            assert "\n".join(told).strip() == printed.strip(), cell
        assert 0 in names["lags"].values(), "the listener was told that nothing is left"
    finally:
        clients.close_this_process()  # its clients would go on to look for the cluster, and warn during other tests
        names["mq"].stop()
        shutil.rmtree(names["folder"])
    assert len(cells) > 8


def described(page: str) -> set[str]:
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"\w+", row)}


def test_every_option_and_column_is_described() -> None:
    source, _, sink = PAGE.partition("## Sink")

    assert described(source) - {"column", "option"} == set(READERS) | set(COLUMNS)
    assert described(sink) - {"column", "option", "of", "the", "sink"} == set(SINK_READERS) | set(SINK_COLUMNS)


@pytest.mark.parametrize(("table", "kind"), [("| option |", Options), ("| option of the sink |", SinkOptions)])
def test_a_default_is_the_one_on_the_page(table: str, kind: type) -> None:
    """As far as it is a word or a number."""
    part = PAGE.partition(table)[2].partition("\n\n")[0]
    defaults = {field.name.replace("_", ""): str(field.default) for field in dataclasses.fields(kind)}
    rows = re.findall(r"^\| (\w+) \| `?([a-zA-Z_*-]+|\d+)`? \|", part, flags=re.MULTILINE)
    on_page = {name.lower(): value.lower() for name, value in rows if value != "required" and name.lower() in defaults}
    assert len(on_page) > 5
    assert on_page == {name: defaults[name].lower() for name in on_page}
