"""A broker that deletes files while pipelines run: that is an error, or, with skip_lost, everything else is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eruca.spark_connector import SourceError
from eruca.spark_connector.pipelines import archive, read_archive, rollup
from eruca.spark_connector.pipelines.rounds import Round, Rounds
from tests.spark_connector.pipelines.windows import let_a_window_end
from tests.spark_connector.retention import fill, forget
from tests.support.eruca import ErucaCluster
from tests.support.spark import COLUMNS, Rows, Topic, assert_rows, rows_of

NAMES = [each.split()[0] for each in COLUMNS.split(", ")]


@pytest.fixture
def events(forgetful: ErucaCluster, request: pytest.FixtureRequest) -> Iterator[Topic]:
    made = Topic(forgetful, request.node.name, 2)
    yield made
    made.close()


def test_what_is_deleted_before_or_after_a_round_was_planned(
    spark: SparkSession, forgetful: ErucaCluster, events: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: dict[str, Any] = {"name_server": events.name_server, "topics": [events.name], "to": str(tmp_path / "rolled")}
    plan |= {"window": "20ms", "by": ["key"], "grace": "0s", "resume": True}
    fill(events)
    let_a_window_end()
    counted = Counter(rollup(spark, **plan).groups)
    assert counted == keys(events.rows)

    done = set(events.rows)
    fill(events)
    left = forget(forgetful, events)
    let_a_window_end()
    assert 0 < len(left) < 800
    with pytest.raises(SourceError, match=r"were deleted before they were counted.*--skip-lost"):
        rollup(spark, **plan)
    assert rollup(spark, **plan, skip_lost=True).groups == keys(left) and not done & set(left)

    fill(events)
    let_a_window_end()
    following = Rounds.next
    left = {}

    def next_and_forget(*given: Any, **options: Any) -> Round | None:
        planned = following(*given, **options)
        if not left:
            left.update(forget(forgetful, events))
        return planned

    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "next", next_and_forget)
        with pytest.raises(PySparkException, match="failOnDataLoss"):
            rollup(spark, **plan)
    assert rollup(spark, **plan, skip_lost=True).groups == keys(left)


def keys(rows: Rows) -> Counter[str]:
    return Counter(row["keys"] for row in rows.values())


def test_an_archive_goes_on_without_what_was_deleted(
    spark: SparkSession, forgetful: ErucaCluster, events: Topic, tmp_path: Path
) -> None:
    plan: dict[str, Any] = {"name_server": events.name_server, "topics": [events.name], "to": str(tmp_path / "lake")}
    fill(events)
    assert archive(spark, **plan).messages == 800
    kept = dict(events.rows)
    fill(events)
    left = forget(forgetful, events)
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        archive(spark, **plan)

    assert archive(spark, **plan, fail_on_data_loss=False).messages == len(left)
    assert_rows(rows_of(read_archive(spark, str(tmp_path / "lake")).select(*NAMES)), kept | left)
