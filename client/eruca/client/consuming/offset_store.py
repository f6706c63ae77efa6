"""Where the positions of a group are kept: at the brokers, or, of a member that gets everything, in a local file.

Owns both places and the form of the file, which Java's clients read and write, too. A position is the offset of the
next message. Facts: RemoteBrokerOffsetStore and LocalFileOffsetStore in 4.9.7; as in 4.9.8 the file keeps the queues
that are not read at the moment (4.9.7 loses them, as when a broker was away at the start).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from eruca.client.errors import ClientError
from eruca.client.log import log
from eruca.client.network import brokers, identity
from eruca.client.network.session import Session
from eruca.protocol import api
from eruca.protocol.bodies import LocalOffsets
from eruca.protocol.errors import ProtocolError
from eruca.protocol.fastjson import Style
from eruca.protocol.headers.offsets import UpdateConsumerOffset
from eruca.protocol.queues import MessageQueue

OFFSET_FOLDER = ".rocketmq_offsets"
"""The folder of the files in the home directory (rocketmq.client.localOffsetStoreDir)."""


class OffsetStore(Protocol):
    """A place for positions. ``with_pulls``: whether pulls carry them there, too."""

    with_pulls: bool

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored position; None where there is none. Raises ClientError when nobody can say."""

    async def has(self, queue: MessageQueue) -> bool:
        """Whether there is one, where ``load`` says 0: brokers say that of young queues, too. Raises ClientError."""

    async def save(self, queue: MessageQueue, offset: int) -> None:
        """Store a position; returns when it is safe. Raises ClientError."""

    def tell(self, queue: MessageQueue, offset: int) -> bool:
        """Store a position without waiting; False when it cannot be sent now."""

    def flush(self) -> None:
        """All that was told is to be stored now."""


class RemoteBrokerOffsetStore:
    """At the brokers: the members of a group share them."""

    with_pulls = True

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored position."""
        return await brokers.group_offset(self._session, self._group, queue)

    async def has(self, queue: MessageQueue) -> bool:
        """Whether the broker has one."""
        return await brokers.has_group_offset(self._session, self._group, queue)

    async def save(self, queue: MessageQueue, offset: int) -> None:
        """Store a position; the broker has confirmed it."""
        await brokers.store_group_offset(self._session, self._group, queue, offset)

    def tell(self, queue: MessageQueue, offset: int) -> bool:
        """Send a position."""
        address = self._session.directory.master_now(queue.broker_name)
        connection = None if address is None else self._session.ready(address)
        if connection is None:
            return False
        ask = UpdateConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        connection.oneway(api.UPDATE_CONSUMER_OFFSET, ask)
        return True

    def flush(self) -> None:
        """They are on their way already."""


class LocalFileOffsetStore:
    """In ``<folder>/<address>@<instance name>/<group>/offsets.json``: each member has its own.

    Groups and topics have the names that brokers know. The folder is ``.rocketmq_offsets`` in the home directory unless
    another is given. The instance name is ``DEFAULT`` unless the settings name another: so a member finds its file
    after a restart.
    """

    with_pulls = False

    def __init__(self, folder: str | Path | None, session: Session, group: str) -> None:
        settings = session.settings
        client_id = identity.stable_client_id(session.address, settings.instance_name, settings.unit_name)
        base = Path.home() / OFFSET_FOLDER if folder is None else Path(folder)
        self._names = session.names
        self.path = base / client_id / self._names.to_broker(group) / "offsets.json"
        self._table = self._read()
        self._news = False

    def _read(self) -> dict[MessageQueue, int]:
        """What the file holds, else its backup, else nothing."""
        for path in (self.path, self._beside(".bak")):
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

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored position."""
        return self._table.get(queue)

    async def has(self, queue: MessageQueue) -> bool:
        """Whether there is one."""
        return queue in self._table

    async def save(self, queue: MessageQueue, offset: int) -> None:
        """Write the file."""
        self.tell(queue, offset)
        self._write()

    def tell(self, queue: MessageQueue, offset: int) -> bool:
        """Remember a position for the next ``flush``."""
        if self._table.get(queue) != offset:
            self._table[queue] = offset
            self._news = True
        return True

    def flush(self) -> None:
        """Write the file if something is new."""
        try:
            self._write()
        except ClientError as error:
            log.warning("%s", error)

    def _write(self) -> None:
        if not self._news:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self._beside(".tmp")
            stored = dict(zip(self._names.queues_to_broker(self._table), self._table.values(), strict=True))
            new.write_bytes(LocalOffsets(offset_table=stored).encode(Style.PRETTY))
            if self.path.exists():
                os.replace(self.path, self._beside(".bak"))
            os.replace(new, self.path)
        except OSError as error:
            raise ClientError(f"the offsets cannot be written to {self.path}: {error}") from error
        self._news = False
