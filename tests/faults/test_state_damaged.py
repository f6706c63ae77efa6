"""The broker's state files cut at every byte of their last records, or with one bit flipped: at most an entry is lost.

Each file was saved twice, so that it has a copy of what was before the last change. What no longer reads gives way to
the copy, and that is said; a flipped bit that leaves a file readable falsifies the entry it lies in and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.state.delay_mark import DelayMark, Deliveries
from eruca.broker.state.delay_offsets import DelayOffsets
from eruca.broker.state.groups import Groups
from eruca.broker.state.offsets import Offsets
from eruca.broker.state.topics import Topics
from eruca.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from tests.support.programme import chance, rounds

NOW = 1_700_000_000_000
Entries = Mapping[object, object]


def topics(path: Path, more: int) -> Entries:
    """The topics of that file, after so many were added to it."""
    table = Topics(path, lambda: NOW)
    table.load()
    for number in range(more):
        table.put(TopicConfig(topic_name=f"topic-{len(table)}", read_queue_nums=4 + number, write_queue_nums=4))
    table.save()
    return {name: repr(config) for name, config in table.table.items()}


def groups(path: Path, more: int) -> Entries:
    """The groups of that file, after so many were added to it."""
    table = Groups(path, lambda: NOW, lambda: True)
    table.load()
    for number in range(more):
        table.put(SubscriptionGroupConfig(group_name=f"group-{len(table.table)}", retry_max_times=number))
    table.save()
    return {name: repr(config) for name, config in table.table.items()}


def offsets(path: Path, more: int) -> Entries:
    """The offsets of that file by topic and group, after so many topics were added to it."""
    table = Offsets(path)
    table.load()
    before = len(table.table)
    for number in range(more):
        for queue in range(4):
            table.commit("group", f"topic-{before + number}", queue, 1000 + queue)
    table.save()
    return {key: dict(queues) for key, queues in table.table.items()}


def delays(path: Path, more: int) -> Entries:
    """The offsets of the delay levels in that file, after so many were added to it."""
    table = DelayOffsets(path)
    table.load()
    if more:
        table.stage({level: 100 * level for level in range(1, len(table.table) + more + 1)})
        table.save()
        table.load()
    return {level: offset for level, offset in table.table.items()}


STATES: dict[str, Callable[[Path, int], Entries]] = {
    "topics.json": topics,
    "subscriptionGroup.json": groups,
    "consumerOffset.json": offsets,
    "delayOffset.json": delays,
}


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> str:
    """Each of the files in turn."""
    return str(request.param)


class Model:
    """One such file, saved twice: ``now`` is in it, ``before`` in its copy."""

    def __init__(self, folder: Path, state: str) -> None:
        self.entries = STATES[state]
        self.path = folder / state
        self.before = self.entries(self.path, 5)
        self.now = self.entries(self.path, 1)
        assert len(self.now) > len(self.before) > 4
        self.whole = self.path.read_bytes()
        self.copy = self.path.with_name(f"{state}.bak").read_bytes()

    def read(self, content: bytes) -> tuple[Entries, bool]:
        """What a broker takes from such a file, and whether it said that it took the copy."""
        self.path.write_bytes(content)
        self.path.with_name(self.path.name + ".bak").write_bytes(self.copy)
        with capture_logs() as said:
            found = self.entries(self.path, 0)
        return found, any(line["event"] == "state_read_from_copy" for line in said)


@pytest.mark.parametrize("how", ["short", "zeros"])
def test_cut(tmp_path: Path, state: str, how: str) -> None:
    model = Model(tmp_path, state)
    records = len(model.whole) - 400
    for size in (*range(0, records, 20), *range(max(records, 0), len(model.whole))):
        left = model.whole[:size]
        found, copied = model.read(left if how == "short" else left.ljust(len(model.whole), b"\0"))
        assert (found == model.before) if copied else (found == model.now and not model.whole[size:].strip()), size


def test_one_bit_flipped(tmp_path: Path, state: str) -> None:
    random = chance(f"flips/{state}")
    model = Model(tmp_path, state)
    copies = 0
    for _ in rounds(400, 5000, seconds=3):
        content = bytearray(model.whole)
        bit = random.randrange(len(content) * 8)
        content[bit // 8] ^= 1 << bit % 8
        found, copied = model.read(bytes(content))
        copies += copied
        if copied:
            assert found == model.before, f"bit {bit}"
        else:  # one name may have become another one's, whose value is then hidden
            gone = [entry for entry, value in model.now.items() if found.get(entry) != value]
            assert len(gone) <= 2, f"bit {bit}: {gone}"
    print(f"{state}: {copies} times the copy was read")
    assert copies


def test_the_name_of_the_table_is_damaged(tmp_path: Path, state: str) -> None:
    """A file of no entries is not believed."""
    model = Model(tmp_path, state)
    found, copied = model.read(model.whole.replace(b'Table"', b'Tible"', 1))
    assert copied and found == model.before


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_file_that_was_saved_once(tmp_path: Path, state: str, damage: str) -> None:
    """Its first content has a copy too."""
    path = tmp_path / state
    entries = STATES[state](path, 5)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[0] ^= 1
    path.write_bytes(content)
    assert STATES[state](path, 0) == entries


def test_what_was_delivered_of_waiting_messages(tmp_path: Path) -> None:
    """A damaged ``eruca.delays`` counts as none: the log tells the same, in more time."""
    path = tmp_path / "eruca.delays"
    mark = DelayMark(path)
    kept = Deliveries(4096, {1: 5, 2: 7}, 10, bytes(range(40)))
    mark.stage(kept)
    mark.save()
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        mark.load()
        assert mark.current is None, f"bit {bit}"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        mark.load()
        assert mark.current is None, f"{size} bytes"


def test_a_broker_without_copies_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: what does not read counts as a file of no entries."""
    model = Model(tmp_path, "topics.json")
    monkeypatch.setattr("eruca.broker.state.state_file.read_state", lambda *_: None)
    found, copied = model.read(model.whole[:-40])
    assert not copied and found != model.now and found != model.before
