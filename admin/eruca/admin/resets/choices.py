"""What an operator may choose about a reset: the switches of commands, and those of the console's form.

Owns their declarations, and what they mean for a plan. Knows no command and no page.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from eruca.admin.posix import Option
from eruca.admin.resets.plan import Options

PARTIAL: Final = Option("", "partial", "go on without brokers that do not answer; ends with 5", takes_value=False)
NOW: Final = Option(
    "", "now", "refuse, instead of waiting for members that a broker does not know yet", takes_value=False
)
NEW_GROUP: Final = Option("", "new-group", "store offsets for a group that no broker knows yet", takes_value=False)
FORCE_ACTIVE: Final = Option(
    "", "force-active", "also with pull consumers of Java, which ignore a reset", takes_value=False
)
SWITCHES: Final = (PARTIAL, NOW, NEW_GROUP, FORCE_ACTIVE)


def options(given: Collection[str], *, force: bool) -> Options:
    """What the names of the switches that were ``given`` mean; without ``force`` queues move only back."""
    return Options(
        force=force,
        partial=PARTIAL.name in given,
        now=NOW.name in given,
        new_group=NEW_GROUP.name in given,
        force_active=FORCE_ACTIVE.name in given,
    )
