"""Which messages are wanted: expressions of a command line, checked before a broker sees them.

Must not know commands. Raises BadValue for a wrong one.
"""

from __future__ import annotations

from eruca.admin.errors import BadValue
from eruca.protocol.sql92 import compile_whole
from eruca.protocol.subscription import build_subscription, check_tags


def tag_expression(text: str) -> str:
    """Tags of a subscription, ``*`` for all. Raises BadValue for what means something else than it seems to."""
    try:
        check_tags(text)
        build_subscription("", text, version=0)
    except ValueError as error:
        raise BadValue(str(error)) from None
    return text


def sql_condition(text: str) -> str:
    """A condition in SQL92. Raises BadValue for a wrong one.

    A broker of Apache lets every message pass such a one, and each broker ignores what stands behind a complete one.
    """
    try:
        compile_whole(text)
    except ValueError as error:
        raise BadValue(str(error)) from None
    return text
