"""A process that writes to a store is killed: everything it said it had stored is there, in order, once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from eruca.broker.store import Store, verify
from tests.support.processes import Process
from tests.support.programme import ENOUGH, chance, rounds
from tests.support.stores import bodies, small_config

pytestmark = pytest.mark.processes

QUEUES = 4

WRITER = """
import asyncio, sys
from pathlib import Path
from eruca.broker.store import Store
from eruca.broker.store.results import Durability
from tests.support.stores import HOST, small_config

async def main(root, mode, starts):
    store = Store(small_config(root, mapped_file_size_commit_log=65536, flush_disk_type=mode, max_index_num=2000,
                               flush_interval_consume_queue=20, flush_consume_queue_thorough_interval=100))
    store.open()
    store.start()
    print("open", flush=True)

    async def produce(queue, number):
        while True:
            properties = b"TAGS\\x01t\\x02UNIQ_KEY\\x01%d-%d" % (queue, number)
            body = b"%d" % number * (1 + number % 30)
            put = store.appender.put("T", queue, body, properties, born_timestamp=1, born_host=HOST, store_host=HOST)
            durable = store.durable(put.end_offset)
            if durable is not None:
                assert await durable is Durability.DURABLE
            sys.stdout.write(f"{queue} {number}\\n")
            sys.stdout.flush()
            number += 1
            await asyncio.sleep(0)

    await asyncio.gather(*(produce(queue, start) for queue, start in enumerate(starts)))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2], [int(one) for one in sys.argv[3:]]))
"""


def kill_again_and_again(root: Path, mode: str, times: Iterable[int], writer_text: str = WRITER) -> None:
    """Kill the writer so many times, and look at its store each time."""
    random = chance(f"store/killed/{mode}")
    acknowledged = [0] * QUEUES
    path = os.pathsep.join(folder for folder in sys.path if folder)
    for _ in times:
        command = [sys.executable, "-c", writer_text, str(root), mode, *map(str, acknowledged)]
        with Process(command, root.parent / "writer.err", env={"PYTHONPATH": path}, talks=True) as writer:
            assert writer.output_lines.readline() == "open\n"
            told = "".join(writer.output_lines.readline() for _ in range(random.randrange(1, 700)))
            writer.kill()
            told += writer.output_lines.read()
        assert told.count("\n") < 100_000

        config = small_config(root, mapped_file_size_commit_log=65536, max_index_num=2000)
        # A kill within a write leaves a part of one record, which nobody has acknowledged.
        assert [each for each in verify(root, config).findings if "incomplete record lies" not in each.sentence] == []
        store = Store(config)
        report = store.open()
        assert not report.clean and report.lost_units == []
        assert [each for each in report.damages if "incomplete record at the end" not in each.reason] == []
        for queue in range(QUEUES):
            found = bodies(store, "T", queue)
            assert found == [b"%d" % number * (1 + number % 30) for number in range(len(found))]
            last = [int(line.split()[1]) for line in told.splitlines() if line.startswith(f"{queue} ")]
            assert len(found) > max(last, default=acknowledged[queue] - 1)
            acknowledged[queue] = len(found)
        store.close()
        (root / "abort").touch()
        assert verify(root, config).findings == []
    assert min(acknowledged) > 0


@ENOUGH
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_killed_again_and_again(tmp_path: Path, mode: str) -> None:
    kill_again_and_again(tmp_path / "store", mode, rounds(8, 100, seconds=15))


def test_a_writer_that_promises_too_much_is_found_out(tmp_path: Path) -> None:
    """The planted fault: it acknowledges what it has not stored yet."""
    planted = WRITER.replace("{queue} {number}", "{queue} {number + 1000}")
    with pytest.raises(AssertionError):
        kill_again_and_again(tmp_path / "store", "SYNC_FLUSH", range(2), planted)
