"""The way back from a reset: files with the offsets from before it.

Owns their place ($XDG_STATE_HOME/mqadmin/undo, else ~/.local/state/mqadmin/undo), their form (JSON), and the reading of
them and of plain lines ``topic broker:queue offset``. Knows nothing of a cluster.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from eruca.admin.errors import UNREADABLE, AdminError
from eruca.admin.files import content
from eruca.admin.resets.plan import Plan
from eruca.protocol.queues import Int64, MessageQueue

_LINE = re.compile(r"(\S+)\s+(\S+):(\d{1,10})\s+(\d{1,19})", re.ASCII)


class _Queue(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    topic: str
    broker_name: str
    queue_id: int
    offset: Int64


class _File(msgspec.Struct, rename="camel"):
    group: str
    queues: list[_Queue]
    time: str = ""


def folder(environment: Mapping[str, str]) -> Path:
    """Where the files are."""
    home = environment.get("HOME") or os.path.expanduser("~")
    state = environment.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")
    return Path(state) / "mqadmin" / "undo"


def keep(environment: Mapping[str, str], group: str, topic: str, plan: Plan) -> Path | None:
    """Write the stored offsets of the queues that a plan moves; None if there are none. Raises AdminError."""
    queues = [
        _Queue(
            topic=move.seen.queue.topic,
            broker_name=move.seen.queue.broker_name,
            queue_id=move.seen.queue.queue_id,
            offset=move.seen.stored,
        )
        for move in plan.moves
        if move.seen.stored is not None
    ]
    if not queues:
        return None
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f"-{int(now * 1000) % 1000:03d}"
    name = f"{stamp}-{group}-{topic}"
    place = folder(environment)
    path = place / f"{re.sub('[^A-Za-z0-9_%.-]', '_', name)[:200]}.json"
    text = msgspec.json.format(msgspec.json.encode(_File(group, queues, stamp)), indent=1)
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(path, "xb") as file:
            file.write(text + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise AdminError(f"the offsets from before cannot be kept in {path}: {error.strerror}") from None
    return path


def read(path: str) -> tuple[str | None, dict[MessageQueue, int]]:
    """The group (None if the file does not say) and the offsets of a file. Raises AdminError with the place."""
    text = content(path)
    if text.lstrip()[:1] == b"{":
        try:
            found = msgspec.json.decode(text, type=_File)
        except UNREADABLE as error:
            raise AdminError(f"{path} is no file of offsets: {error}") from None
        table = {MessageQueue(each.topic, each.broker_name, each.queue_id): each.offset for each in found.queues}
        return found.group, _checked(path, table)
    table = {}
    for number, line in enumerate(text.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise AdminError(f"{path}:{number} is not 'topic broker:queue offset': {line.strip()[:80]}")
        topic, broker, queue_id, offset = match.groups()
        table[MessageQueue(topic, broker, int(queue_id))] = int(offset)
    return None, _checked(path, table)


def _checked(path: str, table: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
    wrong = [queue for queue, offset in table.items() if offset < 0 or queue.queue_id < 0]
    if not table or wrong:
        raise AdminError(f"{path} has no offsets" if not table else f"{path} has an offset below 0 for {wrong[0]}")
    return table
