"""What anybody may write into the cluster does not control the terminal of the operator who looks at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.admin.text import columns, harmless
from eruca.client import Message, Producer
from tests.admin.conftest import Lab

TITLE = "\x1b]0;pwned\x07\x9b31m"


def test_controls_are_shown_and_lines_stay() -> None:
    assert harmless("a\tb\nc") == "a\tb\nc"
    assert harmless("\x1b[2J\r\x7f\x9b\u202e") == r"\x1b[2J\r\u007f\u009b\u202e"
    assert harmless("Größe 東京 \N{ROCKET}") == "Größe 東京 \N{ROCKET}"


def test_a_value_begins_no_row() -> None:
    assert columns("%-4.6s|%d", "a\nb\t", 5) == r"a\nb\t|5"


@pytest.mark.parametrize(
    "line",
    [("consumerConnection", "-g", "G"), ("consumerStatus", "-g", "G"), ("resetOffset", "-g", "G", "--to", "first")],
    ids=lambda line: line[0],
)
async def test_ids_of_members(lab: Lab, line: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # consumerStatus writes files where it is
    await lab.topic("T")
    await lab.member("G", "T", client_id=f"c{TITLE}")
    done = await lab.mqadmin(*line, *(("-t", "T", "--dry-run") if line[0] == "resetOffset" else ()))
    assert r"c\x1b]0;pwned\x07\u009b31m" in done.out + done.err
    assert harmless(done.out + done.err) == done.out + done.err


async def test_messages(lab: Lab) -> None:
    await lab.topic("T")
    async with Producer("p", nameserver=lab.nameserver) as producer:
        await producer.send(Message("T", TITLE.encode(), tags="\x07", properties={"p": TITLE}))
    done = await lab.mqadmin("printMsg", "-t", "T")
    assert r"pwned\x07" in done.out and harmless(done.out) == done.out
