"""What must be installed for Spark: a PySpark that is new enough, and a Python for Spark's tasks that can serve.

Owns the sentences for what is missing. Imports neither PySpark nor the rest of the connector, so that it can say so.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

from eruca.spark_connector.errors import BadOption, NotInstalled

OLDEST = (4, 2)
"""The oldest PySpark whose data sources can do what the connector needs."""
INSTALL = "run `pip install 'eruca-spark[spark]'`"
NEEDED = ("pyarrow", "msgspec")
"""What tasks import besides Eruca itself. PySpark is brought along by Spark."""
_PYSPARK = ("pyspark", "pyarrow", "numpy", "pandas")
_LOOK = """
import sys
from importlib.util import find_spec
def missing(name):
    try:
        return find_spec(name) is None
    except ImportError:
        return True
print("%d.%d" % sys.version_info[:2], *filter(missing, sys.argv[1:]))
"""


def check_pyspark() -> None:
    """Raise NotInstalled where there is no PySpark, or an old one."""
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise missing(error) from error
    found = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    if found < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise NotInstalled(f"PySpark {pyspark.__version__} is too old, {oldest} or newer is needed: {INSTALL}.")


def missing(error: ModuleNotFoundError) -> ImportError:
    """The error to raise instead: a sentence where a package of Spark's is missing, else the same."""
    name = (error.name or "").split(".")[0]
    return NotInstalled(f"{error.name} is missing: {INSTALL}.") if name in _PYSPARK else error


def check_python(path: str, *, environment: Mapping[str, str], with_eruca: bool) -> None:
    """Raise BadOption where Spark's tasks could not run in the Python at ``path``.

    ``with_eruca``: Eruca must be found there, too; it is not sent along.
    """
    ours = "{}.{}".format(*sys.version_info[:2])
    wanted = f"set PYSPARK_PYTHON to a Python {ours} that has `eruca-spark[spark]`, the same path on every machine"
    needed = (*NEEDED, *(["eruca.spark_connector"] if with_eruca else []))
    try:
        done = subprocess.run(
            [path, "-c", _LOOK, *needed], env=dict(environment), capture_output=True, text=True, timeout=60, check=True
        )
        version, *absent = done.stdout.split()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise BadOption(f"{path}, in which Spark's tasks would run, does not start ({error}): {wanted}.") from None
    if version != ours:
        raise BadOption(
            f"Spark's tasks would run in Python {version} ({path}) and this program in {ours}, which PySpark does not "
            f"allow: {wanted}."
        )
    if absent:
        raise BadOption(f"{path}, in which Spark's tasks would run, has no {', '.join(absent)}: {wanted}.")


def is_remote(session: object) -> bool:
    """Whether a session, or a frame, is one of Spark Connect, which has no Java process here."""
    return type(session).__module__.startswith("pyspark.sql.connect.")
