"""What threads and tasks are doing, as lines of the log."""

from __future__ import annotations

import asyncio
import faulthandler
import tempfile
import threading

from structlog.testing import capture_logs

from eruca.remoting.dumps import MOST_NAMES, MOST_STACKS, dump_tasks, stacks_of_threads


async def waits_for(event: asyncio.Event) -> None:
    await event.wait()


async def outer(event: asyncio.Event) -> None:
    await waits_for(event)


async def test_tasks_that_wait_at_one_place_are_one_line() -> None:
    over = asyncio.Event()
    tasks = [asyncio.create_task(outer(over), name=f"waiter {number:02}") for number in range(30)]
    await asyncio.sleep(0)
    with capture_logs() as said:
        dump_tasks()
    (line,) = [line for line in said if "outer" in line.get("stack", "")]
    assert (line["event"], line["count"]) == ("tasks_dumped", 30)
    assert line["tasks"] == ", ".join(f"waiter {number:02}" for number in range(MOST_NAMES))
    wait, waits, out = line["stack"].split(" < ")
    assert wait.startswith("wait (asyncio/locks.py:") and waits.startswith("waits_for (remoting/test_dumps.py:")
    assert out.startswith("outer (remoting/test_dumps.py:")
    assert said[-1]["event"] == "dumped" and said[-1]["tasks"] == len(asyncio.all_tasks())
    over.set()
    await asyncio.gather(*tasks)


async def test_a_dump_of_tasks_is_bounded() -> None:
    over = asyncio.Event()
    scope: dict[str, object] = {}
    for number in range(MOST_STACKS + 50):
        exec(f"async def place_{number}(event):\n    await event.wait()", scope)
    tasks = [asyncio.create_task(scope[f"place_{number}"](over)) for number in range(MOST_STACKS + 50)]  # type: ignore[operator]
    await asyncio.sleep(0)
    with capture_logs() as said:
        dump_tasks()
    assert len(said) == MOST_STACKS + 1
    assert said[-1]["stacks"] >= MOST_STACKS + 50
    over.set()
    await asyncio.gather(*tasks)


def test_the_text_of_faulthandler_is_read() -> None:
    over, begun = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(10)
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        over.set()
        thread.join()
        file.seek(0)
        stacks = dict(stacks_of_threads(file.read()))
    assert f"work (remoting/test_dumps.py:{work.__code__.co_firstlineno + 2}) < " in stacks[f"0x{thread.ident:016x}"]
    assert "test_the_text_of_faulthandler_is_read (" in stacks[f"0x{threading.get_ident():016x}"]


def test_a_text_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    assert list(
        stacks_of_threads('Thread 0x1 (most recent call first):\n  File "/a/b/c.py", line 3 in f\n  File "/a')
    ) == [("0x1", "f (b/c.py:3)")]
    assert list(stacks_of_threads("")) == []
