"""Completion: what may stand at the end of a command line, for bash, zsh and fish.

A shell runs ``mqadmin __complete SHELL WORD...``; its last word is what was typed so far. The answer is a line for each
candidate, with what it means behind a tab, or ``:files`` where a file belongs. Names of topics, groups, brokers and
clusters come from the cluster of the line, within a second in all, and are kept for 10 s in a file. Whatever goes
wrong is silence: nothing is ever printed into a prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from eruca.admin import commands, contexts, help_pages, sessions
from eruca.admin.catalogue import SET, in_full, names
from eruca.admin.client import Admin
from eruca.admin.command import COLORS, COMMON, FORMS, OUTPUT, Command
from eruca.admin.errors import UNREADABLE, UsageError
from eruca.admin.lookups import members_of
from eruca.admin.posix import Option
from eruca.admin.text import GROUP_OF
from eruca.protocol import api
from eruca.protocol.bodies import SubscriptionGroupWrapper
from eruca.protocol.names import is_system_group

SHELLS: Final = ("bash", "zsh", "fish")
FILES: Final = ":files"
PATIENCE: Final = 0.7
"""Seconds for the cluster's names; with the start of Python a TAB costs a second."""
KEPT: Final = 10.0
"""Seconds for which names are not asked for again."""
_BREAKS: Final = "=:@"
"""Letters at which bash begins another word; there the answer has only what is behind the last one."""
_CLUSTER: Final = ("topic", "group", "broker", "address", "cluster")
_RETRY: Final = "%RETRY%"
_TIMES: Final = ("now", "-30m", "-1h", "yesterday", "today")


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may stand there, and what it means."""

    text: str
    means: str = ""


async def lines(
    arguments: Sequence[str], environment: Mapping[str, str], properties: Mapping[str, str]
) -> AsyncIterator[str]:
    """The answer to a shell. Raises whatever goes wrong."""
    shell, words = arguments[0], list(arguments[1:])
    if shell == "bash":
        words = _words(words[0])
    *words, last = words
    prefix = ""
    if last.startswith("--") and "=" in last:
        name, _, last = last.partition("=")
        words, prefix = [*words, name], f"{name}="
    found = [each async for each in _candidates(words, last, environment, properties)]
    for each in found:
        if each.text == FILES:
            yield FILES
        elif each.text.lower().startswith(last.lower()):
            yield _line(shell, prefix, last, each)


def _line(shell: str, prefix: str, last: str, found: Candidate) -> str:
    if shell != "bash":
        return f"{prefix}{found.text}\t{found.means}" if found.means else prefix + found.text
    typed = prefix + last
    kept = max((typed.rfind(letter) for letter in _BREAKS), default=-1) + 1
    return shlex.quote((prefix + found.text)[kept:])


def _words(line: str) -> list[str]:
    """The words of a line behind the program; the last is what was typed of one, and may be empty."""
    words: list[str] = []
    for end in ("", '"', "'"):  # a quote may be open still
        with contextlib.suppress(ValueError):
            words = shlex.split(line + end)
            if not end and line[-1:].isspace() and not line.endswith("\\ "):
                words.append("")
            break
    return words[1:] or [""]


# ------------------------------------------------------------------ what may stand there


async def _candidates(
    words: Sequence[str], last: str, environment: Mapping[str, str], properties: Mapping[str, str]
) -> AsyncIterator[Candidate]:
    before: tuple[Option, ...] = (*COMMON, Option("o", OUTPUT, "the form of the output", choices=FORMS))
    while words and words[0].startswith("-D"):
        words = words[1:]
    name_at = _command_at(before, words)
    if name_at is None:
        option = _waiting(before, words)
        if option is None:
            static = _options(before, words) if last.startswith("-") else _commands()
            for each in static:
                yield each
            return
        options, rest = before, list(words)
    else:
        name, *rest = in_full(words[name_at:])
        if name.lower() == "context" and rest[:1] == ["add"] and len(rest) > 1:
            for each in _of_context(rest):
                yield each
            return
        if name.lower() in help_pages.OTHERS:
            for each in _other(name.lower(), rest, environment):
                yield each
            return
        found = commands.find(name)
        if found is None:
            return
        options, option = found.options, _waiting(found.options, rest)
        operand = _operand(found, rest)
        if option is None and not last.startswith("-"):
            option = operand
        if found.operand is not None and operand is None:
            options = tuple(each for each in options if each is not found.operand.option)
    if option is None:
        for each in _options(options, rest):
            yield each
        return
    given = {key: value for key, value in _given(options, [*words[:name_at], *rest]).items() if value}
    async for each in _values(option, last, given, environment, properties):
        yield each


def _command_at(before: Sequence[Option], words: Sequence[str]) -> int | None:
    """Where the command stands; None if it does not yet."""
    at = 0
    while at < len(words):
        if not words[at].startswith("-"):
            return at
        option = _named(before, words[at])
        at += 2 if option is not None and option.takes_value else 1
    return None


def _named(options: Sequence[Option], token: str) -> Option | None:
    return next((each for each in options if token in (f"--{each.name}", f"-{each.letter}") and token != "-"), None)


def _waiting(options: Sequence[Option], words: Sequence[str]) -> Option | None:
    """The option whose value comes next, None if no value is due."""
    option = _named(options, words[-1]) if words else None
    return option if option is not None and option.takes_value else None


def _operand(found: Command, words: Sequence[str]) -> Option | None:
    """The option that a word without one belongs to; None where the command takes no further one."""
    if found.operand is None:
        return None
    option, taken = found.operand.option, False
    for at, word in enumerate(words):
        taken |= word in (f"-{option.letter}", f"--{option.name}")
        taken |= not word.startswith("-") and _waiting(found.options, words[:at]) is None
    return None if taken and not found.operand.many else option


def _of_context(words: Sequence[str]) -> Iterator[Candidate]:
    """What follows ``context add NAME``."""
    option = _waiting(contexts.OPTIONS, words)
    if option is None:
        yield from _options(contexts.OPTIONS, words)
    elif option.kind == "file":
        yield Candidate(FILES)
    else:
        yield from map(Candidate, {"output": FORMS, "color": COLORS}.get(option.name, ()))


def _commands() -> Iterator[Candidate]:
    for name in names():
        yield Candidate(name)
    for word, means in help_pages.OTHERS.items():
        yield Candidate(word, means)


def _options(options: Sequence[Option], words: Sequence[str]) -> Iterator[Candidate]:
    """Those that are not given yet; the required ones first."""
    for each in sorted(options, key=lambda option: (not option.required, not option.group)):
        names = {f"-{each.letter}" if each.letter else "", f"--{each.name}"} - {""}
        if each.name.strip() == each.name and " " not in each.name and not names & set(words):
            yield Candidate(f"--{each.name}", each.help)
            if each.letter:
                yield Candidate(f"-{each.letter}", each.help)


def _other(word: str, rest: Sequence[str], environment: Mapping[str, str]) -> Iterator[Candidate]:
    """What follows a word that is no command about a cluster."""
    if word == "context":
        verbs = ("add", "use", "list", "show", "rm")
        yield from map(Candidate, verbs if not rest else ())
        if rest[:1] in (["list"], ["show"]) and rest[-1] in ("-o", f"--{OUTPUT}"):
            yield from map(Candidate, FORMS)
        if rest[:1] == ["use"] and len(rest) == 1:
            yield from map(Candidate, ("-", contexts.NONE))
        if rest[:1] in (["use"], ["show"], ["rm"]) and len(rest) == 1:
            yield from map(Candidate, contexts.names(environment))
    elif word in SET and not rest:
        yield Candidate("set", f"{SET[word]} --keep")
    elif word == "completion" and not rest:
        yield from map(Candidate, SHELLS)
    elif word in ("help", "schema") and not rest:
        yield from map(Candidate, names())
        if word == "help":
            yield from map(Candidate, ("--flat", *help_pages.OTHERS))


def _given(options: Sequence[Option], words: Sequence[str]) -> dict[str, str]:
    """The values of a line that is not finished."""
    known = {f"-{each.letter}": each.key for each in options if each.letter}
    known |= {f"--{each.name}": each.key for each in options}
    found: dict[str, str] = {}
    for token, value in zip(words, [*words[1:], ""], strict=False):
        if token in known:
            found.setdefault(known[token], value)
        elif token.partition("=")[0] in known:
            found.setdefault(known[token.partition("=")[0]], token.partition("=")[2])
    return found


async def _values(
    option: Option,
    last: str,
    given: Mapping[str, str],
    environment: Mapping[str, str],
    properties: Mapping[str, str],
) -> AsyncIterator[Candidate]:
    if option.choices:
        texts: Sequence[str] = option.choices
    elif option.kind == "boolean":
        texts = ("true", "false")
    elif option.kind == "file":
        texts = (FILES,)
    elif option.kind == "time":
        texts = _TIMES
    elif option.kind == "place":
        groups = await _names("group", given, environment, properties) if last.lower().startswith("g") else ()
        texts = ("first", "last", *_TIMES, *(f"{GROUP_OF}{each}" for each in groups))
    elif option.kind in _CLUSTER or (option.kind == "member" and given.get("g")):
        texts = await _names(option.kind, given, environment, properties)
    else:
        texts = ()
    for text in texts:
        yield Candidate(text)


# ------------------------------------------------------------------ names of the cluster


async def _names(
    kind: str, given: Mapping[str, str], environment: Mapping[str, str], properties: Mapping[str, str]
) -> list[str]:
    """The names of a kind, from the file if they are young, else from the cluster."""
    session = sessions.opened(given, environment, properties, timeout=PATIENCE, account=False)
    group = given.get("g", "") if kind == "member" else ""
    place = _place(environment, [*session.admin.nameservers, kind, group])
    with contextlib.suppress(OSError, *UNREADABLE):
        if 0 <= time.time() - place.stat().st_mtime < KEPT:
            return msgspec.json.decode(place.read_bytes(), type=list[str])
    async with session.admin as admin, asyncio.timeout(PATIENCE):
        found = sorted(await _asked(admin, kind, group))
    with contextlib.suppress(OSError):
        _keep(place, msgspec.json.encode(found))
    return found


def _place(environment: Mapping[str, str], parts: Sequence[str]) -> Path:
    home = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".cache"
    )
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
    return Path(home) / "mqadmin" / "names" / f"{name}.json"


def _keep(place: Path, content: bytes) -> None:
    """Write the file whole or not at all; only its owner may read it."""
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number, name = tempfile.mkstemp(dir=place.parent)
    with open(number, "wb") as out:
        out.write(content)
    os.replace(name, place)


async def _asked(admin: Admin, kind: str, group: str) -> set[str]:
    if kind == "topic":
        return set(await admin.all_topics())
    if kind == "group":
        return await _groups(admin)
    if kind == "member":
        return {each.client_id for each in (await members_of(admin, group)).connection_set}
    info = await admin.clusters()
    if kind == "cluster":
        return set(info.cluster_addr_table)
    if kind == "broker":
        return set(info.broker_addr_table)
    return {address for broker in info.broker_addr_table.values() for address in broker.broker_addrs.values()}


async def _groups(admin: Admin) -> set[str]:
    """The groups that brokers have settings of, and those with a retry topic: whichever answers in time."""
    topics, info = await asyncio.gather(admin.all_topics(), admin.clusters())
    found = {each.removeprefix(_RETRY) for each in topics if each.startswith(_RETRY)}
    masters = [master for each in info.broker_addr_table.values() if (master := each.master())]
    asked = [asyncio.create_task(admin.call(each, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)) for each in masters]
    if asked:
        await asyncio.wait(asked, timeout=PATIENCE / 2)
    for task in asked:
        if task.done() and task.exception() is None:
            found |= SubscriptionGroupWrapper.decode(task.result().body).subscription_group_table.keys()
        task.cancel()
    return {each for each in found if not is_system_group(each)}


# ------------------------------------------------------------------ the shells

_BASH: Final = r"""# bash completion of mqadmin
_mqadmin() {
    local IFS=$'\n' found
    found=$("${COMP_WORDS[0]}" __complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null) || return 0
    if [ "$found" = :files ]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    else
        COMPREPLY=($found)
    fi
}
complete -F _mqadmin mqadmin
"""
_ZSH: Final = r"""#compdef mqadmin
_mqadmin() {
    local line
    local -a texts shown
    for line in "${(@f)$(${words[1]} __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :files ]]; then
            _files
            return
        fi
        [[ -n $line ]] || continue
        texts+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done
    (( $#texts )) && compadd -l -d shown -a -- texts
}
if [[ ${funcstack[1]} == _mqadmin ]]; then
    _mqadmin "$@"
else
    compdef _mqadmin mqadmin
fi
"""
_FISH: Final = r"""# fish completion of mqadmin
function __mqadmin_complete
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l found (command $words[1] __complete fish $words[2..-1] "$last" 2>/dev/null)
    if test "$found[1]" = :files
        __fish_complete_path "$last"
    else if set -q found[1]
        printf '%s\n' $found
    end
end
complete -c mqadmin -f -a '(__mqadmin_complete)'
"""


def script(arguments: Sequence[str]) -> str:
    """What a shell reads to complete mqadmin. Raises UsageError for another shell."""
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        raise UsageError(f"give one of {', '.join(SHELLS)}: mqadmin completion bash")
    return {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[arguments[0]]
