"""Arguments of pipelines that a program confuses: refused before anything is read, not counted as something else."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.spark_connector import BadOption
from eruca.spark_connector.pipelines import archive, audit, read_archive, replay, rollup, triage

NOWHERE: Any = {"name_server": "127.0.0.1:1"}
NO_SPARK: Any = None


@pytest.mark.parametrize(
    ("pipeline", "arguments", "sentence"),
    [
        (rollup, {"topics": "Orders"}, r'topics="Orders" is one text: give a list, topics=\["Orders"\]'),
        (rollup, {"topics": ["Orders"], "by": "tag"}, r'by="tag" is one text: give a list, by=\["tag"\]'),
        (rollup, {"topics": ["Orders"], "by": ["tags"]}, 'by cannot be "tags": topic or tag or key is expected'),
        (rollup, {"topics": ["Orders"], "clock": "now"}, 'clock cannot be "now": store or born is expected'),
        (replay, {"topic": "Orders", "to": "Copy", "tags": "AB"}, r'tags="AB" is one text'),
        (
            replay,
            {"topic": "Orders", "to": "Copy", "order": "keys"},
            'order cannot be "keys": queue or key',
        ),
        (archive, {"topics": "Orders", "to": "lake"}, 'topics="Orders" is one text'),
        (audit, {"topics": "Orders", "groups": ["g"]}, 'topics="Orders" is one text'),
        (audit, {"topics": ["Orders"], "groups": "g"}, 'groups="g" is one text'),
        (triage, {"group": "g", "resend_ids": "0A"}, 'resend_ids="0A" is one text'),
    ],
)
def test_a_text_in_place_of_a_list_and_unknown_words(pipeline: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadOption, match=sentence):
        pipeline(NO_SPARK, **NOWHERE, **arguments)


def test_a_text_in_place_of_the_topics_of_an_archive() -> None:
    with pytest.raises(BadOption, match="is one text"):
        read_archive(NO_SPARK, "lake", topics="Orders")
