"""What a broker is at present says ``services.role`` alone: its settings say what it shall be."""

from __future__ import annotations

import ast

import pytest

from tests.house.tree import committed_files, parsed

SETTINGS = {"broker_role", "broker_id"}
MAY_ASK = {
    "broker/eruca/broker/config.py",
    "broker/eruca/broker/services/checks.py",
    "broker/eruca/broker/services/role.py",
}


def _of_settings(node: ast.AST) -> bool:
    """``config.is_slave`` and the like, under whatever name the settings have."""
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    named = owner.lstrip("_") in ("config", "settings", "store")
    return named and (node.attr == "is_slave" or node.attr in SETTINGS)


@pytest.mark.usefixtures("trees")
def test_nobody_asks_the_settings_for_the_role_of_a_broker() -> None:
    asking = [
        f"{file}:{node.lineno}"  # type: ignore[attr-defined]
        for file in committed_files()
        if str(file).startswith("broker/") and file.suffix == ".py" and str(file) not in MAY_ASK
        for node in ast.walk(parsed(file))
        if _of_settings(node)
    ]
    assert asking == []
