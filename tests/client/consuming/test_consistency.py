"""Members of a group that subscribe differently are found out, and told in one clear sentence."""

from __future__ import annotations

import pytest

from eruca.client import PushConsumer
from eruca.client.consuming.consistency import Comparison, differences, neighbour
from eruca.client.network.session import Session
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.subscription import build_subscription
from tests.client.conftest import HASTY, Lab, Seen, eventually


def tags(topic: str, expression: str = "*") -> SubscriptionData:
    return build_subscription(topic, expression, version=1)


def test_what_differs() -> None:
    assert differences([tags("T", "a || b"), tags("%RETRY%g")], [tags("T", "b||a")]) == []
    assert differences([tags("T", "*")], [tags("T", "")]) == []
    assert differences([tags("T", "a"), tags("U")], [tags("T", "b"), tags("V")]) == [
        'of T this member wants "a", that one "b"',
        "U is subscribed only here",
        "V is subscribed only there",
    ]
    condition = SubscriptionData(topic="T", expression_type="SQL92", sub_string="a > 1")
    assert differences([condition], [condition]) == []
    assert differences([condition], [tags("T")]) == ['of T this member wants SQL92 "a > 1", that one "*"']


def test_each_member_is_asked_by_one() -> None:
    members = ["c", "a", "b"]
    assert [neighbour(each, members) for each in sorted(members)] == ["b", "c", "a"]
    assert neighbour("a", ["a"]) is None and neighbour("a", []) is None


async def test_a_difference_is_told_once(
    lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.send("T", b"x")
    await lab.send("U", b"x")
    looked: list[Comparison] = []
    look = Comparison.look

    async def watched(comparison: Comparison, now: float) -> None:
        await look(comparison, now)
        looked.append(comparison)

    monkeypatch.setattr(Comparison, "look", watched)
    one = PushConsumer("g", seen.coroutine, nameserver=lab.address, settings=HASTY).subscribe("T", "a")
    other = PushConsumer("g", seen.coroutine, nameserver=lab.address, settings=HASTY)
    other.subscribe("T", "b").subscribe("U")
    async with one, other:
        assert isinstance(one.session, Session) and isinstance(other.session, Session)
        ids = [one.session.client_id, other.session.client_id]
        await eventually(lambda: caplog.text.count("subscribe differently") == 2)
        assert 'of T this member wants "a", that one "b"; U is subscribed only there' in caplog.text
        assert 'of T this member wants "b", that one "a"; U is subscribed only here' in caplog.text
        assert f"({ids[0]} and {ids[1]})" in caplog.text and f"({ids[1]} and {ids[0]})" in caplog.text
        for comparison in set(looked):
            await comparison.look(comparison.due)
        assert caplog.text.count("subscribe differently") == 2
