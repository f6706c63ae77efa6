"""What operators see and change of a running broker's configuration.

Owns the version of the configuration and the operator's file that keeps changes. What a key means, and which may
change while the broker runs, is declared with the fields (``config``); this neither knows nor repeats it.

Invariant: a change holds as a whole or not at all; no path and no secret is changed, no secret is shown; the file's
other lines stay as they are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from eruca.broker.config import BrokerConfig
from eruca.protocol import properties
from eruca.protocol.bodies import DataVersion
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.remoting.settings import BadSetting, change, settings_of

_SECRET_WORDS = ("password", "secret", "credential", "token")


class Configuration:
    """The configuration of one broker; ``file`` is the properties file it was started with, None without one."""

    def __init__(self, config: BrokerConfig, clock: Callable[[], int], file: Path | None = None) -> None:
        self.version = DataVersion(timestamp=clock())
        self.file = file
        self.bound: dict[str, int] = {}
        """Settings of ports with the ports that are really listened on; shown instead of what was asked for."""
        self._config = config
        self._clock = clock
        self._known = settings_of(BrokerConfig)
        self._writing = asyncio.Lock()

    def change(self, text: str) -> dict[str, str]:
        """Take over the properties in ``text``; the keys with their new values.

        Raises Refused: 16 for a path or a secret, 1 for a key that does not exist or cannot change while the broker
        runs, a value that is not allowed, and text that is no properties.
        """
        try:
            wanted = properties.parse(text)
        except ProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the body is no properties text: {error}") from None
        for key in wanted:
            known = self._known.get(key)
            if known is not None and (known.rules.path or known.rules.secret):
                raise Refused(
                    ResponseCode.NO_PERMISSION,
                    f"Can not update config in black list. {key} is set in the configuration file only",
                )
        try:
            changed = change(self._config, wanted)
        except BadSetting as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if changed:
            self.version = self.version.following(self._clock())
        return changed

    async def save(self, changed: Mapping[str, str]) -> None:
        """Write changes into the operator's file, where there is one. Raises OSError.

        A caller who is cancelled does not let the next writer in: the thread at work ends first.
        """
        if self.file is not None and changed:
            await asyncio.shield(self._write(self.file.resolve(), dict(changed)))

    async def _write(self, path: Path, changed: dict[str, str]) -> None:
        async with self._writing:
            await asyncio.to_thread(_amend, path, changed)

    def text(self) -> str:
        """Every setting as ``name=value``, those without a value and secrets left out, and what else the file has.

        Ports are the ones that are listened on.
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
        return {
            key: value
            for key, value in given.items()
            if key not in self._known and not any(word in key.lower() for word in _SECRET_WORDS)
        }


def _amend(path: Path, changed: dict[str, str]) -> None:
    """Replace the file as a whole, with its former permissions; a crash leaves the old or the new one."""
    data = path.read_bytes()
    text = properties.decode(data)
    encoding = "utf-8" if _is_utf8(data) else "latin-1"
    aside = path.with_name(path.name + ".tmp")
    with open(aside, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(properties.amend(text, changed).encode(encoding))
        file.flush()
        os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
        os.fsync(file.fileno())
    os.replace(aside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
