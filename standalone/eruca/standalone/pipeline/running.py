"""What the commands ``eruca pipeline …`` share: the options of the connection, and how they end.

Owns the exit codes: 0 done, 1 failed, 2 wrong arguments (click), 3 done and something is wrong, 130 stopped. The last
line of an error is its cause. PySpark is imported only when a command runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console

FAILED = 1
FOUND = 3
STOPPED = 130
_PYSPARK = ("pyspark", "pyarrow", "numpy", "pandas")


@dataclass(frozen=True)
class Run:
    """What the common options say, and the console."""

    name_server: str
    access: Mapping[str, str]
    console: Console

    def say(self, text: str) -> None:
        """A line, or several, of the result."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _pairs(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise click.BadParameter(f'"{each}" is expected to be NAME=VALUE.')
        pairs[name] = value
    return pairs


def common(command: Callable[..., int | None]) -> Callable[..., None]:
    """The common options, and the end of the command by its result."""

    def call(
        name_server: str,
        access: dict[str, str],
        access_key: str | None,
        secret_key: str | None,
        **options: Any,
    ) -> None:
        account = {"accessKey": access_key, "secretKey": secret_key}
        given = {**{name: value for name, value in account.items() if value}, **access}
        run = Run(name_server, given, Console())
        sys.exit(_end(run, lambda: command(run, **options)))

    call.__doc__ = command.__doc__
    call.__name__ = command.__name__
    call.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    for option in reversed(_COMMON):
        call = option(call)
    return call


_COMMON = (
    click.option("-n", "--name-server", envvar="NAMESRV_ADDR", required=True, metavar="HOST:PORT",
                 help="The nameservers, several joined by ';'; else $NAMESRV_ADDR."),
    click.option("--access", multiple=True, callback=_pairs, metavar="NAME=VALUE",
                 help="An option of the connection, such as tls=true or namespace=shop. Repeatable."),
    click.option("--access-key", envvar="MQ_ACCESS_KEY", help="The account; else $MQ_ACCESS_KEY."),
    click.option("--secret-key", envvar="MQ_SECRET_KEY", help="Its secret; better in $MQ_SECRET_KEY."),
)  # fmt: skip


def _end(run: Run, work: Callable[[], int | None]) -> int:
    try:
        return work() or 0
    except KeyboardInterrupt:
        sys.stderr.write("eruca pipeline: stopped\n")
        return STOPPED
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _PYSPARK:
            raise
        sys.stderr.write(f"eruca pipeline: {error.name} is missing: run `pip install 'eruca[spark]'`.\n")
        return FAILED
    except Exception as error:
        if not _is_expected(error):
            raise
        sys.stderr.write(f"eruca pipeline: {error}\n")
        return FAILED


def _is_expected(error: Exception) -> bool:
    from eruca.spark_connector import BadOption, SourceError

    return isinstance(error, BadOption | SourceError)
