"""The configuration of a running broker as operators read and change it (Configuration in 4.9.7).

Owns the version of the configuration and the operator's file, where changes are saved. The fields (``config``) declare
what a key means and which keys may change at run time; nothing of that is repeated here.

Invariant: a change applies as a whole or not at all; paths and secrets never change, secrets and values of unknown keys
are never shown; the other lines of the file stay as they are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from eruca.broker.config import BrokerConfig
from eruca.broker.services.checks import fits
from eruca.protocol import properties
from eruca.protocol.bodies import DataVersion
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.remoting.operating_system import flush_folder
from eruca.remoting.settings import BadSetting, change, settings_of, wanted


class Configuration:
    """The configuration of one broker; ``file`` is the properties file of the start, None if there was none."""

    def __init__(self, config: BrokerConfig, clock: Callable[[], int], file: Path | None = None) -> None:
        self.version = DataVersion(timestamp=clock())
        self.file = file
        self.given: set[str] = set()
        """The keys that do not have their defaults since somebody set them."""
        self.bound: dict[str, int] = {}
        """What holds instead of the configured numbers, and is shown: the bound ports, the id of a master."""
        self._config = config
        self._clock = clock
        self._known = settings_of(BrokerConfig)
        self._writing = asyncio.Lock()

    def change(self, body: bytes) -> dict[str, str]:
        """Apply the properties of a request; returns the changed keys with their new values.

        Raises Refused: 16 for a path or a secret, 1 for an unknown key, a key that cannot change at run time, a value
        that is not allowed, and a body that is too long or not in the properties format.
        """
        try:
            asked = wanted(body)
            for key in asked:
                known = self._known.get(key)
                if known is not None and (known.rules.path or known.rules.secret):
                    raise Refused(
                        ResponseCode.NO_PERMISSION,
                        f"Can not update config in black list. {key} is set in the configuration file only",
                    )
            return self.take(asked)
        except BadSetting as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None

    def take(self, asked: Mapping[str, str]) -> dict[str, str]:
        """Apply texts by key; returns them as they are shown. Raises BadSetting."""
        changed = change(self._config, asked, fits, self.given)
        if changed:
            self.given |= changed.keys()
            self.version = self.version.following(self._clock())
        return changed

    async def save(self, changed: Mapping[str, str]) -> None:
        """Write changes into the operator's file, if there is one. Raises OSError.

        If the caller is cancelled, the write still completes before the next one begins.
        """
        if self.file is not None and changed:
            await asyncio.shield(self._write(self.file.resolve(), dict(changed)))

    async def _write(self, path: Path, changed: dict[str, str]) -> None:
        async with self._writing:
            await asyncio.to_thread(_amend, path, changed)

    def text(self) -> str:
        """Every setting as ``name=value``, and the unknown keys of the file without their values.

        Any of those may be a secret. Known secrets and unset values are omitted. Ports and id are those that hold.
        """
        shown = {
            key: item.text(self._config)
            for key, item in self._known.items()
            if item.get(self._config) is not None and not item.rules.secret
        }
        bound = {key: str(port) for key, port in self.bound.items()}
        return properties.write(shown | bound | self._unknown())

    def _unknown(self) -> dict[str, str]:
        if self.file is None:
            return {}
        try:
            given = properties.parse(properties.decode(self.file.read_bytes()))
        except (OSError, ProtocolError):
            return {}
        return dict.fromkeys((key for key in given if key not in self._known), "")


def _amend(path: Path, changed: dict[str, str]) -> None:
    """Replace the file atomically and keep its permissions; a crash leaves the old file or the new one."""
    data = path.read_bytes()
    text = properties.decode(data)
    encoding = "utf-8" if _is_utf8(data) else "latin-1"
    aside = path.with_name(path.name + ".tmp")
    with open(aside, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(properties.amend(text, changed).encode(encoding))
        file.flush()
        aside.chmod(path.stat().st_mode & 0o7777)
        os.fsync(file.fileno())
    os.replace(aside, path)
    flush_folder(path.parent)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
