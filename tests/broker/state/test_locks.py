"""Queue locks: one owner a queue and group, for 60 s after the last lock."""

from eruca.broker.state.locks import EXPIRE_AFTER, Locks
from eruca.protocol.queues import MessageQueue

FIRST, SECOND = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


def test_a_queue_has_one_owner_in_a_group_and_each_group_its_own() -> None:
    locks = Locks()
    assert locks.lock("g", [FIRST, SECOND], "one", 0) == [FIRST, SECOND]
    assert locks.lock("g", [SECOND], "two", 1) == []
    assert locks.lock("h", [SECOND], "two", 1) == [SECOND]
    assert locks.owner("g", SECOND, 1) == "one"


def test_an_owner_renews_and_a_silent_one_loses() -> None:
    locks = Locks()
    locks.lock("g", [FIRST], "one", 0)
    assert locks.lock("g", [FIRST], "one", EXPIRE_AFTER) == [FIRST]
    assert locks.lock("g", [FIRST], "two", 2 * EXPIRE_AFTER) == []
    assert locks.lock("g", [FIRST], "two", 2 * EXPIRE_AFTER + 1) == [FIRST]
    assert locks.lock("g", [FIRST], "one", 2 * EXPIRE_AFTER + 2) == []


def test_there_are_so_many_locks_and_no_more() -> None:
    locks = Locks(most=3)
    many = [MessageQueue("T", "a", number) for number in range(5)]
    assert locks.lock("g", many, "one", 0) == many[:3] and len(locks) == 3
    assert locks.lock("h", [FIRST], "two", 0) == []
    assert locks.lock("g", many, "one", 1) == many[:3], "what is held is renewed"
    locks.unlock("g", [FIRST], "one")
    assert locks.lock("h", [FIRST, SECOND], "two", 2) == [FIRST]


def test_only_the_owner_unlocks() -> None:
    locks = Locks()
    locks.lock("g", [FIRST], "one", 0)
    locks.unlock("g", [FIRST, SECOND], "two")
    assert locks.owner("g", FIRST, 1) == "one"
    locks.unlock("g", [FIRST, SECOND], "one")
    assert locks.owner("g", FIRST, 1) is None
    assert locks.lock("g", [FIRST], "two", 1) == [FIRST]


def test_expired_locks_are_dropped_and_live_ones_kept() -> None:
    locks = Locks()
    locks.lock("g", [FIRST], "one", 0)
    locks.lock("g", [SECOND], "one", 30_000)
    locks.drop_expired(EXPIRE_AFTER + 1)
    assert locks.owner("g", FIRST, EXPIRE_AFTER) is None
    assert locks.owner("g", SECOND, EXPIRE_AFTER) == "one"


def test_another_time_may_be_set() -> None:
    locks = Locks(expire_after=100)
    locks.lock("g", [FIRST], "one", 0)
    assert locks.lock("g", [FIRST], "two", 100) == []
    assert locks.lock("g", [FIRST], "two", 101) == [FIRST]
