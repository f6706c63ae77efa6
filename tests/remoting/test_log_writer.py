"""The thread that writes a log: whoever puts a line neither waits nor hears of errors, and lost lines are counted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from eruca.remoting.log_writer import Descriptor, LogWriter
from tests.support.disks import SmallDisk
from tests.support.full_pipes import fill_pipe

PAGE = os.sysconf("SC_PAGE_SIZE")


def notice(lost: int) -> str:
    return f"lost {lost}\n"


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose writers have ended when its descriptors are free: what they still write goes to no other file."""
    before = {*threading.enumerate()}
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        eventually(lambda: before.issuperset(threading.enumerate()))
        os.close(writing)


def read_until(reading: int, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        data += os.read(reading, 1 << 16)
    return data


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lines_of_many_threads_come_whole_and_in_the_order_of_each(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        writer = LogWriter(Descriptor(file.fileno()), notice)

        def put(name: str) -> None:
            for number in range(500):
                writer.put(f"{name} {number} {'x' * 50}\n")

        threads = [threading.Thread(target=put, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.close()
    lines = (tmp_path / "log").read_text().splitlines()
    for name in "abcd":
        assert [line for line in lines if line[0] == name] == [f"{name} {number} {'x' * 50}" for number in range(500)]
    assert (len(lines), writer.lost) == (2000, 0)


def test_a_reader_that_stalls_holds_nobody_up_and_hears_what_was_lost() -> None:
    with pipe() as (reading, writing):
        fill_pipe(writing)
        writer = LogWriter(Descriptor(writing), notice, capacity=200_000)
        for number in range(10_000):
            writer.put(f"{number:099}\n")
        assert writer.lost == 8000

        lines = read_until(reading, b"\nlost 8000\n").decode().splitlines()

        assert lines[-2001:] == [f"{number:099}" for number in range(2000)] + ["lost 8000"]
        writer.put("more\n")
        assert read_until(reading, b"more\n") == b"more\n"
        writer.close()


def test_lines_of_4_mib_wait() -> None:
    with pipe() as (_, writing):
        fill_pipe(writing)
        writer = LogWriter(Descriptor(writing), notice)
        for number in range(5 << 10):
            writer.put(f"{number:01023}\n")
        assert writer.lost == 1 << 10
        writer.close(grace=0)


def test_a_close_waits_no_longer_than_its_grace_for_a_stalled_reader() -> None:
    with pipe() as (reading, writing):
        fill_pipe(writing)
        writer = LogWriter(Descriptor(writing), notice)
        writer.put("in time\n")
        begun = time.monotonic()
        writer.close(0.05)
        assert time.monotonic() - begun < 5
        writer.put("too late\n")
        assert writer.lost == 1
        read_until(reading, b"lost 1\n")


@pytest.mark.processes
def test_a_line_that_a_full_disk_cuts_is_lost_and_the_next_begins_a_new_one(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 16 * PAGE) as disk, (disk.folder / "log").open("wb") as file:
        log, ballast = disk.folder / "log", disk.folder / "ballast"
        writer = LogWriter(Descriptor(file.fileno()), notice)
        writer.put("a" * 2999 + "\n")
        eventually(lambda: log.stat().st_size == 3000)
        with ballast.open("wb", buffering=0) as filled, suppress(OSError):
            while True:
                filled.write(bytes(PAGE))
        writer.put("b" * 2999 + "\n")
        eventually(lambda: writer.lost == 1)
        writer.put("c" * 99 + "\n")
        eventually(lambda: writer.lost == 2)
        ballast.unlink()
        eventually(lambda: log.read_bytes().endswith(b"lost 2\n"))
        writer.put("next\n")
        writer.close()
        assert log.read_text() == "a" * 2999 + "\n" + "b" * (PAGE - 3000) + "\nlost 2\nnext\n"


@pytest.mark.parametrize("descriptor", ["/dev/full", "closed"])
def test_errors_are_counted_and_nothing_else(descriptor: str) -> None:
    number = os.open("/dev/full", os.O_WRONLY)
    if descriptor == "closed":
        os.close(number)
    writer = LogWriter(Descriptor(number), notice)
    for _ in range(100):
        writer.put("line\n")
    writer.close()
    assert writer.lost == 100
    if descriptor == "/dev/full":
        os.close(number)


def test_a_forked_child_writes_with_a_thread_of_its_own() -> None:
    with pipe() as (reading, writing):
        writer = LogWriter(Descriptor(writing), notice)
        writer.put("parent\n")
        assert read_until(reading, b"\n") == b"parent\n"
        child = os.fork()
        if not child:
            writer.put("child\n")
            writer.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert read_until(reading, b"\n") == b"child\n"
        writer.put("parent again\n")
        writer.close()
        assert read_until(reading, b"\n") == b"parent again\n"


def test_a_descriptor_that_does_not_block_is_waited_for() -> None:
    with pipe() as (reading, writing):
        os.set_blocking(writing, False)
        writer = LogWriter(Descriptor(writing), notice)
        for number in range(5000):
            writer.put(f"{number:099}\n")
        lines = read_until(reading, f"{4999:099}\n".encode()).decode().splitlines()
        assert lines == [f"{number:099}" for number in range(5000)]
        assert writer.lost == 0
        writer.close()


def test_lines_for_another_file_come_after_the_former_ones() -> None:
    with pipe() as (reading, writing):
        log = LogWriter(Descriptor(writing), notice)
        output = LogWriter(Descriptor(writing), notice, former=log)
        for number in range(50):
            log.put(f"event {number}\n")
            output.put(f"said {number}\n")
        output.flush()
        log.close()
        output.close()
        lines = os.read(reading, 1 << 16).decode().splitlines()
    assert len(lines) == 100
    assert all(lines.index(f"event {number}") < lines.index(f"said {number}") for number in range(50))


def test_a_former_file_that_stalls_delays_the_others_for_a_while_only() -> None:
    with pipe() as (late, stalled), pipe() as (reading, writing):
        fill_pipe(stalled)
        log = LogWriter(Descriptor(stalled), notice)
        output = LogWriter(Descriptor(writing), notice, former=log)
        log.put("event\n")
        output.put("said\n")
        assert read_until(reading, b"\n") == b"said\n"
        output.close()
        read_until(late, b"event\n")
        log.close()


def test_what_cannot_be_encoded_is_escaped() -> None:
    with pipe() as (reading, writing):
        writer = LogWriter(Descriptor(writing), notice)
        writer.put("\ud800\n")
        assert read_until(reading, b"\n") == b"\\ud800\n"
        writer.close()
