"""How much memory a process has and may have, as Linux says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.remoting import memory

MACHINE = {"proc/meminfo": "MemTotal:        4000000 kB\nMemFree:  100 kB\n"}
GIBIBYTE = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    """A file system with these files."""
    for name, text in {**MACHINE, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, 4_000_000 * 1024),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{GIBIBYTE}\n"},
            GIBIBYTE,
        ),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": f"{2 * GIBIBYTE}\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.high": f"{GIBIBYTE}\n",
            },
            GIBIBYTE,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GIBIBYTE}\n"}, GIBIBYTE),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/17\n0::/x\n",
                "sys/fs/cgroup/memory/docker/17/memory.limit_in_bytes": f"{GIBIBYTE}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            GIBIBYTE,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/docker/17\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIBIBYTE}\n",
            },
            GIBIBYTE,
        ),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 4_000_000 * 1024),
    ],
    ids=["no groups", "above", "high", "container", "version 1", "version 1 in a container", "no limit"],
)
def test_the_limit_is_the_least_of_the_control_groups_and_of_the_machine(
    tmp_path: Path, files: dict[str, str], limit: int
) -> None:
    assert memory.limit(tree(tmp_path, files)) == limit


def test_pages_of_files_do_not_count(tmp_path: Path) -> None:
    status = "VmRSS:\t 9000 kB\nRssAnon:\t  1000 kB\nRssFile:\t 7000 kB\nRssShmem:\t 20 kB\nVmSwap:\t 3 kB\n"
    assert memory.used(tree(tmp_path, {"proc/self/status": status})) == 1023 * 1024


def test_what_this_process_takes_is_seen() -> None:
    before = memory.used()
    taken = bytearray(b"x" * (64 << 20))
    assert memory.used() - before >= 60 << 20
    assert len(taken) < memory.limit()
    memory.give_back()


def test_another_system_says_nothing(tmp_path: Path) -> None:
    assert (memory.used(tmp_path), memory.limit(tmp_path)) == (0, 0)
