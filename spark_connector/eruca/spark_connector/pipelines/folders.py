"""Folders and files wherever Spark keeps data: this machine's disk, HDFS, an object store.

Owns the calls to Hadoop's file systems through Spark's Java side. Paths are texts, as Spark's readers take them.
Listing and moving is done by the driver. What cannot be done is an OSError, with the words of the file system.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


class File(NamedTuple):
    """A file: where it is, and its size in bytes."""

    path: str
    size: int


@contextmanager
def _of(path: str) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        java = error.java_exception
        why = str(java.getMessage() or java.getClass().getName()).partition("\n")[0]
        raise OSError(f"{path} cannot be used: {why}") from error


class Folders:
    """The file system of one path."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        with _of(path):
            root = self._path(path)
            self._files: Any = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
            self.root = str(self._files.makeQualified(root)).rstrip("/")

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def check(self) -> None:
        """Make the folder, and see that more can be made in it. Raises OSError."""
        probe = f"{self.root}/_probe"
        with _of(self.root):
            made = self._files.mkdirs(self._path(probe))
        if not made:
            raise OSError(f"{self.root} cannot be used: no folder can be made in it.")
        self.delete(probe)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        with _of(path):
            return bool(self._files.exists(self._path(path)))

    def find(self, pattern: str) -> list[File]:
        """The files whose paths match a glob, in order."""
        with _of(pattern):
            found = self._files.globStatus(self._path(pattern)) or []
        return sorted(File(str(each.getPath().toString()), int(each.getLen())) for each in found)

    def move(self, source: str, target: str) -> None:
        """Move a file; the folder is made if need be. Raises OSError."""
        with _of(target):
            to = self._path(target)
            self._files.mkdirs(to.getParent())
            moved = self._files.rename(self._path(source), to)
        if not moved:
            raise OSError(f"{source} could not be moved to {target}: is there room, and the right to write?")

    def read(self, path: str) -> str:
        """The text of a small file."""
        with _of(path):
            stream = self._files.open(self._path(path))
            try:
                text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
        return str(text)

    def write(self, path: str, text: str) -> None:
        """Make a small file that is not there yet: it is there whole, or not at all."""
        fresh = self._path(f"{path.rpartition('/')[0]}/_{path.rpartition('/')[2]}.new")
        with _of(path):
            stream = self._files.create(fresh, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
        self.move(str(fresh), path)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing happens where there is none."""
        with _of(path):
            self._files.delete(self._path(path), True)
