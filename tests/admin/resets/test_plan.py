"""What a reset does at each broker, decided from what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.admin.errors import AdminError, NotFound
from eruca.admin.resets.plan import Options, Plan, Way, check, decide
from eruca.admin.resets.survey import BrokerSeen, Kind, QueueSeen, Survey
from eruca.protocol.bodies import Connection, ConsumerConnection, SubscriptionData
from eruca.protocol.queues import MessageQueue


def queue(broker: str, number: int) -> MessageQueue:
    return MessageQueue("T", broker, number)


def members(*ids: str, topics: Sequence[str] = ("T",), language: str = "PYTHON", **more: str) -> ConsumerConnection:
    return ConsumerConnection(
        connection_set=[Connection(client_id=each, language=language) for each in ids],
        subscription_table={topic: SubscriptionData(topic=topic) for topic in topics},
        **{"consume_type": "CONSUME_PASSIVELY", "message_model": "CLUSTERING", **more},
    )


def broker(
    name: str,
    stored: Sequence[int | None] = (5, 5),
    *,
    group: ConsumerConnection | None = None,
    kind: Kind = Kind.ERUCA,
    knows_group: bool = True,
) -> BrokerSeen:
    """A broker whose queues have the offsets 0 to 10."""
    queues = [QueueSeen(queue(name, number), 0, 10, at) for number, at in enumerate(stored)]
    return BrokerSeen(name, f"{name}:1", kind, knows_group, len(stored), queues, group)


def survey(*brokers: BrokerSeen, missing: Mapping[str, str] | None = None) -> Survey:
    return Survey("G", "T", brokers, dict(missing or {}))


def planned(seen: Survey, target: int, timestamp: int | None = 7, options: Options | None = None) -> Plan:
    options = options or Options()
    check(seen, options)
    return decide(seen, {each.queue: target for each in seen.queues}, timestamp, options)


def ways(plan: Plan) -> dict[str, Way]:
    return {step.broker.name: step.way for step in plan.steps}


def test_members_are_notified_where_they_are_known() -> None:
    seen = survey(broker("a", group=members("m")), broker("b", group=members("m")))
    assert ways(planned(seen, 2)) == {"a": Way.PUSHED, "b": Way.PUSHED}


def test_a_broker_that_does_not_know_the_members_yet_is_waited_for() -> None:
    seen = survey(broker("a", group=members("m")), broker("b"))
    plan = planned(seen, 2)
    assert ways(plan) == {"a": Way.PUSHED, "b": Way.PUSHED}
    assert [step.waits for step in plan.steps] == [False, True]
    assert plan.remarks == ["b does not know the members of G yet: waiting for their heartbeat"]
    with pytest.raises(AdminError, match=r"b does not know the members of G yet .* try again in 30 s"):
        planned(seen, 2, options=Options(now=True))


def test_of_a_broker_that_has_just_restarted_all_members_are_waited_for() -> None:
    """It knows one of them again; the other one, whose queues may be there, would undo what is stored."""
    seen = survey(broker("a", group=members("m", "n")), replace(broker("b", group=members("m")), up_for=20.0))
    plan = planned(seen, 2)
    assert [(step.waits, step.absent) for step in plan.steps] == [(False, frozenset()), (True, frozenset({"n"}))]
    assert plan.settles_in == 0
    long_ago = survey(broker("a", group=members("m", "n")), replace(broker("b", group=members("m")), up_for=36.0))
    assert [step.waits for step in planned(long_ago, 2).steps] == [False, False]


def test_that_nobody_is_online_is_not_believed_where_every_broker_has_just_restarted() -> None:
    young, younger = replace(broker("a"), up_for=20.0), replace(broker("b"), up_for=5.0)
    plan = planned(survey(young, younger), 2)
    assert plan.settles_in == 15
    assert plan.remarks == ["a, b have just restarted and may not know all members of G yet: waiting 15 s for them"]
    with pytest.raises(AdminError, match=r"nothing was moved, since a has just restarted .* try again in 15 s, or "):
        planned(survey(young), 2, options=Options(now=True))
    assert planned(survey(young, broker("b")), 2).settles_in == 0
    assert planned(survey(broker("a")), 2).settles_in == 0
    to_come = replace(broker("a", (None, None), knows_group=False), up_for=5.0)
    assert planned(survey(to_come), 2, options=Options(new_group=True)).settles_in == 0


def test_without_members_offsets_are_stored() -> None:
    assert ways(planned(survey(broker("a"), broker("b")), 2)) == {"a": Way.STORED, "b": Way.STORED}


def test_offsets_of_a_topic_that_no_member_subscribes_are_stored() -> None:
    plan = planned(survey(broker("a", group=members("m", topics=["U"])), broker("b")), 2)
    assert ways(plan) == {"a": Way.STORED, "b": Way.STORED}
    assert plan.remarks == ["no member of G subscribes T: its offsets are stored, nobody consumes it now"]


def test_a_broker_that_does_not_answer_stops_the_reset() -> None:
    seen = survey(broker("a"), missing={"b": "no answer"})
    with pytest.raises(AdminError, match=r"nothing was moved, since not every broker of T can do it \(b: no answer\)"):
        planned(seen, 2)
    assert dict(planned(seen, 2, options=Options(partial=True)).missing) == {"b": "no answer"}


def test_a_group_that_no_broker_knows_is_not_found() -> None:
    seen = survey(broker("a", (None, None), knows_group=False))
    with pytest.raises(NotFound, match="--new-group stores offsets for a group that is to come"):
        planned(seen, 2)
    assert ways(planned(seen, 2, options=Options(new_group=True))) == {"a": Way.STORED}


@pytest.mark.parametrize(("language", "refused"), [("JAVA", True), ("PYTHON", False)])
def test_pull_consumers_of_java_ignore_a_reset(language: str, refused: bool) -> None:
    seen = survey(broker("a", group=members("m", language=language, consume_type="CONSUME_ACTIVELY")))
    if refused:
        with pytest.raises(AdminError, match="pull consumers of Java, which ignore a reset"):
            planned(seen, 2)
        assert ways(planned(seen, 2, options=Options(force_active=True))) == {"a": Way.PUSHED}
    else:
        assert ways(planned(seen, 2)) == {"a": Way.PUSHED}


def test_offsets_that_no_time_has_need_a_broker_that_knows_single_queues() -> None:
    for kind in (Kind.ERUCA, Kind.APACHE_5):
        seen = survey(broker("a", group=members("m"), kind=kind))
        assert ways(planned(seen, 2, None)) == {"a": Way.PUSHED_EACH}
    old = survey(broker("a", group=members("m"), kind=Kind.APACHE_4))
    with pytest.raises(AdminError, match=r"a runs RocketMQ 4.9, which moves members only in all queues and to a time"):
        planned(old, 2, None)
    assert ways(planned(survey(broker("a", kind=Kind.APACHE_4)), 2, None)) == {"a": Way.STORED}


def test_queues_that_are_written_and_not_read_are_left_alone() -> None:
    a = replace(broker("a", group=members("m")), unread=[2, 3])
    plan = planned(survey(a), 3)
    assert (ways(plan), [move.seen.queue.queue_id for move in plan.moves]) == ({"a": Way.PUSHED_EACH}, [0, 1])
    assert any("queues 2, 3 of a are written but not read" in each for each in plan.remarks)
    with pytest.raises(AdminError, match="stop the members and reset then, or let them read all"):
        planned(survey(replace(a, kind=Kind.APACHE_4)), 3)
    assert ways(planned(survey(replace(a, kind=Kind.APACHE_4, group=None)), 3)) == {"a": Way.STORED}


def test_the_first_message_after_a_time_is_asked_for_queue_by_queue() -> None:
    """A broker finds the message nearest to a time, which may be older; one of 4.9 cannot be asked otherwise."""
    for kind, way in ((Kind.ERUCA, Way.PUSHED_EACH), (Kind.APACHE_5, Way.PUSHED_EACH), (Kind.APACHE_4, Way.PUSHED)):
        seen = survey(broker("a", group=members("m"), kind=kind))
        plan = decide(seen, {each.queue: 2 for each in seen.queues}, 7, Options(), is_near=True)
        assert ways(plan) == {"a": way}
        assert ("the message nearest to the time: it may be one that is older" in str(plan.remarks)) is (
            kind is Kind.APACHE_4
        )


def test_without_force_what_would_go_forward_is_left_alone() -> None:
    back = Options(force=False)
    seen = survey(broker("a", (8, 8), group=members("m")), broker("b", (1, 1), group=members("m")))
    plan = planned(seen, 5, options=back)
    assert ways(plan) == {"a": Way.PUSHED, "b": Way.NOTHING}
    assert [move.new for move in plan.moves] == [5, 5, 1, 1]
    mixed = survey(broker("a", (8, 1), group=members("m"), kind=Kind.APACHE_4))
    assert planned(mixed, 5, options=back).remarks == [
        "a:1 stay, but what was consumed and not committed there comes again"
    ]


@given(
    st.lists(st.tuples(st.integers(0, 10) | st.none(), st.integers(0, 10)), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_every_message_is_counted(queues: list[tuple[int | None, int]], force: bool, online: bool) -> None:
    """What comes again and what is skipped add up to the way of each queue."""
    seen = survey(broker("a", [stored for stored, _ in queues], group=members("m") if online else None))
    options = Options(force=force)
    targets = {queue("a", number): target for number, (_, target) in enumerate(queues)}
    plan = decide(seen, targets, 7, options)
    for move, (stored, target) in zip(plan.moves, queues, strict=True):
        start = stored or 0
        assert move.new == (target if force or target < start else start)
        assert move.skipped - move.again == move.new - start
        assert min(move.skipped, move.again) == 0
