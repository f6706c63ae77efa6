"""Files of offsets that no reset wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.admin.errors import AdminError
from eruca.admin.resets.ways_back import read


@pytest.mark.parametrize(
    "text",
    [
        "T broker-a:0 " + "9" * 5000,
        "T broker-a:" + "9" * 5000 + " 1",
        "T broker-a:0 ٣",
        '{"group": "G", "queues": [], "more": ' + "[" * 100_000,
    ],
    ids=["offset", "queue", "digits of others", "nested"],
)
def test_what_is_no_file_of_offsets(tmp_path: Path, text: str) -> None:
    path = tmp_path / "offsets"
    path.write_text(text)
    with pytest.raises(AdminError, match=r"offsets(:1)? is no"):
        read(str(path))
