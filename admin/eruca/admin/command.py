"""A command: a name, its options, and a coroutine that runs it (SubCommand in 4.9.7).

Owns the register of commands (``@command``) and the ``Job``, one run of a command: its options read by type, the
cluster, and where output and errors go. A command gives what it found as a typed result, with a function that prints it
as Apache's mqadmin does (``Shown``); ``printers`` has the other forms. Must not know any particular command.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction
from typing import Any, TextIO

import msgspec

from eruca.admin import posix
from eruca.admin.catalogue import LINES
from eruca.admin.client import Admin
from eruca.admin.errors import MEANINGS, AdminError, Status
from eruca.admin.posix import Operand, Option
from eruca.admin.text import columns, harmless
from eruca.protocol.bodies import Body

COLORS = ("auto", "always", "never")
COMMON = (
    Option("h", "help", "print this text", takes_value=False),
    Option("n", "namesrvAddr", "nameservers, host:port;...; default: NAMESRV_ADDR, else ROCKETMQ_NAMESRV_ADDR"),
    Option("", "timeout", "seconds for each request; default 5, for some 15", kind="number", is_decimal=True),
    Option("", "tz", "the time zone of all times, such as Europe/Berlin or UTC; default: this machine's"),
    Option("", "color", "always, never, or auto: on a terminal, if NO_COLOR is not set", choices=COLORS),
)

OUTPUT = "output"
WATCH = Option(
    "", "watch", "ask again every N seconds, until interrupted; default 2", usual="2", kind="number", least=1
)
FORMS = ("apache", "table", "wide", "json", "jsonl", "yaml", "csv")
"""The forms of a result: that of Apache's mqadmin, and those of ``printers``."""

BROKER = Option("b", "brokerAddr", "the broker, as host:port", kind="address")
CLUSTER = Option("c", "clusterName", "the brokers of this cluster", kind="cluster")
MASTERS = Option("c", "clusterName", "all masters of this cluster", kind="cluster")
TOPIC = Option("t", "topic", "name of the topic", required=True, kind="topic")
CHANGE = (
    Option("", "keep", "change only what is given, if it exists", takes_value=False),
    Option("", "yes", "ask nothing", takes_value=False),
)
DELETION = (
    Option("", "ask", "ask before what is in use goes; without a terminal, refuse", takes_value=False),
    Option("", "yes", "ask nothing", takes_value=False),
)
"""Options that several commands share."""


BOLD, RED, YELLOW = "1", "31", "33"


def painted(text: str, color: str) -> str:
    """A text in a colour of terminals; "" is none."""
    return f"\x1b[{color}m{text}\x1b[0m" if color else text


@dataclass(frozen=True, slots=True)
class Colors:
    """Whether the output and what is said beside it have colours."""

    out: bool = False
    err: bool = False


class Job:
    """One run of a command."""

    def __init__(
        self,
        admin: Admin,
        given: dict[str, str],
        out: TextIO,
        err: TextIO,
        *,
        environment: Mapping[str, str],
        terminal: TextIO | None = None,
        context: str = "",
        ask: bool = False,
        colors: Colors = Colors(),  # immutable
        source: int | None = None,
        screen: int | None = None,
        form: str = "apache",
    ) -> None:
        self.admin = admin
        self.form = form
        """The form of the output."""
        self.environment = environment
        self.asks = ask or "ask" in given
        """Whether nothing that is in use goes unless a person agrees."""
        self.source = source
        """The descriptor of the standard input, if there is one."""
        self.screen = screen
        """The descriptor of the terminal whose keys a person presses, if output goes to it, too."""
        self.status = Status.DONE
        """The exit status, if nothing is raised."""
        self._given = given
        self._out = out
        self._err = err
        self._terminal = terminal
        self.context = context
        """The name of the context that is in use; empty without one."""
        self._open_line = False
        self.colors = colors

    # ------------------------------------------------------------------ options, whose values were judged

    def has(self, letter: str) -> bool:
        """Whether an option was given."""
        return letter in self._given

    def text(self, letter: str, default: str = "") -> str:
        """The value of an option, without the blanks around it."""
        return self._given.get(letter, default).strip()

    def maybe(self, letter: str) -> str | None:
        """The value of an option, None when it was not given."""
        return self.text(letter) if letter in self._given else None

    def number(self, letter: str, default: int = 0) -> int:
        """The value of an option as a whole number."""
        return int(self.text(letter, str(default)))

    def truth(self, letter: str, default: bool) -> bool:
        """The value of an option as true or false."""
        return self.text(letter, str(default)).lower() == "true"

    # ------------------------------------------------------------------ output

    def write(self, text: str) -> None:
        """Print a text without a line end."""
        if text:
            self._out.write(harmless(text))
            self._open_line = not text.endswith("\n")

    def painted(self, text: str) -> None:
        """Print a text of which the caller has made all that came from elsewhere harmless, with its colours."""
        if text:
            self._out.write(text)
            self._open_line = not text.endswith("\n")

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.write(text + "\n")

    def row(self, layout: str, *values: object) -> None:
        """Print a row by a printf format."""
        self.line(columns(layout, *values))

    def report(self, error: AdminError | str, status: Status = Status.FAILED) -> None:
        """Print an error that does not end the command. The first one reported gives the exit status."""
        self.status = self.status or status
        self.say(str(error), RED)

    def missing(self, errors: Mapping[str, AdminError], what: str) -> None:
        """Print the peers that did not answer, by name, and ``what`` is missing for it: the output is only a part."""
        for name, error in sorted(errors.items()):
            self.report(f"{name}: {error}: {what}", Status.PARTIAL)

    def say(self, text: str, color: str = "") -> None:
        """Print a line for the person, apart from the output."""
        self._out.flush()
        self._err.write(painted(harmless(text), color if self.colors.err else "") + "\n")
        self._err.flush()

    @property
    def asks_a_person(self) -> bool:
        """Whether a question is one: somebody sits there, and ``--yes`` does not answer it."""
        return self._terminal is not None and not self.has("yes")

    def agreed(self, question: str) -> bool | None:
        """What the person at the terminal answers to a question; None without a terminal. ``--yes`` is an answer."""
        if self.has("yes"):
            return True
        if self._terminal is None:
            return None
        self._out.flush()
        where = f"[{self.context}] " if self.context else ""
        with _interruptible():
            self._err.write(f"{harmless(where + question)} [y/N] ")
            self._err.flush()
            answer = self._terminal.readline()
        return answer.strip().lower() in ("y", "yes")

    def note(self, address: str, remark: str | None) -> None:
        """Print what a server adds to an answer, if anything, apart from the output."""
        if remark:
            self.say(f"{address}: {remark}")

    def clear(self) -> None:
        """Begin another picture: on a terminal at its top, else behind an empty line."""
        self._out.write("\x1b[H\x1b[2J" if self._out.isatty() else "\n")

    def flush(self) -> None:
        """Let the reader have what was printed."""
        self._out.flush()

    def finish(self) -> None:
        """End the last line if it is open."""
        if self._open_line:
            self.line()
        self._out.flush()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a wait for a person at once: asyncio's handler lets the loop do it, which runs after the answer.

    Only the main thread gets signals. Raises KeyboardInterrupt also for a Ctrl-C that came before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True, slots=True)
class Shown:
    """A result of a command, and what prints it as Apache's mqadmin does; None for what only that form says."""

    result: msgspec.Struct | None
    apache: Callable[[], None]
    more: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    """What prints it in the forms that only its command has."""


@dataclass(frozen=True, slots=True)
class Statuses:
    """The exit statuses of a command: what each says, for help and documentation, and that of any failure."""

    meanings: Mapping[int, str]
    failure: int | None = None
    """Where a program reads the status that knows none of mqadmin's. The sentence goes to the output, too, as such a
    program shows nothing else. None: an error has a status of its own."""


USUAL = Statuses(MEANINGS)


Run = Callable[[Job], Coroutine[Any, Any, Shown | None] | AsyncGenerator[Shown, None]]
"""Gives the result, or the results one after the other; None where all was printed."""


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command; ``options`` include the common ones."""

    name: str
    help: str
    options: tuple[Option, ...]
    run: Run
    alias: str = ""
    results: tuple[type[msgspec.Struct], ...] = ()
    """The types of its results, by its options; none where it has no form but Apache's."""
    operand: Operand | None = None
    """The option that words without an option belong to."""
    forms: tuple[str, ...] = FORMS
    """The forms of its results."""
    statuses: Statuses = USUAL

    def usage(self) -> str:
        """The text that explains the command."""
        return posix.usage(f"mqadmin {self.name}{f' {self.operand}' if self.operand else ''}", self.options)

    def parse(self, arguments: Sequence[str], before: Mapping[str, str] | None = None) -> dict[str, str] | None:
        """The options given, or None when help is requested. Raises UsageError; ``values`` judges what was given.

        Those ``before`` the command, by their names, count where they are not given again.
        """
        found = posix.parse(self.options, arguments, self.operand)
        if "h" in found or "help" in (before or {}):
            return None
        for option in self.options:
            if before and option.name in before:
                found.setdefault(option.key, before[option.name])
        posix.check(self.options, found, self.operand)
        return found


COMMANDS: dict[str, Command] = {}
"""All commands by their name in lower case, aliases included, in the order of their declaration."""


def command(
    name: str,
    *options: Option,
    alias: str = "",
    results: tuple[type[msgspec.Struct], ...] = (),
    reads: bool | None = None,
    operand: Operand | None = None,
    forms: tuple[str, ...] = (),
    statuses: Statuses = USUAL,
) -> Callable[[Callable[[Job], Any]], Run]:
    """Declare a command of the catalogue.

    With the types of its ``results`` it takes ``-o``, and ``--watch`` where it only ``reads``.

    By default a command reads if it gives one result, and does not if it gives them one after the other.

    The option of its ``operand`` is one of its options, too. ``forms`` are those that it has beside all others.
    Raises ValueError when the name is taken, KeyError when the catalogue lacks it.
    """

    def declare(run: Run) -> Run:
        own = (operand.option,) if operand else ()
        more = [_output((*own, *options), (*FORMS, *forms))] if results else []
        if results and (iscoroutinefunction(run) if reads is None else reads):
            more.append(WATCH)
        options_ = (*COMMON, *more, *own, *options)
        declared = Command(name, LINES[name], options_, run, alias, results, operand, (*FORMS, *forms), statuses)
        for each in filter(None, (name, alias)):
            if each.lower() in COMMANDS:
                raise ValueError(f"two commands are called {each}")
            COMMANDS[each.lower()] = declared
        return run

    return declare


def _output(others: Sequence[Option], forms: tuple[str, ...]) -> Option:
    letter = "" if any(option.letter == "o" for option in others) else "o"
    return Option(
        letter, OUTPUT, f"the form of the output: {', '.join(forms)}; default apache", added=True, choices=forms
    )


def agree_to_changes(job: Job, changes: Mapping[str, tuple[Body, Body]], *others: str) -> dict[str, str]:
    """Ask a person about changes of settings that exist, by broker's address, and about ``others``.

    Gives a line for each broker, which is to be said when its change is made; to a person all were said before.
    Raises AdminError for no.
    """
    lines: dict[str, str] = {}
    for address, (old, new) in changes.items():
        before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
        fields = [
            f"{name} {_word(before[name])} -> {_word(after[name])}" for name in after if before[name] != after[name]
        ]
        if fields:
            lines[address] = f"{address}: {', '.join(fields)}"
    if not job.asks_a_person or not (lines or others):
        return lines
    for line in (*lines.values(), *others):
        job.say(line)
    if not job.agreed("It exists, and this changes there. Go on?"):
        raise AdminError("nothing was changed")
    return {}


def agree_to_deletion(job: Job, users: Sequence[object], question: str) -> None:
    """Print who uses what is to be deleted; at a terminal, ask. Raises AdminError for no.

    Without a terminal it goes on, as Apache's mqadmin does, unless ``--ask`` is given or the context says it.
    """
    for each in users:
        job.say(str(each))
    if not users:
        return
    agreed = job.agreed(question)
    if agreed is None and job.asks:
        raise AdminError("nothing was changed: it is in use, and nobody is here to be asked; --yes does it")
    if agreed is False:
        raise AdminError("nothing was changed")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def first_of(first: Option, second: Option) -> tuple[Option, Option]:
    """Two options of which one must be given; with both, the first counts."""
    first, second = either(first, second)
    return first, replace(second, yields=True)


def either(first: Option, second: Option) -> tuple[Option, Option]:
    """Two options of which exactly one must be given."""
    group = first.letter + second.letter

    def grouped(option: Option) -> Option:
        return replace(option, required=False, group=group)

    return grouped(first), grouped(second)
