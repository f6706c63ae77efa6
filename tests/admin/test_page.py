"""The page of mqadmin has the tables of the declarations."""

from eruca.admin.catalogue import SUBJECTS
from tests.house.mqadmin_page import COMMAND, PAGE, page, subjects


def test_the_tables_are_those_of_the_commands() -> None:
    assert sorted(subjects()) == sorted(SUBJECTS)
    assert PAGE.read_text() == page(), f"docs/mqadmin.md is not that of the commands: run `{COMMAND}`"
