"""Compiles the broker's native step while Eruca is installed or a wheel is built.

It is optional: without a C compiler or Python's headers, or with ERUCA_PURE set, the result is a package of Python
alone, which does the same (see broker/eruca/broker/store/native.py). ``python hatch_build.py`` compiles it in place.

It is made of the limited API of Python 3.11: one module, and one wheel of a platform (``cp311-abi3``), is for that and
all later Pythons. Only one without the GIL, which has no such API, gets a module of its own.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STORE = Path("broker/eruca/broker/store")
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")
"""Whether this Python has the limited API."""
LIMITED_API = ["-DPy_LIMITED_API=0x030B0000"] if LIMITED else []
MODULE = STORE / f"_native{'.abi3.so' if LIMITED else sysconfig.get_config_var('EXT_SUFFIX')}"
FORTIFIED = ["-DNDEBUG", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong"]
"""What lets a write beyond an array end the process (GCC and Clang; _FORTIFY_SOURCE needs -O)."""
READ_ONLY = ["-Wl,-z,relro,-z,now,-z,noexecstack"]
"""What makes the tables of the linker read-only once the module is loaded (ELF)."""


class NativeStep(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before it puts a wheel together; an editable installation is one, too."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and let the wheel be one for this Python and machine if that went well."""
        if self.target_name != "wheel":
            return
        module = compiled(Path(self.root))
        if module is not None:
            build_data["artifacts"].append(module.as_posix())
            build_data["pure_python"] = False
            _, _, platform = self.build_config.builder.get_best_matching_tag().split("-", 2)
            build_data.update({"tag": f"cp311-abi3-{platform}"} if LIMITED else {"infer_tag": True})


def compiled(root: Path) -> Path | None:
    """The extension module, compiled again, relative to ``root``; None, with a word to stderr, where there is none."""
    for old in (root / STORE).glob("_native.*.so"):  # of another version: Python would take it first
        if old.name != MODULE.name:
            old.unlink()
    headers = Path(sysconfig.get_path("include"))
    fault = "ERUCA_PURE is set" if os.environ.get("ERUCA_PURE") else None
    if fault is None and not (headers / "Python.h").exists():
        fault = "Python's headers are not installed"
    if fault is None:
        fault = _compile(root, headers, MODULE)
    if fault is not None:
        print(f"eruca: the broker's native step is left out: {fault}", file=sys.stderr)
        (root / MODULE).unlink(missing_ok=True)
        return None
    return MODULE


def _compile(root: Path, headers: Path, module: Path) -> str | None:
    """Why it could not be compiled; None when it was."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    flags = ["-O2", "-Wall", "-fPIC", "-fvisibility=hidden", "-shared", *LIMITED_API]
    flags += [f"-I{headers}", f"-ffile-prefix-map={root}=."]
    if not any("-fsanitize=" in word for word in compiler):  # the sanitizers bring their own checks
        flags += FORTIFIED
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    else:
        flags += READ_ONLY
    made = root / f"{module}.{os.getpid()}"
    sources = [str(root / STORE / "c" / name) for name in ("store.c", "sends.c", "commits.c", "reads.c")]
    try:
        ran = subprocess.run([*compiler, *flags, *sources, "-o", str(made)], capture_output=True, text=True)
        if ran.returncode:
            return f"{compiler[0]} failed: {ran.stderr.strip()[-1000:]}"
        made.replace(root / module)  # whole: a process may be using the old one
    except FileNotFoundError:
        return f"the C compiler {compiler[0]} is not installed"
    except OSError as error:
        return str(error)
    finally:
        made.unlink(missing_ok=True)
    return None


if __name__ == "__main__":
    found = compiled(Path(__file__).parent)
    sys.exit(found is None)
