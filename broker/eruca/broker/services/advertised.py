"""The address that clients get of this broker, tried from here: a wrong brokerIP1 lets no client through.

Owns when it is tried, and the line in the log when that changes. Decides nothing: another network than this machine's
may reach an address that this machine does not, so nothing depends on the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from eruca.remoting.addresses import split_address
from eruca.remoting.channels import why_not_connected

FIRST_AFTER = 1.0
"""Seconds from the start to the first try."""
AGAIN_AFTER = 60.0
"""Seconds between two tries."""
PATIENCE = 3.0
"""Seconds that a try waits for an answer."""

log = structlog.get_logger("eruca.broker.start")


class AdvertisedAddress:
    """Tries the address that ``address`` returns, which is the registered one."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._address = address
        self._unreachable = ""
        """The address that nobody answered at in the last try."""

    async def watch(self) -> None:
        """Try until cancelled."""
        await asyncio.sleep(FIRST_AFTER)
        while True:
            await self.attempt()
            await asyncio.sleep(AGAIN_AFTER)

    async def attempt(self) -> None:
        """Connect once; a line in the log if nobody answers, and one when somebody does again."""
        address = self._address()
        reason = await _failure(address)
        if reason is None:
            if self._unreachable:
                log.info("advertised_address_reachable", address=address)
            self._unreachable = ""
        elif address != self._unreachable:
            self._unreachable = address
            log.warning(
                "advertised_address_unreachable",
                address=address,
                reason=reason,
                advice="clients connect to this address: set brokerIP1 to one at which they reach this broker",
            )


async def _failure(address: str) -> str | None:
    try:
        host, port = split_address(address)
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError) as error:
        return why_not_connected(error)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return None
