"""What every Python process of Spark does first: import PySpark compiled, as pip installed it.

Spark puts its ``python/lib/pyspark.zip`` in front of the path of these processes. There are only sources in it, so each
process compiles what it imports, a second or two before a query's first row. ``register`` lets them find this module,
which Python runs at its start; it takes the zip off the path where the very package that brought it comes later on the
path. Anything else stays as it is. Knows nothing of Eruca.
Python runs one module of this name alone; so the one that would have been run comes next.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def without_sources(path: list[str]) -> list[str]:
    """``path`` without the zips of an installed PySpark, and of the Py4J that was installed with it."""
    left_out = set()
    for each in path:
        lib = Path(each).parent
        package = lib.parent.parent
        if Path(each).parts[-4:] != ("pyspark", "python", "lib", "pyspark.zip") or str(package.parent) not in path:
            continue
        if (package / "__init__.py").is_file():
            left_out.add(each)
            if (package.parent / "py4j" / "__init__.py").is_file():
                left_out |= {other for other in path if other.startswith(str(lib / "py4j-"))}
    return [each for each in path if each not in left_out]


def run_next(path: list[str]) -> None:
    """Run the user's or the system's own module of this name."""
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    sys.path[:] = without_sources(sys.path)
    run_next([each for each in sys.path if Path(each) != Path(__file__).parent])
