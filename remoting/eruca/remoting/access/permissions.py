"""What an account may do with a topic or a group: DENY, PUB, SUB, or both (Permission in 4.9.7).

Owns the words and what they allow. Pure. Invariant: a word that is not known denies.
"""

from __future__ import annotations

from typing import Final

DENY: Final = 1
ANY: Final = 2
"""Needed only: PUB or SUB."""
PUB: Final = 4
SUB: Final = 8

_WORDS: Final = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
WORDS: Final = "DENY, PUB, SUB, PUB|SUB"


def known(word: str) -> bool:
    """Whether a word is one of those that name a permission."""
    return word.strip() in _WORDS


def parse(word: str | None) -> int:
    """The permission that a word names; without a word, and for an unknown one, DENY."""
    return _WORDS.get((word or "").strip(), DENY)


def word(permission: int) -> str:
    """The word for a permission."""
    return next(name for name, each in _WORDS.items() if each == permission)


def allows(owned: int, needed: int) -> bool:
    """Whether an account that owns the one permission may do what needs the other."""
    if owned & DENY:
        return False
    return bool(owned & (PUB | SUB if needed == ANY else needed))
