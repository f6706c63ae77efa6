"""``mqadmin``: from a command line to a command and an exit status (MQAdminStartup in 4.9.7).

The exit status is one of ``errors.Status``. An error is one sentence on standard error. Must not know what commands do.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import TextIO

from eruca.admin import commands as _declared  # noqa: F401  (declares every command)
from eruca.admin import contexts, posix, printers, security
from eruca.admin.client import Admin, nameserver_addresses
from eruca.admin.command import COMMANDS, FORMS, OUTPUT, WATCH, Command, Job
from eruca.admin.errors import AdminError, BadValue, Status, UsageError
from eruca.admin.text import harmless, nearest
from eruca.protocol.errors import ProtocolError
from eruca.remoting.version import version

NAMESERVERS = "NAMESRV_ADDR"
OTHERS = {
    "context": "name clusters, and choose one: add, use, list, show, rm",
    "schema": "print the JSON Schema of a command's result",
}
"""Words that are no commands about a cluster."""


def overview() -> str:
    """The text that ``mqadmin`` prints without a command, and for help."""
    lines = ["The most commonly used mqadmin commands are:"]
    for each in dict.fromkeys(COMMANDS.values()):
        lines.append(f"   {each.name:<20} {each.help}")
    lines += ["", "Not in Apache's mqadmin 4.9:"]
    lines += [f"   {name:<20} {help}" for name, help in OTHERS.items()]
    return "\n".join([*lines, "", "See 'mqadmin help <command>' for more information on a specific command.", ""])


def _names() -> list[str]:
    return [each.name for each in dict.fromkeys(COMMANDS.values())]


async def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    out: TextIO = sys.stdout,
    err: TextIO = sys.stderr,
    terminal: TextIO | None = None,
) -> int:
    """Run a command line and return the exit status. A person, if one is there, answers questions at ``terminal``."""
    for argument in arguments:
        if not argument.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in argument):
            err.write(f"mqadmin: the argument {argument!a} is no text in this terminal's encoding\n")
            return Status.USAGE
    try:
        properties, arguments = security.split_properties(arguments, environment)
    except AdminError as error:
        err.write(f"mqadmin: {error}\n")
        return 1
    if not arguments or (len(arguments) == 1 and arguments[0] in ("help", "-h", "--help")):
        out.write(overview())
        return 0
    if arguments[0] == "--version":
        out.write(f"mqadmin {version()}\n")
        return 0
    if arguments[0].lower() == "context":
        return _context(arguments[1:], environment, out, err)
    asked = arguments[0] if len(arguments) == 2 and arguments[0] in ("help", "schema") else ""
    name = arguments[1] if asked else arguments[0]
    found = COMMANDS.get(name.lower())
    if found is None:
        err.write(f"The sub command {name} not exist{nearest(name, _names()) or '.'}\n")
        return Status.USAGE
    if asked == "help":
        out.write(found.usage())
        return 0
    if asked == "schema":
        return _write_schema(found, out, err)
    try:
        given = found.parse(arguments[1:])
        if given is None:
            out.write(found.usage())
            return 0
        return await _do(found, given, environment, properties, out, err, terminal)
    except UsageError as error:
        out.write(found.usage())
        err.write(f"mqadmin {found.name}: {harmless(str(error))}\n")
        return error.status
    except AdminError as error:
        err.write(f"mqadmin {found.name}: {harmless(str(error))}\n")
        return error.status
    except ProtocolError as error:
        err.write(f"mqadmin {found.name}: {harmless(str(error))}\n")
        return Status.FAILED


def _context(arguments: Sequence[str], environment: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        out.write(contexts.USAGE)
        return Status.DONE
    try:
        return contexts.run(arguments, environment, out, FORMS)
    except AdminError as error:
        err.write(f"mqadmin context: {harmless(str(error))}\n")
        return error.status


def _write_schema(found: Command, out: TextIO, err: TextIO) -> int:
    if not found.results:
        err.write(f"mqadmin schema: {found.name} has no JSON form\n")
        return Status.NOT_FOUND
    out.write(printers.schema(found.results) + "\n")
    return 0


async def _do(
    found: Command,
    given: dict[str, str],
    environment: Mapping[str, str],
    properties: Mapping[str, str],
    out: TextIO,
    err: TextIO,
    terminal: TextIO | None,
) -> int:
    name, context = contexts.chosen(environment) or ("", contexts.Context(nameservers=""))
    named = given.get("n") or properties.get("rocketmq.namesrv.addr") or environment.get(NAMESERVERS)
    nameservers = nameserver_addresses(named or context.nameservers)
    if context.tls:
        properties = {"tls.enable": "true", "tls.config.file": context.tls, **properties}
    credentials = security.find_credentials(properties, environment) or contexts.account_of(context)
    tls = security.make_context(security.find_tls(properties))
    async with Admin(nameservers, credentials=credentials, tls=tls, timeout=_seconds(given)) as admin:
        beside = posix.overruled(found.options, given)
        counting = {key: value for key, value in given.items() if key not in {option.key for option in beside}}
        job = Job(admin, counting, out, err, environment=environment, terminal=terminal, context=name, ask=context.ask)
        for option in beside:
            job.say(f"mqadmin {found.name}: option {option} does not count beside -{option.group[0]}")
        try:
            await _show(found, job, _form(found, given, environment, context.output))
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
    if job.has(WATCH.key) and every < 1:
        raise BadValue(f"option {WATCH} takes seconds, 1 or more, not {every}")
    while True:
        try:
            await _show_once(found, job, form)
        except AdminError as error:
            if not every:
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
    printer = printers.Printer(job, form, several=True)
    async with aclosing(run):
        try:
            async for each in run:
                printer.print(each)
        except BaseException:
            printer.end(failed=True)
            raise
    printer.end()


def _seconds(given: dict[str, str]) -> float | None:
    text = given.get("timeout")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= 3600:
        raise BadValue(f"option --timeout takes seconds, more than 0 and at most 3600, not '{text}'")
    return seconds


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
        sys.exit(asyncio.run(run(sys.argv[1:], os.environ, terminal=terminal)))
    except KeyboardInterrupt:
        sys.exit(Status.INTERRUPTED)
    except BrokenPipeError:  # the reader of the pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Status.DONE)
    except OSError as error:  # the disk of a file that takes the output is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"mqadmin: the output cannot be written: {error.strerror or error}\n")
        sys.exit(Status.FAILED)
