"""Triage: real dead letters, grouped by cause; the chosen ones sent again once, whatever happens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eruca.client import Message
from eruca.client.sync import PullConsumer
from eruca.spark_connector import BadOption
from eruca.spark_connector.pipelines import triage
from eruca.spark_connector.pipelines.endpoint import Endpoint
from eruca.spark_connector.pipelines.ledger import SENDING, SENT, Ledger, Letter
from tests.spark_connector.pipelines.dead_letters import give_up
from tests.support.spark import Topic


def letters(topic: Topic) -> list[Message]:
    causes = ("no stock", "no stock", "no stock", "bad card", "bad card", "gone")
    return [
        Message(
            topic.name, f"order {place}: {cause}!".encode(), tags="new", keys=f"o{place}", properties={"why": cause}
        )
        for place, cause in enumerate(causes)
    ]


def sent_again(topic: Topic) -> list[Any]:
    with PullConsumer(nameserver=topic.name_server) as consumer:
        found = [each for queue in topic.queues for each in consumer.pull(queue, 0, 1000).records]
    return [each for each in found if "TRIAGE_ID" in each.properties]


def test_letters_are_grouped_and_the_chosen_are_sent_again_once(
    spark: SparkSession, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, ledger = f"{topic.name}_g"[-100:], tmp_path / "ledger.jsonl"
    asyncio.run(give_up(topic, group, letters(topic)))
    plan: dict[str, Any] = {"name_server": topic.name_server, "group": group, "ledger": ledger}

    looked = triage(spark, **plan, cause_property="why")
    assert [(each.cause, each.count, each.waiting) for each in looked.causes] == [
        ("no stock", 3, 3),
        ("bad card", 2, 2),
        ("gone", 1, 1),
    ]
    assert {(each.topic, each.tags) for each in looked.causes} == {(topic.name, "new")}
    assert sent_again(topic) == []

    for wrong in (["bad car"], ["gone", "nosuch"]):
        with pytest.raises(
            BadOption, match=r'has the cause "(bad car|nosuch)": the causes are "bad card", "gone", "no s'
        ):
            triage(spark, **plan, cause_property="why", resend_causes=wrong)
    with pytest.raises(
        BadOption, match='has the cause "gone": the causes are "-", by the property or pattern of a cause'
    ):
        triage(spark, **plan, resend_causes=["gone"])
    with pytest.raises(BadOption, match=r'No dead letter of .* has the message id "0A": look'):
        triage(spark, **plan, resend_ids=[looked.causes[0].example, "0A"])
    assert sent_again(topic) == [] and not ledger.read_text()

    first = triage(spark, **plan, cause_pattern=": (?<cause>.*)!", resend_causes=["bad card"])
    assert (first.chosen, len(first.resent)) == (2, 2)
    assert {each.cause: each.waiting for each in first.causes} == {"no stock": 3, "bad card": 0, "gone": 1}
    again = triage(spark, **plan, cause_property="why", resend_causes=["bad card"])
    assert (again.chosen, again.resent) == (2, [])

    found = sent_again(topic)
    assert sorted(each.body for each in found) == [b"order 3: bad card!", b"order 4: bad card!"]
    for each in found:
        assert each.properties["TRIAGE_GROUP"] == group
        assert each.properties["TRIAGE_PLACE"] in first.resent
        assert each.properties["KEYS"] == f"o{each.body[6:7].decode()}"
        assert each.properties["TRIAGE_MESSAGE_ID"] != each.properties["UNIQ_KEY"]
    identity = next(each.example for each in looked.causes if each.cause == "gone")

    def die(*_: object, **__: object) -> None:
        raise OSError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Endpoint, "write", die)
        with pytest.raises(OSError, match="the power is gone"):
            triage(spark, **plan, resend_ids=[identity])
    doubt = triage(spark, **plan, resend_ids=[identity])
    assert (doubt.resent, len(doubt.uncertain)) == ([], 1)
    sure = triage(spark, **plan, resend_ids=[identity], resend_uncertain=True, to_group=True)
    assert (len(sure.resent), sure.uncertain) == (1, [])
    assert len(sent_again(topic)) == 2, "the last one went to the group alone"


def test_letters_of_a_topic_that_was_made_again_are_others_than_those_that_were_sent(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    group, ledger = f"{topic.name}_g"[-100:], tmp_path / "ledger.jsonl"
    asyncio.run(give_up(topic, group, letters(topic)[:1]))
    place = "broker-a:0:0"
    with Ledger(ledger) as book:
        book.note([Letter(place, "of the topic before")], SENT, 5)
    plan: dict[str, Any] = {"name_server": topic.name_server, "group": group, "ledger": ledger, "resend_all": True}

    first, second = triage(spark, **plan), triage(spark, **plan)

    assert (first.resent, second.resent) == ([place], [])
    assert [(each.count, each.waiting) for each in first.causes] == [(1, 0)]
    assert len(sent_again(topic)) == 1


def test_a_ledger_is_one_programs_and_forgets_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as book:
        book.note([Letter("b:0:1", "id1")], SENDING, 5)
        with pytest.raises(BadOption, match="in use by another triage"), Ledger(path):
            pass
    with path.open("a") as file:
        file.write('{"place":"b:0:2","st')
    with Ledger(path) as book:
        assert book.states == {Letter("b:0:1", "id1"): SENDING}
        book.note([Letter("b:0:3", "id3")], SENDING, 6)
    assert [json.loads(line)["place"] for line in path.read_text().splitlines()] == ["b:0:1", "b:0:3"]
    path.write_text("something else\n")
    with pytest.raises(BadOption, match=r"Line 1 of .* is none of a ledger"), Ledger(path):
        pass


def test_what_cannot_be_triaged_is_told_in_a_sentence(spark: SparkSession, topic: Topic) -> None:
    for given, sentence in (
        ({"group": "nobody-died"}, "the group has no dead letters"),
        ({"group": "a b"}, 'The group "a b" cannot be'),
        ({"group": "g", "cause_pattern": "("}, r'The pattern "\(" is no regular expression of Java: Unclosed group'),
        ({"group": "g", "cause_pattern": r"(?P<cause>\w+)"}, "is no regular expression of Java"),
        ({"group": "g", "cause_pattern": "a", "cause_property": "b"}, "give one of both"),
    ):
        options: dict[str, Any] = given
        with pytest.raises(Exception, match=sentence) as raised:
            triage(spark, name_server=topic.name_server, **options)
        assert type(raised.value).__name__ in ("BadOption", "SourceError")
