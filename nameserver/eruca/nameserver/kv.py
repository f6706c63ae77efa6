"""The key-value configuration in ``kvConfig.json`` (KVConfigManager in 4.9.7).

Owns the values by namespace and key, their bounds, and their file (compact JSON, the previous content in ``.bak``).
Must not know what a value means. Invariant: what a reader sees is on disk; a change that cannot be written does not
apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from eruca.protocol.bodies import KVConfig
from eruca.protocol.errors import ProtocolError
from eruca.remoting.files import NoAccess, backup_of, check_writable, replace_file
from eruca.remoting.slices import encoded

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace of the queues of ordered topics."""


LONGEST_VALUE = 1 << 20
"""Bytes of one value, at most."""
LONGEST_CONTENT = 8 << 20
"""Bytes of the file, at most: each namespace is an answer, and a registration is answered with one."""


_Table = dict[str, dict[str, str]]


class TooLarge(Exception):
    """A value that would make the configuration larger than it may be; the message says by what."""


class BadKVFile(Exception):
    """The file and its backup are both unreadable; the message says what to do."""


class KVStore:
    """All values, read from ``path`` once and written at each change.

    Raises BadKVFile if the file is damaged and there is no sound backup, and NoAccess if it may not be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.from_backup = False
        self._table = self._load()
        self.size = len(self._encode(self._table))
        """Bytes of all values, as they are written."""
        self._in_order = asyncio.Lock()

    def _load(self) -> dict[str, dict[str, str]]:
        backup = backup_of(self._path)
        try:
            return _read(self._path)
        except (ProtocolError, FileNotFoundError) as fault:
            try:
                table = _read(backup)
            except (ProtocolError, FileNotFoundError) as no_copy:
                if isinstance(fault, FileNotFoundError) and isinstance(no_copy, FileNotFoundError):
                    return {}
                raise BadKVFile(
                    f"{self._path} cannot be read ({fault}) and has no sound backup; repair it, or move it away to "
                    "start with an empty configuration"
                ) from None
            self.from_backup = True
            return table

    def check_folder(self) -> None:
        """Raise NoAccess if the folder of the file is there, and nothing can be written in it."""
        if self._path.parent.exists():
            check_writable(self._path.parent)

    def get(self, namespace: str, key: str) -> str | None:
        """One value, None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def list(self, namespace: str) -> dict[str, str] | None:
        """All values of a namespace, None if it never had any."""
        table = self._table.get(namespace)
        return dict(table) if table is not None else None

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Store a value. Raises TooLarge, or OSError if it cannot be written.

        A file that is larger than it may be, from before there was a bound, may become smaller.
        """
        size = len(value.encode())
        if size > LONGEST_VALUE:
            raise TooLarge(f"the value has {size} bytes, at most {LONGEST_VALUE} are allowed")
        await self._change(partial(_with, namespace=namespace, key=key, value=value))

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if there is one; its namespace stays. Raises OSError."""
        await self._change(partial(_without, namespace=namespace, key=key))

    async def _change(self, edit: Callable[[_Table], _Table]) -> None:
        """Change the table and the file. Changes are made in the order in which they are asked for."""
        async with self._in_order:
            changed = edit(self._table)
            if changed is self._table:
                return
            content = b"".join(await encoded(KVConfig(config_table=changed)))
            if len(content) > max(LONGEST_CONTENT, self.size):
                raise TooLarge(
                    f"all values together would have {len(content)} bytes, at most {LONGEST_CONTENT} are allowed; "
                    "delete some"
                )
            await self._write(content)
            self._table = changed
            self.size = len(content)

    async def _write(self, content: bytes) -> None:
        """Replace the file, in a thread. Who is cancelled meanwhile waits for it all the same."""
        writing = asyncio.get_running_loop().run_in_executor(None, replace_file, self._path, content)
        try:
            await asyncio.shield(writing)
        finally:
            if not writing.done():
                await asyncio.wait([writing])

    @staticmethod
    def _encode(table: _Table) -> bytes:
        return KVConfig(config_table=table).encode()


def _with(table: _Table, namespace: str, key: str, value: str) -> _Table:
    return {**table, namespace: {**table.get(namespace, {}), key: value}}


def _without(table: _Table, namespace: str, key: str) -> _Table:
    if key not in table.get(namespace, {}):
        return table
    return {**table, namespace: {name: value for name, value in table[namespace].items() if name != key}}


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NoAccess(path, "read", error) from None
    return KVConfig.decode(data).config_table
