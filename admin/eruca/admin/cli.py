"""``mqadmin``: from a command line to a command and an exit status (MQAdminStartup in 4.9.7).

The exit status is one of ``errors.Status``. An error is one sentence on standard error. Must not know what commands do.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TextIO

from eruca.admin import commands, contexts, help_pages, posix, printers, security, sessions, values
from eruca.admin.catalogue import SET, in_full, names
from eruca.admin.client import Admin
from eruca.admin.command import COLORS, COMMON, FORMS, OUTPUT, WATCH, Colors, Command, Job, Shown
from eruca.admin.errors import AdminError, BadValue, NotFound, Partial, Status, UsageError
from eruca.admin.posix import Operand, Option
from eruca.admin.results.acts import is_made
from eruca.admin.text import harmless, in_zone, nearest
from eruca.protocol.errors import ProtocolError
from eruca.remoting.version import version

BEFORE = (
    *COMMON,
    Option("o", OUTPUT, "the form of the output", choices=FORMS),
    Option("", "version", "print the version", takes_value=False),
)
"""The options that may stand before the command."""
_UNDONE = (Status.FAILED, Status.TIMED_OUT)
"""The statuses of a change that was not made, which is a part where it was made elsewhere."""
COMPLETE = "__complete"
"""The word by which shells ask what may stand at the end of a line."""


async def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    out: TextIO = sys.stdout,
    err: TextIO = sys.stderr,
    terminal: TextIO | None = None,
    *,
    source: int | None = None,
    screen: int | None = None,
) -> int:
    """Run a command line and return the exit status. A person, if one is there, answers questions at ``terminal``.

    ``source`` is the descriptor of the standard input, ``screen`` that of a terminal at which a person sits.
    """
    for argument in arguments:
        if not argument.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in argument):
            err.write(f"mqadmin: the argument {argument!a} is no text in this terminal's encoding\n")
            return Status.USAGE
    try:
        properties, arguments = security.split_properties(arguments, environment)
        if arguments and arguments[0] == COMPLETE:
            return await _complete(arguments[1:], environment, properties, out)
        before, arguments = posix.split(BEFORE, arguments)
    except AdminError as error:
        err.write(f"mqadmin: {harmless(str(error))}\n")
        return error.status
    if "version" in before:
        out.write(f"mqadmin {version()}\n")
        return Status.DONE
    if not arguments:
        out.write(help_pages.overview())
        return Status.DONE
    arguments = in_full(arguments)
    if arguments[0].lower() in help_pages.OTHERS:
        return _other(arguments[0].lower(), arguments[1:], environment, out, err, before)
    return await _run(arguments, before, environment, properties, Streams(out, err, terminal, source, screen))


@dataclass(frozen=True, slots=True)
class Streams:
    """Where output and errors go, and the terminal of a person, if one is there."""

    out: TextIO
    err: TextIO
    terminal: TextIO | None
    source: int | None = None
    """The descriptor of the standard input."""
    screen: int | None = None
    """That of a terminal at which a person sits."""


async def _run(
    arguments: Sequence[str],
    before: Mapping[str, str],
    environment: Mapping[str, str],
    properties: Mapping[str, str],
    streams: Streams,
) -> int:
    """Run a command about a cluster."""
    name, out, err = arguments[0], streams.out, streams.err
    found = commands.find(name)
    if found is None:
        err.write(unknown(name))
        return Status.USAGE
    try:
        given = found.parse(arguments[1:], before)
        if given is None:
            out.write(help_pages.page(found))
            return Status.DONE
        with in_zone(given.get("tz")):
            values.judge(found.options, given, found.operand)
            return await _do(found, given, environment, properties, streams)
    except (AdminError, ProtocolError) as error:
        return _failed(found, error, streams)


def _failed(found: Command, error: AdminError | ProtocolError, streams: Streams) -> int:
    """Say what was wrong, and give the exit status."""
    sentence, failure = harmless(str(error)), found.statuses.failure
    if failure is not None:
        streams.out.write(f"{found.statuses.meanings[failure]} - {sentence}\n")
    elif isinstance(error, UsageError):
        streams.out.write(found.usage())
    streams.err.write(f"mqadmin {found.name}: {sentence}\n")
    if failure is not None:
        return failure
    return error.status if isinstance(error, AdminError) else Status.FAILED


def unknown(name: str) -> str:
    """The sentence about a command that there is not."""
    known = [*names(), *(word for word in help_pages.OTHERS if word not in SET)]
    return f"The sub command {name} not exist{nearest(name, known) or '.'}\n"


def _other(
    word: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    out: TextIO,
    err: TextIO,
    before: Mapping[str, str],
) -> int:
    """Do what is not about a cluster."""
    try:
        asks_help = "help" in before or any(each in ("-h", "--help") for each in arguments)
        if asks_help or (word, *arguments) == ("context",):
            out.write(str(help_pages.page_of(word)))
        elif word == "help":
            out.write(_help(arguments))
        elif word == "cheat":
            out.write(_cheat(" ".join(arguments)))
        elif word == "completion":
            from eruca.admin import completion  # shells ask for it, commands do not

            out.write(completion.script(arguments))
        elif word == "schema":
            out.write(_schema(arguments))
        elif word in SET:
            raise UsageError(f"give the word set and what shall change: see mqadmin {word} set --help")
        elif arguments[0] in ("list", "show"):
            _show_contexts(arguments, before, environment, Streams(out, err, None))
        else:
            return contexts.run(arguments, environment, out, {"output": FORMS, "color": COLORS})
    except UnknownCommand as error:
        err.write(unknown(str(error)))
        return Status.USAGE
    except AdminError as error:
        err.write(f"mqadmin {word}: {harmless(str(error))}\n")
        return error.status
    return Status.DONE


def _show_contexts(
    arguments: Sequence[str], before: Mapping[str, str], environment: Mapping[str, str], streams: Streams
) -> None:
    """Print one context or all of them, in the form that is wanted."""
    from eruca.admin.results.contexts import known_context, known_contexts  # which other runs need not

    verb = arguments[0]
    name = Operand(Option("", "name", "the context")) if verb == "show" else None
    given = {**before, **posix.parse(BEFORE, arguments[1:], name)}
    form = given.get("o") or given.get(OUTPUT)
    form = printers.checked(form or environment.get(printers.VARIABLE) or "apache", "option -o (--output)")
    colors = _colors(given, environment, "", streams)
    job = Job(Admin(()), {}, streams.out, streams.err, environment=environment, colors=colors, form=form)

    def apache() -> None:
        contexts.run([verb, *filter(None, [given.get("name")])], environment, streams.out, {})

    found = known_contexts(environment) if verb == "list" else known_context(environment, given.get("name", ""))
    printers.Printer(job, form).print(Shown(found, apache))
    job.finish()


class UnknownCommand(AdminError):
    """There is no command of that name."""


def _help(arguments: Sequence[str]) -> str:
    if not arguments:
        return help_pages.overview()
    if len(arguments) > 1:
        raise UsageError(f"give one command, or --flat, not '{' '.join(arguments)}'")
    if arguments[0] == "--flat":
        return help_pages.flat()
    other = help_pages.page_of(arguments[0].lower())
    return other if other is not None else help_pages.page(_found(arguments[0]))


def _cheat(word: str) -> str:
    text = help_pages.cheat(word)
    if not text:
        raise NotFound(f"no example has '{word}': mqadmin cheat prints them all")
    return text


def _schema(arguments: Sequence[str]) -> str:
    if len(arguments) != 1:
        raise UsageError("give one command: mqadmin schema consumerProgress")
    found = _found(arguments[0])
    if not found.results:
        raise NotFound(f"{found.name} has no result: it runs until it is interrupted")
    return printers.schema(found.results) + "\n"


def _found(name: str) -> Command:
    found = commands.find(name)
    if found is None:
        raise UnknownCommand(name)
    return found


async def _complete(
    arguments: Sequence[str], environment: Mapping[str, str], properties: Mapping[str, str], out: TextIO
) -> int:
    """Answer a shell; whatever goes wrong is silence there."""
    with contextlib.suppress(Exception):
        from eruca.admin import completion

        async for line in completion.lines(arguments, environment, properties):
            out.write(f"{line}\n")
    return Status.DONE


async def _do(
    found: Command,
    given: dict[str, str],
    environment: Mapping[str, str],
    properties: Mapping[str, str],
    streams: Streams,
) -> int:
    session = sessions.opened(given, environment, properties)
    context = session.context
    async with session.admin as admin:
        beside = posix.overruled(found.options, given)
        counting = {key: value for key, value in given.items() if key not in {option.key for option in beside}}
        job = Job(
            admin,
            counting,
            streams.out,
            streams.err,
            environment=environment,
            terminal=streams.terminal,
            context=session.name,
            ask=context.ask,
            colors=_colors(given, environment, context.color, streams),
            source=streams.source,
            screen=streams.screen,
            form=_form(found, given, environment, context.output),
        )
        for option in beside:
            job.say(f"mqadmin {found.name}: option {option} does not count beside -{option.group[0]}")
        try:
            await _show(found, job, job.form)
        finally:
            job.finish()
    return job.status


def _form(found: Command, given: Mapping[str, str], environment: Mapping[str, str], usual: str) -> str:
    """The form of the output that is wanted: by the option, else by the variable, else the ``usual`` one."""
    option = next((option for option in found.options if option.name == OUTPUT), None)
    if option is None:
        return "apache"
    if option.key in given:
        return printers.checked(given[option.key], f"option {option}", found.forms)
    return printers.checked(
        environment.get(printers.VARIABLE) or usual or "apache", f"the variable {printers.VARIABLE}"
    )


async def _show(found: Command, job: Job, form: str) -> None:
    """Run a command and print what it gives, with ``--watch`` again and again."""
    every = job.number(WATCH.key)
    while True:
        try:
            await _show_once(found, job, form)
        except AdminError as error:
            if not every or error.status == Status.USAGE:
                raise
            job.say(f"mqadmin {found.name}: {error}")
        if not every:
            return
        job.finish()
        await asyncio.sleep(every)
        if form != "jsonl":
            job.clear()


async def _show_once(found: Command, job: Job, form: str) -> None:
    run = found.run(job)
    if isinstance(run, Coroutine):
        shown = await run
        if shown is not None:
            printers.Printer(job, form).print(shown)
        return
    printer, places = printers.Printer(job, form, several=True), list[bool]()
    async with aclosing(run):
        try:
            async for each in run:
                printer.print(each)
                if (made := is_made(each.result)) is not None:
                    places.append(made)
        except BaseException as error:
            printer.end(failed=True)
            if isinstance(error, AdminError) and error.status in _UNDONE and any(places):
                raise Partial(str(error)) from None
            raise
    printer.end()
    if job.status in _UNDONE and any(places) and not all(places):
        job.status = Status.PARTIAL


def _colors(given: Mapping[str, str], environment: Mapping[str, str], usual: str, streams: Streams) -> Colors:
    """By the option, else by NO_COLOR, else as the context says, else on a terminal."""
    wanted = given.get("color")
    if wanted is None:
        wanted = "never" if environment.get("NO_COLOR") else usual or "auto"
    if wanted not in COLORS:
        raise BadValue(f"option --color takes {', '.join(COLORS)}, not '{wanted}'")
    if wanted == "auto":
        return Colors(out=streams.out.isatty(), err=streams.err.isatty())
    return Colors(out=wanted == "always", err=wanted == "always")


def main() -> None:
    """The command ``mqadmin``."""
    if sys.stdout is None:  # closed by the shell: >&-
        print("mqadmin: the standard output is closed", file=sys.stderr)
        sys.exit(Status.FAILED)
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks
        terminal = sys.stdin if sys.stdin is not None and sys.stdin.isatty() else None
        source = sys.stdin.fileno() if sys.stdin is not None else None
        screen = source if terminal is not None and sys.stdout.isatty() else None
        sys.exit(asyncio.run(run(sys.argv[1:], os.environ, terminal=terminal, source=source, screen=screen)))
    except KeyboardInterrupt:
        sys.exit(Status.INTERRUPTED)
    except BrokenPipeError:  # the reader of the pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Status.DONE)
    except OSError as error:  # the disk of a file that takes the output is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"mqadmin: the output cannot be written: {error.strerror or error}\n")
        sys.exit(Status.FAILED)
