"""Files of offsets that no reset wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.admin.errors import AdminError
from eruca.admin.resets.ways_back import read


@pytest.mark.parametrize(
    "content",
    [
        b"T broker-a:0 " + b"9" * 5000,
        b"T broker-a:" + b"9" * 5000 + b" 1",
        "T broker-a:0 ٣".encode(),
        b'{"group": "G", "queues": [], "more": ' + b"[" * 100_000,
        b'{"group": "\xff", "queues": []}',
    ],
    ids=["offset", "queue", "digits of others", "nested", "no text"],
)
def test_what_is_no_file_of_offsets(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(content)
    with pytest.raises(AdminError, match=r"offsets(:1)? is no"):
        read(str(path))
