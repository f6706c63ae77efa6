"""The standard input: a run that ends before its input does ends without a word of the thread that reads."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from eruca.admin.standard_input import lines_of


@pytest.mark.parametrize("pieces", [1, 100])
def test_a_run_may_end_before_its_input(pieces: int) -> None:
    """The thread waits for more, or for somebody to take what it has read; an error in it makes this test fail."""
    source, end = os.pipe()
    writer = threading.Thread(target=_write, args=(end, pieces))

    async def first() -> bytes:
        async for lines in lines_of(source):
            writer.start()
            return lines[0]
        raise AssertionError("there is a line")

    os.write(end, b"one\n")
    assert asyncio.run(first()) == b"one"
    for thread in threading.enumerate():
        if thread.name == "standard input":
            thread.join()
    os.close(source)
    writer.join()


def _write(end: int, pieces: int) -> None:
    try:
        for _ in range(pieces):
            os.write(end, b"more\n" * 10_000)
    except BrokenPipeError:
        pass  # nobody reads any more
    finally:
        os.close(end)
