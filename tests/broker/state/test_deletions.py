"""The deleted topics of a group: how many are noted."""

from __future__ import annotations

from pathlib import Path

from eruca.broker.state.deletions import Deletions


def test_a_deletion_lets_the_oldest_go_that_the_log_does_not_reach_any_more(tmp_path: Path) -> None:
    deletions = Deletions(tmp_path / "deletedTopics.json", most=2)
    for number, topic in enumerate(("A", "B", "C"), 1):
        deletions.note(topic, 0, 100 * number)
    assert deletions.ends == {"A": 100, "B": 200, "C": 300}
    deletions.note("D", 150, 400)
    assert deletions.ends == {"B": 200, "C": 300, "D": 400}
    deletions.note("E", 1000, 2000)
    assert deletions.ends == {"D": 400, "E": 2000}
