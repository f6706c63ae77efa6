"""Queue names: values that sort as Java sorts them."""

from eruca.protocol.queues import MessageQueue


def test_sorted_by_topic_then_broker_then_id() -> None:
    queues = [
        MessageQueue("B", "a", 0),
        MessageQueue("A", "b", 0),
        MessageQueue("A", "a", 10),
        MessageQueue("A", "a", 9),
    ]
    assert sorted(queues) == [
        MessageQueue("A", "a", 9),
        MessageQueue("A", "a", 10),
        MessageQueue("A", "b", 0),
        MessageQueue("B", "a", 0),
    ]


def test_equal_names_are_one_key() -> None:
    assert len({MessageQueue("T", "b", 0), MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)}) == 2
