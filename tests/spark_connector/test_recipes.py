"""The programs of docs/spark-recipes.md run as they stand, and do what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from eruca.spark_connector import deduplicated
from tests.support.spark import Topic

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark-recipes.md").read_text()
TOPICS = ("orders", "totals", "markers", "large", "orders-for-billing")


def test_the_recipes_do_what_the_page_says(
    spark: SparkSession, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(text: str) -> str:
        text = text.replace("localhost:9876", topic.name_server).replace("/tmp/lake", str(tmp_path))
        return re.sub(rf'"({"|".join(TOPICS)})"', rf'"{topic.name}-\1"', text)

    names: dict[str, Any] = {}
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(here(program), names)

    told = capsys.readouterr().out
    assert re.search(r"\| +Ada\| +4\|", told) and re.search(r"\|Blaise\| +4\|", told), told
    assert re.findall(
        r"^(\d+) (different orders|large orders|messages in the .*table|messages for billing)$", told, re.M
    ) == [
        ("12", "different orders"),
        ("7", "large orders"),
        ("14", "messages in the table"),
        ("14", "messages in the Iceberg table"),
        ("12", "messages for billing"),
    ]

    def stored(name: str, *columns: str) -> DataFrame:
        frame: DataFrame = names["read"](spark.read, f"{topic.name}-{name}").schema(", ".join(columns)).load()
        return frame

    sent = stored("totals", "body binary")
    totals = [json.loads(bytes(row.body)) for row in sent.collect()]
    assert sorted((each["customer"], each["total"]) for each in totals) == [("c0", 180), ("c1", 220), ("c2", 260)]

    rows = spark.createDataFrame(totals, "customer string, total bigint").coalesce(1)
    names["send_totals"](rows, 7)
    names["send_totals"](rows, 7)
    columns = ("body binary", "messageId string", "storeTimestamp timestamp", "properties map<string,string>")
    assert deduplicated(stored("totals", *columns)).count() == 6, "a batch that is repeated is known"
    assert stored("totals", "body binary").count() == 9

    names["add"](stored("orders", "body binary"), 0)
    assert len(names["DeltaTable"](names["TABLE"]).to_pyarrow_table()) == 14, "a batch that is repeated is known"
    whole = names["read"](spark.read, f"{topic.name}-orders").load()
    names["append"](whole, 0)
    assert len(names["catalog"].load_table("shop.orders").scan().to_arrow()) == 14
    names["append"](whole, 1)
    assert len(names["catalog"].load_table("shop.orders").scan().to_arrow()) == 28, "the next batch is another"
