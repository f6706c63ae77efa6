"""Help: the commands by subject or in one list, the page of a command, examples by a word.

Builds texts from the declarations. Must not know any particular command.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Final

from eruca.admin import contexts
from eruca.admin.catalogue import LINES, SET, SUBJECTS, names_of
from eruca.admin.command import Command
from eruca.admin.errors import Status
from eruca.admin.examples import Example, examples, examples_of

_WORDS: Final = {
    "context": ("name clusters, and choose one: add, use, list, show, rm", contexts.USAGE),
    **{
        word: (
            f"create a {word}, or change only what is given: mqadmin {word} set",
            f"usage: mqadmin {word} set [OPTIONS]\n\nIts options are those of {name}, with --keep.\n",
        )
        for word, name in SET.items()
    },
    "schema": ("print the JSON Schema of a command's result", "usage: mqadmin schema COMMAND\n"),
    "cheat": ("print examples; with a word, those that have it", "usage: mqadmin cheat [WORD]\n"),
    "completion": (
        "print what makes a shell complete commands, options and names",
        "usage: mqadmin completion bash|zsh|fish\n\n"
        "bash:  mqadmin completion bash > ~/.local/share/bash-completion/completions/mqadmin\n"
        "zsh:   mqadmin completion zsh > FOLDER/_mqadmin, where FOLDER is one of $fpath\n"
        "fish:  mqadmin completion fish > ~/.config/fish/completions/mqadmin.fish\n\n"
        "The folder must be there: mkdir -p makes it.\n",
    ),
    "help": (
        "print this text, the page of a command, or all commands in one list",
        "usage: mqadmin help [COMMAND | --flat]\n",
    ),
}
OTHERS: Final = {word: does for word, (does, _) in _WORDS.items()}
"""Words that are no commands about a cluster."""
_APACHE: Final = 20
"""The letters of the names' column of Apache's list."""
_ENDS: Final = "See 'mqadmin help <command>' for more information on a specific command."


def overview() -> str:
    """All commands by subject: the text that ``mqadmin`` prints without a command, and for help."""
    lines = [
        "usage: mqadmin [OPTIONS] COMMAND [OPTIONS]",
        "",
        "-n (nameservers, as host:port;host:port), --timeout, --tz, --color and -o may stand before the command.",
    ]
    for subject in SUBJECTS:
        lines += ["", f"{subject}:", *_rows({name: LINES[name] for name in names_of(subject)})]
    lines += ["", "Other words:", *_rows(OTHERS)]
    return "\n".join([*lines, "", _ENDS, ""])


def flat() -> str:
    """All commands in one list, as Apache's mqadmin prints it."""
    lines = ["The most commonly used mqadmin commands are:", *_rows(LINES, _APACHE)]
    lines += ["", "Not in Apache's mqadmin 4.9:", *_rows(OTHERS, _APACHE)]
    return "\n".join([*lines, "", _ENDS, ""])


def _rows(texts: Mapping[str, str], width: int | None = None) -> Iterable[str]:
    """A name and what it does on each line; the names' column is as wide as the longest, or ``width``."""
    column = max(map(len, texts)) + 1 if width is None else width
    return (f"   {name:<{column}} {text}" for name, text in texts.items())


def page(found: Command) -> str:
    """What a command does, its options, what it asks, two examples or more, and its exit statuses."""
    parts = [found.usage(), f"{sentence(found.help)}\n", f"Requests: {requests(found)}.\n"]
    if any(option.name == "yes" for option in found.options):
        parts.append("At a terminal it asks before it changes or deletes what is in use; --yes is the answer.\n")
    parts += [f"Examples:\n{_listed(examples_of(found.name))}", f"Exit status:\n{_statuses(found)}"]
    return "\n".join(parts)


def page_of(word: str) -> str | None:
    """The page of a word that is no command about a cluster; None for any other."""
    found = _WORDS.get(word)
    return None if found is None else f"{found[1]}\n{sentence(found[0])}\n"


def cheat(word: str) -> str:
    """Examples in whose words a word stands; "" if there is none."""
    return _listed(examples(word))


def sentence(text: str) -> str:
    """A help text as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def requests(found: Command) -> str:
    """The codes of the requests that a command sends, and to whom: the first paragraph of its coroutine."""
    text = inspect.cleandoc(found.run.__doc__ or "").split("\n\n", 1)[0]
    return " ".join(text.split()).rstrip(".")


def _listed(found: Iterable[Example]) -> str:
    return "".join(f"   # {each.does}\n   mqadmin {each.line}\n" for each in found)


def _statuses(found: Command) -> str:
    meanings = [
        (status, text)
        for status, text in found.statuses.meanings.items()
        if status is not Status.WOULD_CHANGE or may_only_look(found)
    ]
    return "".join(f"   {status:<3}  {text}\n" for status, text in meanings)


def may_only_look(found: Command) -> bool:
    """Whether a command can end with WOULD_CHANGE."""
    return found.name == "diff" or any(option.name == "dry-run" for option in found.options)
