"""Tests speak to public interfaces: how often they reach behind one is counted, and may only fall."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.house.tree import committed_files, parsed

MOST_PRIVATE, MOST_PATCHED = 35, 59
"""Ceilings, set to the count; lower them with it. Both were about 185 once."""

PUBLIC_ALL_THE_SAME = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Of named tuples and of ``os``."""


def _private(node: ast.AST) -> bool:
    """``thing._name``; what a class does with its own names is its own affair."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in PUBLIC_ALL_THE_SAME
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    )


def _patch(node: ast.AST) -> bool:
    """``monkeypatch.setattr(...)``, under whatever name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"


@pytest.mark.usefixtures("trees")
def test_tests_reach_behind_interfaces_no_more_than_they_did() -> None:
    private, patched = Counter[str](), Counter[str]()
    for file in committed_files():
        if file.suffix == ".py" and file.parts[0] == "tests":
            for node in ast.walk(parsed(file)):
                private[str(file)] += _private(node)
                patched[str(file)] += _patch(node)

    assert private.total() <= MOST_PRIVATE, private.most_common(20)
    assert patched.total() <= MOST_PATCHED, patched.most_common(20)
