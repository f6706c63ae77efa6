"""Words of permissions, and what they allow."""

from __future__ import annotations

import pytest

from eruca.remoting.access.permissions import ANY, DENY, PUB, SUB, allows, known, parse


@pytest.mark.parametrize(
    ("word", "permission"),
    [
        ("DENY", DENY),
        ("PUB", PUB),
        ("SUB", SUB),
        ("PUB|SUB", PUB | SUB),
        ("SUB|PUB", PUB | SUB),
        (" PUB ", PUB),
        (None, DENY),
        ("", DENY),
        ("pub", DENY),
        ("PUB | SUB", DENY),
        ("ANY", DENY),
    ],
)
def test_words(word: str | None, permission: int) -> None:
    assert parse(word) == permission
    assert known(word or "") == ((word or "").strip() in ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"))


@pytest.mark.parametrize(
    ("owned", "allowed"),
    [(DENY, set()), (PUB, {PUB, ANY}), (SUB, {SUB, ANY}), (PUB | SUB, {PUB, SUB, ANY}), (DENY | PUB | SUB, set())],
)
def test_what_they_allow(owned: int, allowed: set[int]) -> None:
    assert {needed for needed in (PUB, SUB, ANY) if allows(owned, needed)} == allowed
