"""Processes that tests start, all of them: their output is kept in a file, and their end is certain.

Owns one child process each, and where it is asked for the session of processes that it leads; ends them by their own
pids only. Knows nothing of what runs in them.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of the kernel: which of the clocks of another process."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def whole_lines(text: str) -> str:
    """The lines of a file that another process writes, without the last one as long as a part of it is missing.

    One write need not be seen at once: Linux shows what lies before the end of a page of the file, and then the rest.
    """
    return text[: text.rfind("\n") + 1]


class NotReady(Exception):
    """A process ended, or kept silent, before it was ready; the message holds its last output."""


class Process:
    """A child process whose standard output and error go to `log`.

    `leads`: it leads a session of its own, and `kill` ends all processes of that. `talks`: its standard input and
    output are pipes of text, `input` and `output_lines`; only its standard error goes to `log`. With `errors` that goes
    to another descriptor.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        leads: bool = False,
        talks: bool = False,
        errors: int | None = None,
    ) -> None:
        self.log = log
        self._leads = leads
        self.started = time.monotonic()
        with log.open("ab") as sink:
            self._begin = sink.tell()
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else sink,
                stderr=sink if errors is None else errors,
                encoding="utf-8" if talks else None,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                start_new_session=leads,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.close_pipes()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    @property
    def input(self) -> IO[str]:
        """The standard input of a process that talks."""
        assert self._child.stdin is not None
        return self._child.stdin

    @property
    def output_lines(self) -> IO[str]:
        """The standard output of a process that talks."""
        assert self._child.stdout is not None
        return self._child.stdout

    @property
    def output(self) -> str:
        """What it has printed so far, without what a former process left there; whole lines while it runs."""
        ended = not self.running
        printed = self.log.read_bytes()[self._begin :].decode(errors="replace")
        return printed if ended else whole_lines(printed)

    def close_pipes(self) -> None:
        """Of a process that talks: no more input, and no more output is read."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to a child that still runs; after SIGSTOP returns when it stands still.

        On a busy machine a process that was told to stop goes on until its turn comes.
        """
        if self.running:
            self._child.send_signal(number)
            if number is signal.SIGSTOP:
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def wait(self, timeout: float = 30) -> int:
        """The exit status, once it has ended; raises TimeoutExpired after `timeout` seconds."""
        return self._child.wait(timeout)

    def stop(self, timeout: float = 20) -> int:
        """SIGTERM, then SIGKILL when it has not ended after `timeout` seconds; its exit status."""
        self.signal(signal.SIGTERM)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """SIGKILL, to all of its session if it leads one; its exit status."""
        if self._leads:
            kill_session(self.pid)
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait_for_port(self, port: int, timeout: float = 60) -> None:
        """Returns when `port` accepts a connection; raises NotReady when it never does."""
        self.wait_until(lambda: accepts(port), f"listening on port {port}", timeout)

    def wait_for_line(self, text: str, timeout: float = 60) -> str:
        """The first line of its output that holds `text`; raises NotReady when none comes."""
        self.wait_until(lambda: text in self.output, f"a line with {text!r}", timeout)
        return next(line for line in self.output.splitlines() if text in line)

    def wait_until(self, ready: Callable[[], bool], what: str, timeout: float = 60) -> None:
        """Returns when `ready()` is true.

        Raises NotReady when the process ends before, or after `timeout` seconds; then it is stopped.
        """
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running or time.monotonic() > deadline:
                state = "was stopped" if self.running else f"ended with {self._child.returncode}"
                self.stop()
                raise NotReady(f"No {what}; the process {state}. Output:\n{self.output[-3000:]}")
            time.sleep(0.01)

    def cpu_seconds(self) -> float:
        """User and system time that the process has used so far, from /proc."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def cpu_nanoseconds(self) -> int:
        """The same of all its threads by the clock of the process, which counts each moment that it runs."""
        return time.clock_gettime_ns(~self.pid << 3 | _CPU_CLOCK)

    def memory(self) -> dict[str, int]:
        """Resident memory in bytes from /proc: `rss`, and of it `anonymous` and `file`."""
        return memory_of(self.pid)


def memory_of(pid: int) -> dict[str, int]:
    """Resident memory of a process in bytes from /proc: `rss`, and of it `anonymous` and `file`."""
    wanted = {"VmRSS": "rss", "RssAnon": "anonymous", "RssFile": "file"}
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in wanted:
            found[wanted[name]] = int(value.split()[0]) * 1024
    return found


def accepts(port: int) -> bool:
    """Whether something listens on that port of the loopback address."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True


def session_members(session: int) -> Iterator[int]:
    """The processes of a session that are there still."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                if os.getsid(int(process.name)) == session:
                    yield int(process.name)
            except ProcessLookupError:
                continue


def kill_session(session: int) -> None:
    """SIGKILL to all processes of a session, without a word, but for this one."""
    for pid in session_members(session):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
