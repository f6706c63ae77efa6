"""LocalFileOffsetStore: where a broadcasting member keeps its offsets.

Owns the format of the file, which Java's clients also read and write. An offset is that of the next message. Few
consumers broadcast: it is loaded with the first of them. Facts: LocalFileOffsetStore in 4.9.7; as in 4.9.8 the file
keeps the queues that are not pulled at the moment (4.9.7 loses them, for example if a broker was down at the start).
Invariant: no two members of Eruca have one file at once, in one process or in several; in RocketMQ they would, and each
would lose what the other had read.
"""

from __future__ import annotations

import asyncio
import errno
import os
import weakref
from os import PathLike
from pathlib import Path

from eruca.client.bounds import unbounded
from eruca.client.errors import ClientError, StateError
from eruca.client.log import log
from eruca.client.network import identity
from eruca.client.network.session import Session
from eruca.protocol.bodies import LocalOffsets
from eruca.protocol.errors import ProtocolError
from eruca.protocol.fastjson import Style
from eruca.protocol.queues import MessageQueue
from eruca.remoting.files import backup_of, replace_file
from eruca.remoting.operating_system import after_fork_in_child, lock_file, open_file

OFFSET_FOLDER = ".rocketmq_offsets"
"""The folder of the files in the home directory (rocketmq.client.localOffsetStoreDir)."""


class LocalFileOffsetStore:
    """In ``<folder>/<address>@<instance name>/<group>/offsets.json``: each member has its own offsets.

    Groups and topics have the names that brokers know. The default folder is ``.rocketmq_offsets`` in the home
    directory. The instance name is ``DEFAULT`` unless the settings name another, so a member finds its file after a
    restart. A file is replaced durably and whole; its predecessor is kept as ``offsets.json.bak``. Raises StateError
    while another member has the file: it holds a lock on ``offsets.json.lock`` until ``close``.
    """

    def __init__(self, folder: str | PathLike[str] | None, session: Session, group: str) -> None:
        settings = session.settings
        client_id = identity.stable_client_id(session.address, settings.instance_name, settings.unit_name)
        base = Path.home() / OFFSET_FOLDER if folder is None else Path(folder)
        self._session = session
        self._group = group
        self._names = session.names
        self.path = base / client_id / self._names.to_broker(group) / "offsets.json"
        self._lock = self._take()
        _stores.add(self)
        self._table = self._read()
        self._changed = False
        self._writing: asyncio.Task[None] | None = None
        """The write in progress. Nothing cancels it, so that no second thread writes the file at once."""

    def _take(self) -> int | None:
        """The descriptor of the locked file; None, after a warning, where nothing can be locked. Raises StateError."""
        for store in tuple(_stores):
            if store.path == self.path and store._session.loop.is_closed():  # of a consumer that nobody stopped
                store.let_go()
        lock = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = open_file(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT)
            lock_file(lock)
        except OSError as error:
            if lock is not None:
                os.close(lock)
            if error.errno in (errno.EACCES, errno.EAGAIN) and lock is not None:
                raise StateError(
                    f"Another broadcasting member of the group {self._group} has the offsets in {self.path}: give each "
                    "member an instance_name of its own in its ClientSettings, which stays the same after a restart, "
                    "or an offset_folder of its own."
                ) from None
            log.warning("%s cannot be locked, see that no other member uses it: %s", self.path, error)
            return None
        return lock

    def let_go(self) -> None:
        """Let another member have the file."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _read(self) -> dict[MessageQueue, int]:
        """The content of the file, else that of its backup, else nothing."""
        for path in (self.path, backup_of(self.path)):
            try:
                data = path.read_bytes()
                if data:
                    table = LocalOffsets.decode(data).offset_table
                    return dict(zip(self._names.queues_from_broker(table), table.values(), strict=True))
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError) as error:
                log.warning("the offsets in %s cannot be read: %s", path, error)
        return {}

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset."""
        return self._table.get(queue)

    async def has(self, queue: MessageQueue) -> bool:
        """Whether an offset is stored."""
        return queue in self._table

    async def save(self, queue: MessageQueue, offset: int) -> None:
        """Store an offset; returns when the file is durable."""
        self.report(queue, offset)
        if self._writing is not None:  # it may have begun before the offset changed
            await asyncio.wait([self._writing])
        if self._writing is not None or self._changed:  # saves at once share one write
            await asyncio.shield(self._writing or self._begin_write())

    def report(self, queue: MessageQueue, offset: int) -> bool:
        """Remember an offset for the next ``flush``."""
        if self._table.get(queue) != offset:
            self._table[queue] = offset
            self._changed = True
        return True

    def flush(self) -> None:
        """Write the file in the background if an offset changed."""
        if self._changed and self._writing is None:
            self._begin_write().add_done_callback(self._log_failure)

    async def settle(self) -> None:
        """Wait for the write in progress, which nobody may be waiting for."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def close(self) -> None:
        """Wait for the write in progress, and let another member have the file."""
        await self.settle()
        self.let_go()

    def _begin_write(self) -> asyncio.Task[None]:
        write = self._writing = self._session.loop.create_task(self._write(), context=unbounded())
        write.add_done_callback(_failure_of)  # whoever waited may be cancelled
        return write

    def _log_failure(self, write: asyncio.Task[None]) -> None:
        error = _failure_of(write)
        if error is not None:
            self._session.warn(self.path, str(error), error, group=self._group)

    async def _write(self) -> None:
        """Write the file in a thread, as the sync to disk blocks. Raises ClientError."""
        stored = dict(zip(self._names.queues_to_broker(self._table), self._table.values(), strict=True))
        content = LocalOffsets(offset_table=stored).encode(Style.PRETTY)
        self._changed = False
        try:
            await asyncio.to_thread(replace_file, self.path, content)
            self._session.forget_warning(self.path)
        except OSError as error:
            self._changed = True
            raise ClientError(f"the offsets cannot be written to {self.path}: {error}") from error
        finally:
            self._writing = None


def _failure_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


_stores: weakref.WeakSet[LocalFileOffsetStore] = weakref.WeakSet()
"""The stores of this process whose consumers are not collected."""


def _forked() -> None:
    """A child does not keep the locks of its parent when that one ends."""
    for store in _stores:
        store.let_go()


after_fork_in_child(_forked)
