"""The compiled native step: what the compiler and the linker put into it against wrong writes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eruca.broker.store import native
from tests.house.tree import ROOT

pytestmark = [
    pytest.mark.skipif(not native.on, reason="the native step is not compiled here, or ERUCA_PURE is set"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files"),
    pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf (binutils) is not installed"),
]
MODULE = ROOT / "broker/eruca/broker/store/_native.abi3.so"


def told(module: Path, *options: str) -> str:
    return subprocess.run(["readelf", "-W", *options, str(module)], capture_output=True, text=True, check=True).stdout


def test_its_tables_are_read_only_once_it_is_loaded() -> None:
    assert "GNU_RELRO" in told(MODULE, "-l")
    assert "BIND_NOW" in told(MODULE, "-d")


def test_its_stack_is_guarded_and_holds_no_code() -> None:
    (stack,) = [line for line in told(MODULE, "-l").splitlines() if "GNU_STACK" in line]
    assert " RWE " not in stack
    assert "__stack_chk_fail" in told(MODULE, "--dyn-syms")


def test_functions_that_know_the_size_of_their_target_check_it() -> None:
    assert "__sprintf_chk" in told(MODULE, "--dyn-syms")
