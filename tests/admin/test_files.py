"""Files that commands of mqadmin are given."""

from __future__ import annotations

import pytest

from tests.admin.conftest import Lab

LINES = (("resetOffset", "-g", "G", "--from-file"), ("diff", "-f"), ("apply", "-f"))


@pytest.mark.parametrize("line", LINES, ids=" ".join)
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/dev/zero", "/dev/zero has more than 64 MiB: name another file"),
        ("no/such/file", "no/such/file cannot be read: No such file or directory"),
        ("/", "/ cannot be read: Is a directory"),
    ],
)
async def test_what_cannot_be_such_a_file_is_refused(lab: Lab, line: tuple[str, ...], path: str, said: str) -> None:
    """A device has no end."""
    refused = await lab.mqadmin(*line, path)
    assert (refused.status, refused.out) == (1, "") and said in refused.err
