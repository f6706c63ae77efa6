"""The command line of a daemon: its flags, and the configuration behind them.

Owns: the flags -c, -n, -p, -m, --origins, --set, --check and --version, reading the file that -c names, and the end
with 78 for a configuration that cannot be taken.
Must not know: any particular key except ``namesrvAddr``, which -n sets.
Invariant: only the named file is read; a start and --check refuse the same values, with the same sentences.

In a daemon's ``main``, before it logs::

    start = configured(BrokerConfig, "mqbroker", sys.argv[1:], os.environ, fits=..., works_here=...)
    start.config, start.warnings, start.file
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TextIO, TypeVar

from eruca.remoting.log_line import one_line
from eruca.remoting.operating_system import EXIT_CONFIG
from eruca.remoting.settings import BadSetting, Check, settings_of, values
from eruca.remoting.sources import Given, Start, assignment, read, text_of
from eruca.remoting.version import version

__all__ = ["command_line", "configured"]

C = TypeVar("C")

DESCRIPTION = (
    "Runs until SIGTERM or Ctrl-C and logs to standard error. The first place of a setting counts: this command line, "
    "a variable ERUCA_<FIELD>, the file, RocketMQ's own variable, the default."
)
STATUSES = (
    "Exit codes: 0: stopped in order. 1: it could not start, or not save everything at the stop; the last line says "
    "why. 2: a wrong flag. 70: an error in the daemon. 78: a configuration that cannot be taken."
)


def configured(
    kind: type[C],
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    fits: Check[C] | None = None,
    works_here: Check[C] | None = None,
) -> Start[C]:
    """The configuration of a daemon that is to start; ends the process where there is nothing to start.

    ``fits`` looks at values together, ``works_here`` at this machine: a start finds the latter out by itself, so only
    --check asks it. Ends with 0 after -p, -m, --origins and a --check without a fault; with 78 (EX_CONFIG) and a line
    for each fault where there is any.
    """
    try:
        start = command_line(kind, program, arguments, environment, fits=fits, works_here=works_here)
    except BadSetting as bad:
        _print(sys.stderr, _lines(program, bad.faults, bad.warnings))
        sys.exit(EXIT_CONFIG)
    if start.shown is not None:
        _print(sys.stderr, _lines(program, (), start.warnings))
        _print(sys.stdout, start.shown)
        sys.exit(0)
    return start


def command_line(
    kind: type[C],
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    fits: Check[C] | None = None,
    works_here: Check[C] | None = None,
) -> Start[C]:
    """A ``kind`` from a daemon's command line, with the flags that operators know.

    -c FILE, -n ADDRESSES (only where the class has ``namesrvAddr``), -p (print every setting), -m (print the important
    ones), --origins (with the origin of each), --set KEY=VALUE (any key, may be repeated), --check, --version, -h.
    ``Start.file`` is the -c file, ``Start.shown`` the text that -p, -m, --origins or --check print. Exits with status 2
    and a usage line for a wrong flag, with 0 for -h and --version. Raises BadSetting.
    """
    flags = _parser(program, "namesrvAddr" in settings_of(kind)).parse_args(list(arguments))
    given = list(flags.assignments)
    if getattr(flags, "nameservers", None) is not None:
        given.append(Given("namesrvAddr", flags.nameservers, "-n"))
    start = read(
        kind,
        text=text_of(flags.file) if flags.file is not None else "",
        environment=environment,
        given=given,
        source=flags.file or "the configuration",
        checks=[each for each in (fits, works_here if flags.check else None) if each is not None],
    )
    shown = f"{program}: the configuration has no fault\n" if flags.check else _shown(start, flags)
    return dataclasses.replace(start, file=flags.file, shown=shown)


def _shown(start: Start[C], flags: argparse.Namespace) -> str | None:
    if not (flags.everything or flags.important or flags.origins):
        return None
    chosen = values(start.config, important=flags.important and not flags.everything)
    if not flags.origins:
        return "".join(f"{key}={text}\n" for key, text in chosen.items())
    return "".join(f"{key}={text}  # {start.origins.get(key, 'default')}\n" for key, text in chosen.items())


def _lines(program: str, faults: Sequence[str], warnings: Sequence[str]) -> str:
    found = [*faults, *(f"warning: {each}" for each in warnings)]
    return "".join(f"{one_line(f'{program}: {each}')}\n" for each in found)


def _print(stream: TextIO | None, text: str) -> None:
    with suppress(OSError, ValueError):  # a closed or full one does not change what the exit status says
        print(text, end="", file=stream, flush=True)


def _parser(program: str, with_nameservers: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=DESCRIPTION, epilog=STATUSES, allow_abbrev=False)
    add = parser.add_argument
    add("-c", "--configFile", dest="file", metavar="FILE", help="read this properties file")
    if with_nameservers:
        add(
            "-n",
            "--namesrvAddr",
            dest="nameservers",
            metavar="ADDRESSES",
            help="nameservers, as 'host:port;host:port'",
        )
    add(
        "-p",
        "--printConfigItem",
        dest="everything",
        action="store_true",
        help="print every setting and exit",
    )
    add(
        "-m",
        "--printImportantConfig",
        dest="important",
        action="store_true",
        help="print the important settings and exit",
    )
    add("--origins", action="store_true", help="print every setting with the place where it is set, and exit")
    add(
        "--set",
        dest="assignments",
        type=_assignment,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set any key; may be repeated",
    )
    add("--check", action="store_true", help="report every fault of the configuration and exit with 0, or 78")
    add("--version", action="version", version=f"{program} {version()}")
    return parser


def _assignment(item: str) -> Given:
    try:
        return assignment(item)
    except BadSetting as bad:
        raise argparse.ArgumentTypeError(str(bad).removeprefix("--set ")) from None
