"""What a topic had before it was deleted does not come back when the queues are built again from the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eruca.broker.config import BrokerRole
from tests.support.desk import Desk

MAKE, DELETE, CLEAN = 17, 215, 316
TOPIC = {
    **{"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"},
    **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
}


@pytest.mark.parametrize("made_again", [True, False])
@pytest.mark.parametrize("written", [True, False])
async def test_a_deletion_holds_where_the_broker_is_killed_behind_it(
    desk: Desk, tmp_path: Path, *, made_again: bool, written: bool
) -> None:
    desk.topic("T", 2)
    desk.topic("U")
    desk.store("U", 0, 0, body=b"other")
    desk.store("T", 0, 0, 0, 0, body=b"old")
    if written:
        desk.broker.store.housekeeping.persist()
    assert (await desk.ask(DELETE, {"topic": "T"})).code == 0
    if made_again:
        assert (await desk.ask(MAKE, TOPIC)).code == 0
        desk.store("T", 1, 0, body=b"new")
    async with killed(desk, tmp_path / "killed") as again:
        assert (bodies(again, "T", 0), bodies(again, "U", 0)) == ([], [b"other"])
        assert bodies(again, "T", 1) == ([b"new"] if made_again else [])
        again.topic("T", 2)
        again.store("T", 0, 0, body=b"newer")
        assert bodies(again, "T", 0) == [b"newer"]


@pytest.mark.parametrize("lost", ["consumequeue", "index"])
async def test_a_deletion_of_long_ago_holds_where_the_queues_are_built_again(desk: Desk, lost: str) -> None:
    desk.topic("T", 2)
    desk.store("T", 0, 0, 0, body=b"old")
    assert (await desk.ask(DELETE, {"topic": "T"})).code == 0
    await desk.restart()
    desk.topic("T", 2)
    desk.store("T", 1, 0, body=b"new")
    await desk.stop()
    shutil.rmtree(desk.folder / "store" / lost)
    await desk.start()
    assert (bodies(desk, "T", 0), bodies(desk, "T", 1)) == ([], [b"new"])


async def test_unused_queues_that_were_deleted_do_not_come_back(desk: Desk) -> None:
    desk.topic("T")
    desk.topic("U")
    desk.store("T", 0, 0, body=b"old")
    desk.store("U", 0, 0, body=b"other")
    desk.broker.topics.remove("T")
    assert (await desk.ask(CLEAN)).code == 0
    desk.topic("T")
    await desk.stop()
    shutil.rmtree(desk.folder / "store" / "consumequeue")
    await desk.start()
    assert (bodies(desk, "T", 0), bodies(desk, "U", 0)) == ([], [b"other"])


async def test_a_log_that_lost_its_end_keeps_what_comes_there_later(desk: Desk) -> None:
    """As when the power fails: the deletion was noted behind the end that the log has now."""
    desk.topic("U")
    desk.topic("T")
    desk.store("U", 0, 0, body=b"kept")
    put = desk.store("T", 0, 0, body=b"old")
    desk.store("U", 0, *[0] * 20, body=b"lost")
    assert (await desk.ask(DELETE, {"topic": "T"})).code == 0
    await desk.stop()
    file = sorted((desk.folder / "store" / "commitlog").iterdir())[0]
    with file.open("r+b") as log:
        size = log.seek(0, 2)
        log.truncate(put.end_offset)
        log.truncate(size)
    shutil.rmtree(desk.folder / "store" / "consumequeue")
    await desk.start()
    desk.topic("T")
    desk.store("T", 0, 0, body=b"new")
    await desk.restart()
    assert (bodies(desk, "T", 0), bodies(desk, "U", 0)) == ([b"new"], [b"kept"])


async def test_a_slave_of_a_pair_knows_of_no_deletions(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, body=b"old")
    assert (await desk.ask(DELETE, {"topic": "T"})).code == 0
    await desk.stop()
    tables = desk.folder / "store" / "config"
    assert (tables / "deletedTopics.json").exists()
    desk.config.store.broker_role, desk.config.broker_id = BrokerRole.SLAVE, 1
    await desk.start()
    assert list(tables.glob("deletedTopics*")) == []


@pytest.mark.parametrize("how", ["clean start", "queues built again"])
async def test_one_damaged_unit_hides_no_other_message_of_a_topic_that_was_made_again(desk: Desk, how: str) -> None:
    """The newest one leads to before the deletion."""
    desk.topic("T")
    desk.topic("U")
    for topic in ("T", "U"):
        desk.store(topic, 0, *[0] * 10, body=b"old")
    assert (await desk.ask(DELETE, {"topic": "T"})).code == 0
    desk.topic("T")
    desk.store("T", 0, *[0] * 3, body=b"new")
    await desk.stop()
    file = next((desk.folder / "store" / "consumequeue" / "T" / "0").iterdir())
    with file.open("r+b") as units:
        units.seek(2 * 20)
        units.write(bytes(8))
    if how == "queues built again":
        shutil.rmtree(desk.folder / "store" / "consumequeue" / "U")
    await desk.start()
    assert desk.broker.store.max_offset("T", 0) == 3
    assert desk.store("T", 0, 0, body=b"newer").queue_offset == 3
    read = [await desk.broker.store.get_cold("T", 0, offset, 1) for offset in (0, 1, 3)]
    assert [got.message_count for got in read] == [1, 1, 1]


@pytest.mark.parametrize("damaged", [False, True])
async def test_queues_whose_folders_are_back_go_at_the_next_start(desk: Desk, tmp_path: Path, *, damaged: bool) -> None:
    """As after a power failure: the mark is at the end of the log, so nothing is built again. The newest message may be
    damaged."""
    desk.topic("T")
    put = [desk.store("T", 0, 0, body=b"old") for _ in range(3)][-1]
    await desk.stop()
    store = desk.folder / "store"
    shutil.copytree(store / "consumequeue", tmp_path / "former")
    mark = (store / "eruca.mark").read_bytes()
    await desk.start()
    assert (await desk.ask(DELETE, {"topic": "T"})).code == 0
    await desk.stop()
    shutil.copytree(tmp_path / "former", store / "consumequeue", dirs_exist_ok=True)
    (store / "eruca.mark").write_bytes(mark)
    if damaged:
        (log,) = (store / "commitlog").iterdir()
        with log.open("r+b") as file:
            file.seek(put.physical_offset + 27)
            file.write(b"\x07")
    await desk.start()
    assert desk.broker.store.max_offset("T", 0) == 0
    desk.topic("T")
    desk.store("T", 0, 0, body=b"new")
    assert bodies(desk, "T", 0) == [b"new"]


def killed(desk: Desk, folder: Path) -> Desk:
    """A broker on the files that this one has now."""
    shutil.copytree(desk.folder / "store", folder / "store")
    return Desk(folder)


def bodies(desk: Desk, topic: str, queue_id: int) -> list[bytes]:
    return [record.body for record in desk.records(topic, queue_id)]
