"""Eruca's code as one zip, for ``spark-submit --py-files``: what the connector needs on a worker, and nothing native.

Owns which packages go in. Their dependencies (msgspec, pyarrow, …) have compiled parts and cannot travel in a
zip: the workers' Python has them installed.
"""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path

PACKAGES = ("eruca.protocol", "eruca.remoting", "eruca.client", "eruca.spark_connector")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: the oldest that a zip knows."""


def write_pyfiles(to: Path) -> Path:
    """Write the zip; the same code makes the same bytes."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        # Python finds a package without __init__.py in a zip only by an entry for its folder.
        archive.writestr(zipfile.ZipInfo("eruca/", date_time=EPOCH), b"")
        for package in PACKAGES:
            (folder,) = importlib.import_module(package).__path__
            root = Path(folder)
            for file in sorted(root.rglob("*.py")):
                name = Path(*package.split("."), file.relative_to(root)).as_posix()
                entry = zipfile.ZipInfo(name, date_time=EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes())
    return to
