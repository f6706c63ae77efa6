"""A producer of transactions of Apache's Java client, and what clusters need so that questions come soon."""

from __future__ import annotations

import base64
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.java import Judge

SOON = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
"""Settings of a broker that asks after a second, and each second."""
_made = itertools.count(1)


@dataclass(frozen=True)
class Deal:
    """A message in a transaction: the outcome of the local one, and the answers to questions, the last for ever."""

    topic: str
    body: bytes
    local: str
    checks: str = "UNKNOW"
    immunity: int | None = None

    @property
    def as_json(self) -> dict[str, Any]:
        properties = {"local": self.local, "checks": self.checks, "user": "kept"}
        if self.immunity is not None:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(self.immunity)
        body = base64.b64encode(self.body).decode()
        return {"topic": self.topic, "body": body, "tags": "deal", "keys": "key", "flag": 7, "properties": properties}


@dataclass(frozen=True)
class Question:
    """What a broker asked, and what it was answered."""

    topic: str
    body: bytes
    transaction: str
    answer: str


class Dealer:
    """A TransactionMQProducer."""

    def __init__(self, judge: Judge, name: str) -> None:
        self._judge = judge
        self._name = name

    def send(self, deals: Sequence[Deal]) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self._judge.call(
            "transact", name=self._name, messages=[each.as_json for each in deals]
        )
        return answer

    def asked(self, at_least: int = 0, timeout: float = 30) -> list[Question]:
        """All questions so far, as soon as there are so many."""
        answer = self._judge.call("asked", name=self._name, atLeast=at_least, timeoutMs=int(timeout * 1000))
        return [
            Question(each["topic"], base64.b64decode(each["body"]), each["transactionId"], each["answer"])
            for each in answer
        ]

    def answered(self, deals: Sequence[Deal], answer: str) -> list[Question]:
        """All questions so far, as soon as each of the deals was asked about and answered so."""
        wanted, asked = {each.body for each in deals}, self.asked(len(deals))
        while not wanted <= {each.body for each in asked if each.answer == answer}:
            more = self.asked(len(asked) + 1)
            assert len(more) > len(asked), f"no more questions; so far {asked}"
            asked = more
        return asked


@contextlib.contextmanager
def dealer(judge: Judge, group: str, name_server: str, *topics: str) -> Iterator[Dealer]:
    """A producer that brokers of these topics know from the start."""
    name = f"dealer-{next(_made)}"
    judge.call("transactional", name=name, group=group, namesrv=name_server, topics=list(topics))
    try:
        yield Dealer(judge, name)
    finally:
        judge.call("stop", name=name)
