"""mqadmin in the process of the test: what an operator's command prints, without the start of a Python for each."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from eruca.admin.cli import run


async def mqadmin(line: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit status of a command, and its output followed by its errors."""
    out, err = io.StringIO(), io.StringIO()
    status = await run(line, environment, out, err)
    return status, out.getvalue() + err.getvalue()
