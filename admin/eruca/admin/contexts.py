"""Contexts: named clusters of an operator, each with nameservers, account, TLS and habits (``mqadmin context``).

Owns their file, $XDG_CONFIG_HOME/mqadmin/contexts.json (else ~/.config), which its owner alone may read. It has no
secrets: an account is named by its file (the form of tools.yml) or by a command that prints the same. The context that
holds is the one of ``context use``; the variable MQADMIN_CONTEXT wins over it, and ``none`` is no context. Options of a
command line, Java properties and variables with nameservers win over a context. Must not know commands about clusters.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

import msgspec

from eruca.admin import posix
from eruca.admin.client import nameserver_addresses
from eruca.admin.errors import UNREADABLE, AdminError, NotFound, Status, UsageError
from eruca.admin.posix import Option
from eruca.admin.text import harmless, nearest
from eruca.protocol.signature import Credentials
from eruca.remoting.credentials import parse_credentials

VARIABLE: Final = "MQADMIN_CONTEXT"
NONE: Final = "none"
_PATIENCE: Final = 30
"""Seconds for a command that prints an account."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class Context(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One cluster of an operator."""

    nameservers: str
    account: str = ""
    """The file of the account."""
    account_command: str = ""
    """A command that prints it, when there is no file."""
    tls: str = ""
    """The file tls.properties, whose settings are those of tls.enable=true; without it connections are plain."""
    ask: bool = False
    """Whether deletions of what is in use are refused where nobody can be asked."""
    output: str = ""
    """The form of the output."""
    color: str = ""
    """When the output has colours."""


class _File(msgspec.Struct, kw_only=True, rename="camel"):
    current: str = ""
    before: str = ""
    contexts: dict[str, Context] = {}


def path_of(environment: Mapping[str, str]) -> Path:
    """The file of contexts."""
    home = environment.get("HOME") or os.path.expanduser("~")
    return Path(environment.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")) / "mqadmin" / "contexts.json"


def chosen(environment: Mapping[str, str]) -> tuple[str, Context] | None:
    """Name and content of the context that holds; None without one. Raises AdminError."""
    wanted = environment.get(VARIABLE, "")
    if wanted == NONE:
        return None
    file = _read(path_of(environment))
    name = wanted or file.current
    return (name, _found(file, name)) if name else None


def known(environment: Mapping[str, str]) -> tuple[dict[str, Context], str]:
    """All contexts by name, and the name of the one in use, "" without one. Raises AdminError."""
    file = _read(path_of(environment))
    return file.contexts, _current(file, environment)


def named(environment: Mapping[str, str], name: str) -> str:
    """The name of a context that there is: this one, or for "" the one in use. Raises NotFound."""
    file = _read(path_of(environment))
    wanted = name or _current(file, environment)
    if not wanted:
        raise NotFound("no context is in use: mqadmin context use NAME")
    _found(file, wanted)
    return wanted


def names(environment: Mapping[str, str]) -> list[str]:
    """The names of all contexts. Raises AdminError."""
    return sorted(_read(path_of(environment)).contexts)


def account_of(context: Context) -> Credentials | None:
    """The account of a context; None without one. Raises AdminError."""
    if context.account:
        try:
            text = Path(context.account).expanduser().read_text()
        except (OSError, ValueError) as error:
            raise AdminError(f"the account's file {context.account} cannot be read: {error}") from None
        return _credentials(text, context.account)
    if context.account_command:
        return _credentials(_printed(context.account_command), f"what '{context.account_command}' printed")
    return None


def _printed(command: str) -> str:
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=_PATIENCE
        )  # the operator's own
    except (OSError, ValueError) as error:
        raise AdminError(f"the account's command '{command}' cannot be run: {error}") from None
    except subprocess.TimeoutExpired:
        raise AdminError(f"the account's command '{command}' did not end in {_PATIENCE} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise AdminError(
            f"the account's command '{command}' ended with {done.returncode}{': ' + said[-1] if said else ''}"
        )
    return done.stdout


def _credentials(text: str, where: str) -> Credentials:
    try:
        found = parse_credentials(text, where)
    except ValueError as error:
        raise AdminError(str(error)) from None
    if found is None:
        raise AdminError(
            f"{where} has no account: it needs accessKey and secretKey, each on a line as 'accessKey: NAME'"
        )
    return found


# ------------------------------------------------------------------ the file


def _read(path: Path) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return _File()
    except (OSError, *UNREADABLE) as error:
        raise AdminError(f"the file of contexts {path} cannot be read: {error}") from None


def _write(path: Path, file: _File) -> None:
    """Write the file whole or not at all."""
    import tempfile  # which most runs need not

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(dir=path.parent)  # which only its owner may read
        with open(number, "wb") as out:
            out.write(msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")
        os.replace(name, path)
    except OSError as error:
        raise AdminError(f"the file of contexts {path} cannot be written: {error.strerror}") from None


def _found(file: _File, name: str) -> Context:
    if name not in file.contexts:
        raise NotFound(f"there is no context {name}{nearest(name, list(file.contexts))}")
    return file.contexts[name]


# ------------------------------------------------------------------ mqadmin context

OPTIONS = (
    Option("n", "namesrvAddr", "nameservers, as host:port;host:port", required=True),
    Option("", "account", "a file with accessKey and secretKey, in the form of tools.yml", kind="file"),
    Option("", "account-command", "a command that prints the same"),
    Option("", "tls", "a file tls.properties: connections are encrypted", kind="file"),
    Option("", "ask", "refuse deletions of what is in use where nobody can be asked", takes_value=False),
    Option("", "output", "the form of the output"),
    Option("", "color", "auto, always or never"),
)
USAGE: Final = (
    "usage: mqadmin context list [-o FORM] | show [NAME] [-o FORM] | use NAME|-|none | rm NAME | add NAME -n ADDRESSES "
    "[...]\n"
)


def run(
    arguments: Sequence[str], environment: Mapping[str, str], out: TextIO, choices: Mapping[str, Sequence[str]]
) -> Status:
    """Do what ``mqadmin context ARGUMENTS`` says; ``choices`` has the values of options. Raises AdminError."""
    path = path_of(environment)
    file = _read(path)
    verb, names, options = _split(arguments)
    if verb == "list" and not names:
        for name, each in sorted(file.contexts.items()):
            out.write(
                harmless(f"{'*' if name == _current(file, environment) else ' '} {name:<20} {each.nameservers}\n")
            )
    elif verb == "show" and len(names) <= 1:
        name = named(environment, names[0] if names else "")
        out.write(harmless(msgspec.json.format(msgspec.json.encode(_found(file, name)), indent=2).decode()) + "\n")
    elif verb == "use" and len(names) == 1:
        name = file.before if names[0] == "-" else "" if names[0] == NONE else names[0]
        if name:
            _found(file, name)
        elif names[0] == "-":
            raise NotFound("no other context was in use before")
        file.current, file.before = name, file.current
        _write(path, file)
        out.write(f"context {name or NONE}\n")
    elif verb == "rm" and len(names) == 1:
        _found(file, names[0])
        del file.contexts[names[0]]
        file.current, file.before = ("" if each == names[0] else each for each in (file.current, file.before))
        _write(path, file)
        out.write(f"context {names[0]} removed\n")
    elif verb == "add" and len(names) == 1:
        _add(file, names[0], options, choices)
        _write(path, file)
        used = ", and in use from now on: mqadmin context use none ends that" if file.current == names[0] else ""
        out.write(f"context {names[0]} added{used}\n")
    else:
        raise UsageError(USAGE.strip())
    return Status.DONE


def _split(arguments: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The verb, the names behind it, and the options behind these."""
    at = next((i for i, each in enumerate(arguments) if each.startswith("-") and each != "-"), len(arguments))
    words, options = list(arguments[:at]), list(arguments[at:])
    if not words or (options and words[0] != "add"):
        raise UsageError(USAGE.strip())
    return words[0], words[1:], options


def _current(file: _File, environment: Mapping[str, str]) -> str:
    wanted = environment.get(VARIABLE, "")
    return "" if wanted == NONE else wanted or file.current


def _add(file: _File, name: str, options: Sequence[str], choices: Mapping[str, Sequence[str]]) -> None:
    if not _NAME.fullmatch(name) or name == NONE:
        raise UsageError(f"'{name}' is no name of a context: letters, digits, '.', '_' and '-'")
    if name in file.contexts:
        raise AdminError(f"there is a context {name} already: mqadmin context rm {name}")
    given = posix.parse(OPTIONS, options)
    posix.check(OPTIONS, given)
    if not nameserver_addresses(given["n"]):
        raise UsageError("option -n (--namesrvAddr) is empty: name a nameserver as host:port")
    for name_of, values in choices.items():
        if name_of in given and given[name_of] not in values:
            raise UsageError(f"option --{name_of} takes {', '.join(values)}, not '{given[name_of]}'")
    if "account" in given and "account-command" in given:
        raise UsageError("--account and --account-command exclude each other")
    file.contexts[name] = Context(
        nameservers=given["n"],
        account=_absolute(given.get("account", "")),
        account_command=given.get("account-command", ""),
        tls=_absolute(given.get("tls", "")),
        ask="ask" in given,
        output=given.get("output", ""),
        color=given.get("color", ""),
    )
    file.current = file.current or name


def _absolute(file: str) -> str:
    return str(Path(file).expanduser().absolute()) if file else ""
