"""Which test runs the programs and commands of each page, and that each command of a page exists.

``python -m tests.house.test_examples`` prints the table: pages, their programs in Python, the commands in their blocks
for a shell, and what runs them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eruca.admin.catalogue import names
from eruca.standalone.cli import main as eruca
from tests.house.tree import ROOT, committed_files

RUN_BY = {
    "README.md": "tests/system/test_readme.py",
    "deploy/readme/eruca-client.md": ".ci/wheels",
    "deploy/readme/eruca-spark.md": "tests/system/test_readme.py",
    **dict.fromkeys(
        (
            *("docs/app.md", "docs/client.md", "docs/coming-from.md", "docs/delayed-messages.md", "docs/filters.md"),
            *("docs/getting-started.md", "docs/observability.md", "docs/polling.md", "docs/retries.md"),
        ),
        "tests/client/test_docs.py",
    ),
    "docs/faststream.md": "tests/faststream/test_docs.py",
    "docs/frameworks.md": "tests/client/app/test_frameworks.py",
    "docs/pipelines.md": "tests/spark_connector/pipelines/test_commands.py",
    "docs/rewind.md": "tests/system/test_rewind_page.py",
    "docs/security.md": "tests/client/test_security.py",
    "docs/spark.md": "tests/spark_connector/test_documentation.py",
    "docs/spark-notebook.md": "tests/spark_connector/test_documentation.py",
    "docs/spark-recipes.md": "tests/spark_connector/test_recipes.py",
    "docs/taskiq.md": "tests/taskiq/test_broker.py",
    "docs/testing.md": "tests/standalone/test_pytest_plugin.py",
}
"""A page with programs in Python, and what runs all of them."""
COMMANDS_RUN_BY = {
    "README.md": "tests/system/test_readme.py",
    "docs/getting-started.md": "tests/system/test_first_steps.py",
    "docs/operations.md": "tests/system/test_first_steps.py",
    "docs/rewind.md": "tests/system/test_rewind_page.py",
    "docs/runbook.md": "tests/runbook/test_alarms.py",
    **dict.fromkeys(
        (
            *("deploy/README.md", "docs/app.md", "docs/client.md", "docs/observability.md", "docs/replication.md"),
            "docs/security.md",
        ),
        "tests/house/test_examples.py",
    ),
}
"""A page with blocks for a shell, and what runs their commands; of the last ones a test here sees that they exist."""
WORDS = ("help", "cheat", "completion", "context")
"""What mqadmin does besides its commands."""


def programs(page: Path | str) -> list[str]:
    return re.findall(r"(?ms)^```py(?:thon)?\n(.*?)^```$", (ROOT / page).read_text())


def shells(page: Path | str) -> list[str]:
    return re.findall(r"(?ms)^```(?:sh|bash|console)\n(.*?)^```$", (ROOT / page).read_text())


def test_the_programs_of_every_page_have_a_test_that_reads_the_page() -> None:
    pages = {str(file) for file in committed_files() if file.suffix == ".md" and programs(file)}

    assert pages == {*RUN_BY}, "name the test that runs the programs of the page"
    for page, test in RUN_BY.items():
        named = page if page.startswith("deploy/") and test.startswith(".ci") else Path(page).name
        if page != "deploy/readme/eruca-spark.md":  # whose program is one of the README
            assert named in (ROOT / test).read_text(), f"{test} does not read {page}"


def test_the_commands_of_every_page_have_a_test_that_reads_the_page() -> None:
    assert {str(file) for file in committed_files() if file.suffix == ".md" and shells(file)} == {*COMMANDS_RUN_BY}
    for page, test in COMMANDS_RUN_BY.items():
        assert Path(page).name in (ROOT / test).read_text(), f"{test} does not read {page}"


def test_the_program_of_the_page_about_spark_is_that_of_the_readme() -> None:
    (program,) = programs("deploy/readme/eruca-spark.md")

    assert program in programs("README.md")


@pytest.mark.parametrize("page", sorted({str(file) for file in committed_files() if file.suffix == ".md"}))
def test_every_command_of_a_page_exists(page: str) -> None:
    known = {"mqadmin": {*names(), *WORDS}, "eruca": {*eruca.commands, "pipeline"}}
    blocks = "\n".join(re.findall(r"(?ms)^```(?:sh|bash|console)?\n(.*?)^```$", (ROOT / page).read_text()))
    used = re.findall(r"(?m)^(?:\$ )?(?:\.venv/bin/)?(mqadmin|eruca) ([a-zA-Z]\w+)", blocks)

    assert [(program, name) for program, name in used if name not in known[program]] == []


if __name__ == "__main__":
    print("| page | programs | run by | blocks of commands | run by |\n|---|---|---|---|---|")
    for each in sorted({*RUN_BY, *COMMANDS_RUN_BY}):
        cells = (len(programs(each)), RUN_BY.get(each, ""), len(shells(each)), COMMANDS_RUN_BY.get(each, ""))
        print(f"| {' | '.join(map(str, (each, *cells)))} |")
