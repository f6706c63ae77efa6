"""The key-value configuration in ``kvConfig.json`` (KVConfigManager in 4.9.7).

Owns the values by namespace and key, their bounds, and their file (compact JSON, the previous content in ``.bak``).
Must not know what a value means. Invariant: what a reader sees is on disk; a change that cannot be written does not
apply.
"""

from __future__ import annotations

from pathlib import Path

from eruca.protocol.bodies import KVConfig
from eruca.protocol.errors import ProtocolError
from eruca.remoting.files import backup_of, replace_file

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace of the queues of ordered topics."""


LONGEST_VALUE = 1 << 20
"""Bytes of one value, at most."""
LONGEST_CONTENT = 8 << 20
"""Bytes of the file, at most: each namespace is an answer, and a registration is answered with one."""


class TooLarge(Exception):
    """A value that would make the configuration larger than it may be; the message says by what."""


class BadKVFile(Exception):
    """The file and its backup are both unreadable; the message says what to do."""


class KVStore:
    """All values, read from ``path`` once and written at each change.

    Raises BadKVFile if the file is damaged and there is no sound backup.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.from_backup = False
        self._table = self._load()
        self._size = len(self._encode(self._table))

    def _load(self) -> dict[str, dict[str, str]]:
        backup = backup_of(self._path)
        if not self._path.exists() and not backup.exists():
            return {}
        try:
            return _read(self._path)
        except (ProtocolError, OSError) as fault:
            try:
                table = _read(backup)
            except (ProtocolError, OSError):
                raise BadKVFile(
                    f"{self._path} cannot be read ({fault}) and has no sound backup; repair it, or move it away to "
                    "start with an empty configuration"
                ) from None
            self.from_backup = True
            return table

    def get(self, namespace: str, key: str) -> str | None:
        """One value, None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def list(self, namespace: str) -> dict[str, str] | None:
        """All values of a namespace, None if it never had any."""
        table = self._table.get(namespace)
        return dict(table) if table is not None else None

    def put(self, namespace: str, key: str, value: str) -> None:
        """Store a value. Raises TooLarge, or OSError if it cannot be written.

        A file that is larger than it may be, from before there was a bound, may become smaller.
        """
        size = len(value.encode())
        if size > LONGEST_VALUE:
            raise TooLarge(f"the value has {size} bytes, at most {LONGEST_VALUE} are allowed")
        self._change(namespace, {**self._table.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if there is one; its namespace stays. Raises OSError."""
        table = self._table.get(namespace)
        if table is not None and key in table:
            self._change(namespace, {k: v for k, v in table.items() if k != key})

    def _change(self, namespace: str, table: dict[str, str]) -> None:
        changed = {**self._table, namespace: table}
        content = self._encode(changed)
        if len(content) > max(LONGEST_CONTENT, self._size):
            raise TooLarge(
                f"all values together would have {len(content)} bytes, at most {LONGEST_CONTENT} are allowed; "
                "delete some"
            )
        replace_file(self._path, content)
        self._table = changed
        self._size = len(content)

    @staticmethod
    def _encode(table: dict[str, dict[str, str]]) -> bytes:
        return KVConfig(config_table=table).encode()


def _read(path: Path) -> dict[str, dict[str, str]]:
    return KVConfig.decode(path.read_bytes()).config_table
