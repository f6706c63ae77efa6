"""The errors of the connector.

Owns the classes. Invariant: the message is one line that names the cause and what to do, since Spark shows the
last line of a Python traceback and most people read no further.
"""

from __future__ import annotations


class SourceError(Exception):
    """Reading failed: the cluster could not be asked, a range is not there any more, or stored bytes are damaged."""


class BadOption(SourceError, ValueError):
    """An option, or a column of the user's schema, that the connector does not have or cannot read."""


class GroupReset(SourceError):
    """Somebody moved the offsets of commitGroup, and onGroupReset is "fail"."""


class NotInstalled(ImportError):
    """A package that Spark needs is missing or too old."""


class SinkError(Exception):
    """Writing failed: a row cannot be a message, or a broker did not take one."""
