"""The names in the pages: an option, a setting, a class, a logger or a file that a page names exists.

A page names them as code. Commands are compared with the declarations of the commands; other words with all words of
the product and its tests, so a misspelled or renamed one is found, and one that means another thing is not.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from eruca.admin.command import COMMON, OUTPUT, WATCH
from eruca.admin.commands import find
from eruca.broker.config import BrokerConfig
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.settings import settings_of
from eruca.standalone.cli import main as eruca
from tests.house.test_examples import WORDS as OF_MQADMIN_ITSELF
from tests.house.tree import ROOT, committed_files, product_modules, text_of

OF_OTHERS = {
    *("CheckForbiddenHook", "ConsumeMessageHook", "EndTransactionHook", "FilterMessageHook", "SendMessageHook"),
    *(
        "customizedTraceTopic",
        "enableBackpressureForAsyncMode",
        "sendMsgTimeout",
        "setDelayTimeSec",
        "setDeliverTimeMs",
    ),
    *("timerPrecisionMs", "INNER_MULTI_DISPATCH", "DEFAULT_CONSUMER"),
    *("KillMode", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER", "current_timestamp", "task_acks_late"),
    *("SmartRetryMiddleware", "schedule_source"),
    *("rocketmq_rpc_latency_milliseconds", "ROCKETMQ_NAMESRV_ADR"),
}
"""Names of RocketMQ's other programs, of systemd, OpenTelemetry, Spark, Celery and Taskiq; and two that are wrong where
they stand."""
ABOUT_OTHERS = {"coming-from.md", "comparison.md"}
"""Pages that translate the names of other systems."""
OF_ROCKETMQ_5 = {"createAcl"}
"""Commands of its mqadmin."""
PAGES = [file for file in committed_files() if file.suffix == ".md" and file.name != "CHANGELOG.md"]
_FENCED = re.compile(r"(?ms)^```[^\n]*\n(.*?)^```$")
_SHELL = re.compile(r"(?ms)^```(?:sh|bash|console)?\n(.*?)^```$")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_INDENTED = re.compile(r"(?m)^    (.*)$")
_CALL = re.compile(r"(?:^\s*|\$ |[|;&(]\s*)(?:[\w./]*/)?(mqadmin|eruca) ([^|;&)\n]*)")
_OPTION = re.compile(r"(?<=\s)--?[a-zA-Z][\w-]*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_CODE_WORD = re.compile(r"[a-z]+(?:_[a-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+|[A-Z]+(?:_[A-Z0-9]+)+|(?:[A-Z][a-z0-9]+){2,}")
"""A word that no prose has: snake_case, camelCase, CONSTANTS, and names of classes."""
_DOTTED = re.compile(r"(?<![\w./@%-])eruca(?:\.[A-Za-z_]\w*)+")


def prose(page: Path) -> str:
    return _FENCED.sub("", (ROOT / page).read_text())


def calls(page: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each call of a command in a page: the program, its words, and its options."""
    text = (ROOT / page).read_text()
    for code in [*_SHELL.findall(text), *_INLINE.findall(prose(page)), *_INDENTED.findall(text)]:
        for line in code.replace("\\\n", " ").splitlines():
            for program, rest in _CALL.findall(re.sub(r"\s#.*", "", line)):
                yield program, rest.split(), _OPTION.findall(f" {_QUOTED.sub('', rest)}")


def options_of(program: str, words: list[str]) -> set[str] | None:
    """What the command takes that these words begin with; None for one of which nothing is known here."""
    if program == "mqadmin":
        found = find(words[0]) if words else None
        if found is None:
            return None
        taken = [*found.options, *COMMON, WATCH]
        return {f"--{each.name}" for each in taken} | {f"-{each.letter}" for each in taken} | {f"--{OUTPUT}", "-o"}
    command: click.Command = eruca
    with click.Context(eruca) as context:
        for word in words:
            below = command.get_command(context, word) if isinstance(command, click.Group) else None
            if below is None:
                break
            command = below
    if isinstance(command, click.Group) and any("…" in word for word in words):
        return None
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    return {name for each in options for name in (*each.opts, *each.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_option_of_a_call_exists(page: Path) -> None:
    wrong = []
    for program, words, options in calls(page):
        taken = options_of(program, words)
        wrong += [(program, *words[:2], each) for each in options if taken is not None and each not in taken]

    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_that_a_sentence_names_exists(page: Path) -> None:
    subjects = {"topic", "group", "schema"}
    named = re.findall(r"(?<!`)`mqadmin ([a-z][a-zA-Z]+)", prose(page))
    known = {*OF_MQADMIN_ITSELF, *subjects, *OF_ROCKETMQ_5}

    assert [name for name in named if name not in known and find(name) is None] == []


def rows(text: str) -> set[str]:
    """The options in the first column of the tables of a text."""
    cells = re.findall(r"(?m)^\| (`-[^|]*) \|", text)
    return {option for cell in cells for option in re.findall(r"`(--[a-z-]+)", cell)}


def test_the_table_of_eruca_run_has_its_options() -> None:
    text = (ROOT / "docs/app.md").read_text().partition("## The command eruca run")[2].partition("\n## ")[0]

    assert rows(text) == {each for each in options_of("eruca", ["run"]) or () if each.startswith("--")} - {
        *("--help", "--version"),
    }


def test_the_tables_of_pipelines_have_their_options() -> None:
    parts = dict(re.findall(r"(?ms)^## (\w[\w ]*)\n(.*?)(?=^## |\Z)", (ROOT / "docs/pipelines.md").read_text()))
    common = rows(parts.pop("Common options"))
    for heading, text in parts.items():
        taken = options_of("eruca", ["pipeline", heading.lower()])
        if heading != "Example":
            assert rows(text) == {each for each in taken or () if each.startswith("--")} - common - {"--help"}, heading


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_name_with_dots_is_a_module_or_a_text_of_the_product(page: Path) -> None:
    names = {*_DOTTED.findall((ROOT / page).read_text())}

    assert [name for name in sorted(names) if not _is_there(name) and name not in _product()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in ABOUT_OTHERS], ids=str)
def test_every_word_of_code_is_one_of_the_product(page: Path) -> None:
    text = (ROOT / page).read_text()
    of_the_page = {*re.findall(r"\w+", "\n".join(_FENCED.findall(text)))}
    named = {
        word
        for code in _INLINE.findall(prose(page))
        for word in re.findall(r"(?<![\w./$-])[a-zA-Z_]\w*", re.sub(r" -k \w+", "", code))
        if _CODE_WORD.fullmatch(word)
    }

    assert sorted(word for word in named - of_the_page - OF_OTHERS if not _is_known(word)) == []


def _is_known(word: str) -> bool:
    """Whether the product has this word, as it stands or as it is made: a variable of a setting, a field of a body."""
    known = _words()
    for prefix in ("ROCKETMQ_TLS_", "ROCKETMQ_WAITS_", "ROCKETMQ_", "rocketmq_client_"):
        if word.startswith(prefix) and word.removeprefix(prefix).lower() in known:
            return True
    return bool({word, word.upper(), _snake(word)} & known)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@cache
def _product() -> str:
    files = [*product_modules(), Path("pyproject.toml"), Path("Makefile")]
    return "\n".join((ROOT / file).read_text() for file in files)


@cache
def _words() -> frozenset[str]:
    """The words of the product, of what deploys it and of its tests; names of files; settings and their variables."""
    this = Path(__file__).relative_to(ROOT)
    others = [
        text_of(file) or ""
        for file in committed_files()
        if file.parts[0] in {"deploy", "tests", ".ci", ".github"} and file.suffix != ".md" and file != this
    ]
    settings = {key: each for kind in (BrokerConfig, NamesrvConfig) for key, each in settings_of(kind).items()}
    words = {word for text in (_product(), *others) for word in re.findall(r"[A-Za-z_]\w*", text)}
    return frozenset(
        {*words, *(file.stem for file in committed_files()), *settings, *(each.variable for each in settings.values())}
    )


@cache
def _is_there(name: str) -> bool:
    """Whether a name is that of a module, or of what is in one."""
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False
