"""What ``eruca run`` does: run the application in this process, or workers that do.

Owns the command of a worker, the exit codes, and the sentences for what goes wrong before messages come.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from eruca.client.errors import ClientError
from eruca.remoting.loop import run
from eruca.standalone.workers.supervisor import NOT_LOADED, Supervisor
from eruca.standalone.workers.target import BadTarget, end_with, load

FAILED = 1


def log_to_stderr(level: str) -> None:
    """Log what is of this level or above, unless the program set up logging. Raises ValueError for no level."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")


@dataclass(frozen=True, slots=True)
class Run:
    """An application by its name, ``module:app``, and how it is to run.

    Args:
        folder: where modules are looked for first.
        nameserver: in place of the application's own.
    """

    target: str
    folder: Path
    nameserver: str | None

    def here(self, supervised: bool) -> int:
        """Run in this process; ``supervised``: until standard input ends, too. Returns the exit code."""
        if supervised:
            end_with(sys.stdin.fileno())
        try:
            app = load(self.target, self.folder)
        except BadTarget as reason:
            return _said(str(reason), NOT_LOADED)
        except SystemExit as end:
            return _said(f"{self.target} cannot be loaded: its module ends the process ({end.code})", NOT_LOADED)
        except Exception:
            logging.getLogger("eruca.run").exception("%s cannot be loaded", self.target)
            return NOT_LOADED
        try:
            app.run(nameserver=self.nameserver)
        except ClientError as error:
            return _said(f"{type(error).__name__}: {error}", FAILED)
        return 0

    def supervise(self, workers: int, reload: bool, stop_timeout: float, log_level: str) -> int:
        """Run workers until a signal; returns the exit code."""
        if reload:
            try:
                import watchfiles  # noqa: F401
            except ImportError:
                return _said('--reload needs a package: pip install "eruca[reload]"', NOT_LOADED)
        command = [sys.executable, "-m", "eruca.standalone.cli", "run", self.target, "--supervised"]
        command += ["--folder", str(self.folder), "--log-level", log_level]
        if self.nameserver is not None:
            command += ["--nameserver", self.nameserver]

        async def supervise() -> int:
            return await Supervisor(command, workers, stop_timeout, [self.folder] if reload else []).run()

        return run(supervise())


def _said(sentence: str, code: int) -> int:
    click.echo(f"eruca run: {sentence}", err=True)
    return code
