"""The key of a group: its JSON, and what is not taken for one."""

from __future__ import annotations

import pytest

from eruca.broker.failover.group import GroupUnreadable, decode, encode, found


def test_a_group_comes_back_as_it_was_written() -> None:
    group = found(0, "a").change(frozenset((0, 1)), {1: "b"}).elect(1, "b")
    assert decode(encode(group)) == group
    assert encode(group) == (
        b'{"format":1,"masterBrokerId":1,"masterEpoch":2,"syncStateSet":[1],"syncStateSetEpoch":3,'
        b'"stores":{"0":"a","1":"b"},"lineage":"a"}'
    )


def test_a_group_of_before_it_had_a_lineage_is_read() -> None:
    assert decode(encode(found(0, "a")).replace(b',"lineage":"a"', b"")) == found(0, "a")._replace(lineage="")


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert decode(encode(found(0, "a"))[:-1] + b',"more":[1]}') == found(0, "a")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "holds no group"),
        (b"[]", "holds no group"),
        (b'{"format":1}', "holds no group"),
        (encode(found(0, "a")).replace(b'"format":1', b'"format":2'), "start a newer version of Eruca"),
        (encode(found(0, "a")).replace(b'"masterBrokerId":0', b'"masterBrokerId":1'), "contradicts itself"),
        (encode(found(0, "a")).replace(b'{"0":"a"}', b"{}"), "contradicts itself"),
        (encode(found(0, "a")).replace(b'"masterEpoch":1', b'"masterEpoch":0'), "contradicts itself"),
    ],
)
def test_what_is_no_group_is_refused(value: bytes, says: str) -> None:
    with pytest.raises(GroupUnreadable, match=says):
        decode(value)
