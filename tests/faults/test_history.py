"""The judge of histories is right: it finds each fault that is planted, and none where none is."""

from __future__ import annotations

import pytest

from tests.support.history import Found, History, holes, judge


@pytest.fixture
def history() -> History:
    """Six messages of two producers to two queues; all but the last of each queue were acknowledged."""
    history = History()
    for number in range(3):
        for queue in (0, 1):
            body = history.next_body(queue, producer=queue)
            if number < 2:
                history.promise(queue, number, body, moment=float(number))
    return history


def whole() -> dict[int, list[tuple[int, bytes]]]:
    return {queue: [(number, b"%d/%d/%d/" % (queue, queue, number)) for number in range(3)] for queue in (0, 1)}


def test_nothing_is_wrong_with_all_of_it(history: History) -> None:
    assert judge(history, whole()) == [] and holes(history, whole()) == []


def test_what_was_not_acknowledged_may_be_gone(history: History) -> None:
    found = whole()
    del found[0][2]
    assert judge(history, found) == [] and holes(history, found) == []


def changed(how: str) -> Found:
    found = whole()
    if how == "lost":
        del found[1][1]
    elif how == "queue gone":
        del found[1]
    elif how == "other body":
        found[1][1] = (1, b"1/1/2/")
    elif how == "strange":
        found[1].append((3, b"1/1/3/"))
    elif how == "twice":
        found[1].append((3, b"1/1/2/"))
    elif how == "order of bodies":
        found[1][1:] = [(1, b"1/1/2/"), (2, b"1/1/1/")]
    elif how == "order of offsets":
        found[1].reverse()
    elif how == "other queue":
        found[1].append((3, b"0/0/2/"))
    return found


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("lost", "lost: "),
        ("queue gone", "lost: "),
        ("other body", "lost: "),
        ("strange", "strange: nobody sent"),
        ("twice", "order: "),
        ("order of bodies", "order: "),
        ("order of offsets", "comes after"),
        ("other queue", "is in queue 1"),
    ],
)
def test_each_planted_fault_is_found(history: History, how: str, words: str) -> None:
    assert any(words in fault for fault in judge(history, changed(how)))


def test_a_loss_that_may_be_is_none_and_an_older_one_is(history: History) -> None:
    found = whole()
    found[0] = []
    assert [fault[:12] for fault in judge(history, found, lambda told: told.moment >= 1)] == ["lost: b'0/0/"]
    assert judge(history, found, lambda told: told.moment >= 0) == []


def test_a_loss_in_the_middle_is_a_hole(history: History) -> None:
    found = whole()
    del found[1][1]
    assert len(holes(history, found)) == 1
    del found[1][1]
    assert holes(history, found) == []


def test_what_is_settled_is_not_asked_for_again(history: History) -> None:
    history.settle(whole())
    assert history.settled == {0: 3, 1: 3}
    assert judge(history, {0: [], 1: []}) == []
