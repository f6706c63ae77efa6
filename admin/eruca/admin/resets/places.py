"""The places that a person names: ``first``, ``last``, a time, an offset, ``+N``, ``-N``, ``group:OTHER``, a file.

Owns the words; `targets` are what they mean.
"""

from __future__ import annotations

import re

from eruca.admin.client import Admin
from eruca.admin.errors import BadValue, NotFound
from eruca.admin.lookups import END
from eruca.admin.resets.survey import look
from eruca.admin.resets.targets import Exact, First, Nearest, Shift, Since, Table, Target
from eruca.admin.text import GROUP_OF, point_of_time, zoned


def is_file(text: str) -> bool:
    """Whether the words name a file of offsets: by a slash in them, or by their end."""
    return "/" in text or text.endswith((".json", ".txt"))


async def place(admin: Admin, topic: str, text: str) -> Target:
    """What the words mean in a topic; a time is the first message at or after it. Raises BadValue, NotFound."""
    if text in ("first", "last"):
        return First() if text == "first" else Nearest(END, "the end")
    if text.startswith(GROUP_OF):
        other = await look(admin, text.removeprefix(GROUP_OF), topic)
        offsets = {seen.queue: seen.stored for seen in other.queues if seen.stored is not None}
        if not offsets:
            raise NotFound(
                f"group {other.group} has no offset in {topic}: see where it has one with mqadmin consumerProgress "
                f"-g {other.group}"
            )
        return Table(offsets, f"the offsets of group {other.group}")
    if re.fullmatch(r"[+-]\d{1,18}", text):
        return Shift(int(text))
    if re.fullmatch(r"\d{1,12}", text):
        return Exact(int(text))
    time = checked_time(point_of_time(text), text)
    return Since(time, zoned(time))


def checked_time(time: int, text: str) -> int:
    """A time that a reset may lead to. Raises BadValue."""
    if time < 0 and time != END:
        raise BadValue(f"{text} is before 1970: a time is ms since 1970, and -1 the end")
    return time


def queues(text: str) -> frozenset[tuple[str, int]]:
    """The queues of ``broker:queue,broker:queue``. Raises BadValue."""
    found = set()
    for each in filter(None, map(str.strip, text.split(","))):
        broker, colon, number = each.rpartition(":")
        if not colon or not number.isdecimal():
            raise BadValue(f"a list of queues takes broker:queue, such as broker-a:3, not '{each}'")
        found.add((broker, int(number)))
    return frozenset(found)
