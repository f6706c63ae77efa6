"""The compose files: nothing of them is open by default, and nothing grows without bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.tree import ROOT, pyproject

DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.glob("compose*.yaml"))


def services() -> list[Any]:
    found = []
    for file in FILES:
        for name, service in yaml.safe_load(file.read_text())["services"].items():
            found.append(pytest.param(service, id=f"{file.stem}-{name}"))
    return found


every_service = pytest.mark.parametrize("service", services())


@every_service
def test_ports_are_published_on_this_machine_unless_somebody_says_otherwise(service: dict[str, Any]) -> None:
    assert [port for port in service.get("ports", []) if not port.startswith("${PUBLISH:-127.0.0.1}:")] == []


@every_service
def test_log_and_memory_have_a_bound(service: dict[str, Any]) -> None:
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["mem_limit"]


@every_service
def test_a_daemon_writes_its_volume_only_and_has_no_rights(service: dict[str, Any]) -> None:
    if service["image"] != "eruca":
        return
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["healthcheck"]["test"][:3] == ["CMD", "eruca", "health"]
    assert service["command"][0] in pyproject()["project"]["scripts"]


@every_service
def test_the_files_that_it_mounts_are_in_the_tree(service: dict[str, Any]) -> None:
    mounted = [Path(volume.split(":")[0]) for volume in service.get("volumes", []) if volume.startswith("./")]
    assert [path for path in mounted if not (DEPLOY / path).exists()] == []
