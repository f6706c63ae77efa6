"""The command line of a daemon: its flags, and the configuration behind them.

Owns: the flags -c, -n, -p, -m and --set, and reading the file that -c names.
Must not know: any particular key except ``namesrvAddr``, which -n sets.
Invariant: only the named file is read, and only argparse's usage is printed.

In a daemon's ``main``::

    try:
        start = command_line(BrokerConfig, "mqbroker", sys.argv[1:], os.environ)
    except BadSetting as bad:
        sys.exit(f"mqbroker: {bad}")
    if start.shown is not None:      # -p or -m: print it and exit 0
        ...
    start.config, start.warnings, start.file
"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from eruca.protocol import properties
from eruca.remoting.settings import BadSetting, Start, read, settings_of, values

__all__ = ["command_line"]

C = TypeVar("C")


def command_line(
    kind: type[C],
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Start[C]:
    """A ``kind`` from a daemon's command line, with the flags that operators know.

    -c FILE, -n ADDRESSES (only where the class has ``namesrvAddr``), -p (print every setting), -m
    (print the important ones), --set KEY=VALUE (any key, may be repeated), -h. ``Start.file`` is
    the -c file, ``Start.shown`` the text that -p or -m print. Exits with status 2 and a usage line
    for an unknown flag, with 0 for -h. Raises BadSetting.
    """
    flags = _parser(program, "namesrvAddr" in settings_of(kind)).parse_args(list(arguments))
    given = dict(_assignment(item) for item in flags.assignments)
    if getattr(flags, "nameservers", None):
        given["namesrvAddr"] = flags.nameservers
    start = read(
        kind,
        text=_content(flags.file) if flags.file else "",
        environment=environment,
        given=given,
        source=flags.file or "the configuration",
    )
    shown = _shown(start.config, everything=flags.everything) if flags.everything or flags.important else None
    return dataclasses.replace(start, file=flags.file, shown=shown)


def _shown(config: object, *, everything: bool) -> str:
    chosen = values(config, important=not everything)
    return "".join(f"{key}={text}\n" for key, text in chosen.items())


def _parser(program: str, with_nameservers: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
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
    add(
        "--set",
        dest="assignments",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set any key; may be repeated",
    )
    return parser


def _assignment(item: str) -> tuple[str, str]:
    key, equals, text = item.partition("=")
    if not equals or not key:
        raise BadSetting(f"--set takes KEY=VALUE, not '{item}'")
    return key, text


def _content(file: str) -> str:
    try:
        return properties.decode(Path(file).read_bytes())
    except OSError as error:
        raise BadSetting(f"cannot read {file}: {error.strerror}; name a properties file") from None
