"""Asking nameservers: one of the list is kept, the next is taken when it fails, and asked, too, when it hesitates.

Owns the list, its order and which address is in use. One that hesitates may hang, so the next is asked as well, and the
first answer counts: nothing waits for long because of one that is not what it was. The list comes from the settings or
from a URL; a name in it stands for all its addresses. Both may change: they are looked up again from time to time, and
when nobody answers, and an address that is gone is not used any more. Knows nothing of what is asked.
Facts: NettyRemotingClient.getAndCreateNameserverChannel and TopAddressing in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import TypeVar

from eruca.client.config import read_addresses
from eruca.client.errors import BadConfig, NameserverUnreachable
from eruca.client.log import log
from eruca.protocol.api import GET_ROUTEINFO_BY_TOPIC, Endpoint
from eruca.protocol.codes import RequestCode, ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Header
from eruca.protocol.headers.routes import RouteOf
from eruca.protocol.names import DEFAULT_TOPIC
from eruca.remoting import Answer, Channels, RemotingError
from eruca.remoting.addresses import split_address

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)

REACH_FIRST, REACH_MOST = 0.05, 5.0
"""Seconds between two looks for a nameserver that answers, doubling."""
KNOWN_TO_ALL = (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO)
HESITATES = 3
"""The part of the timeout after which the next nameserver is asked, too."""


class Nameservers:
    """The nameservers of a client; ``timeout`` in seconds holds for each that is tried.

    ``given`` are addresses ``host:port``; with ``url`` they are fetched from there.
    """

    def __init__(self, given: Sequence[str], channels: Channels, *, timeout: float, url: str | None = None) -> None:
        self._given = tuple(given)
        self._url = url
        self._channels = channels
        self._timeout = timeout
        self._resolved: dict[str, list[str]] = {}
        self._faults: list[str] = []
        self._order: list[str] = []
        self._looking = asyncio.Lock()
        self.reached = False
        """Whether one of them has answered since the start."""
        self.last_failure: NameserverUnreachable | None = None
        """Why none of them answered last."""
        self._under_way = 0

    @property
    def may_change(self) -> bool:
        """Whether it makes sense to look the list up again."""
        return self._url is not None or any(not _is_ip(split_address(each)[0]) for each in self._given)

    @property
    def addresses(self) -> list[str]:
        """All of them, the one in use first; names until they were looked up."""
        return list(self._order or self._given)

    async def call(self, endpoint: Endpoint[A, R], ask: A | None = None, body: bytes = b"") -> Answer[R]:
        """Ask one nameserver; one that cannot be reached or does not answer is passed over.

        Raises NameserverUnreachable when that holds for all, and Refused as the answering one says.
        """
        self._under_way += 1
        try:
            return await self._ask(endpoint, ask, body)
        except NameserverUnreachable as error:
            self.last_failure = error
            raise
        finally:
            self._under_way -= 1

    async def look_for_one(self) -> None:
        """Return when one of them has answered, whatever was asked; asks by itself when nobody else does."""
        pause, harmless = REACH_FIRST, RouteOf(topic=DEFAULT_TOPIC, accept_standard_json_only=True)
        while not self.reached:
            if not self._under_way:
                with contextlib.suppress(NameserverUnreachable, Refused):
                    await self.call(GET_ROUTEINFO_BY_TOPIC, harmless)
            await asyncio.sleep(pause)
            pause = min(pause * 2, REACH_MOST)

    async def _ask(self, endpoint: Endpoint[A, R], ask: A | None, body: bytes) -> Answer[R]:
        if not self._order:
            async with self._looking:
                if not self._order:
                    await self._look()
        causes: list[str] = []
        tried: set[str] = set()
        for again in (False, True):
            if again:
                if not self.may_change:
                    break
                await self.refresh()
            addresses = [address for address in self._order if address not in tried]
            tried.update(addresses)
            answer = await self._first_answer(addresses, endpoint, ask, body, causes)
            if answer is not None:
                return answer
        raise self._unreachable([*causes, *self._faults])

    async def _first_answer(
        self, addresses: Sequence[str], endpoint: Endpoint[A, R], ask: A | None, body: bytes, causes: list[str]
    ) -> Answer[R] | None:
        """The answer of the first that gives one; None, and why in ``causes``, when none does."""
        left = deque(addresses)
        under_way: dict[asyncio.Task[Answer[R]], str] = {}
        try:
            while left or under_way:
                if left:
                    address = left.popleft()
                    asked = self._channels.call(address, endpoint, ask, body, timeout=self._timeout)
                    under_way[asyncio.create_task(asked)] = address
                patience = self._timeout / HESITATES if left else None
                done, _ = await asyncio.wait(under_way, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                answered = None
                for task in done:
                    address, error = under_way.pop(task), task.exception()
                    fault = _fault(address, error, endpoint.code)
                    if fault is not None:
                        causes.append(fault)
                        self._channels.drop(address)
                        self._put_last(address)
                    else:
                        answered = task
                if answered is not None:
                    self.reached = True
                    for address in under_way.values():
                        self._put_last(address)
                    return answered.result()
        finally:
            for task in under_way:
                task.cancel()
                task.add_done_callback(_unwanted)
        return None

    def _put_last(self, address: str) -> None:
        if address in self._order:
            self._order.remove(address)
            self._order.append(address)

    def _unreachable(self, causes: Sequence[str]) -> NameserverUnreachable:
        if not self._given:
            return NameserverUnreachable(
                f"The list of nameservers could not be had: {'; '.join(causes)}. Check nameserver_url."
            )
        return NameserverUnreachable(
            f"None of the nameservers {', '.join(self._given)} answered: {'; '.join(causes)}. "
            "Check that mqnamesrv runs there and that the address is right."
        )

    # ------------------------------------------------------------------ the list

    async def replace(self, given: Sequence[str]) -> None:
        """Ask these from now on."""
        async with self._looking:
            self._given, self._url = tuple(given), None
            await self._look()

    async def refresh(self) -> None:
        """Look the list up again; connections to addresses that are gone end. What cannot be looked up stays."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        self._faults = []
        if self._url is not None:
            with contextlib.suppress(_NotFound):
                self._given = await self._fetch(self._url)
        found = await asyncio.gather(*map(self._resolve, self._given))
        self._resolved = dict(zip(self._given, found, strict=True))
        self._take(address for addresses in found for address in addresses)

    async def _fetch(self, url: str) -> tuple[str, ...]:
        try:
            text = await asyncio.to_thread(_read, url, self._timeout)
            lines = text.strip().splitlines()
            found = read_addresses(lines[0]) if lines else ()
            if not found:
                raise BadConfig("the answer is empty")
        except (OSError, ValueError) as error:
            self._note(f"{url} did not give the list: {error}")
            raise _NotFound from error
        return found

    async def _resolve(self, entry: str) -> list[str]:
        host, port = split_address(entry)
        if _is_ip(host):
            return [entry]
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            why = "it is no legal name" if isinstance(error, UnicodeError) else error.strerror or "no answer in time"
            self._note(f"the name {host} cannot be resolved ({why})")
            return self._resolved.get(entry, [])
        addresses = [_join(str(name[0]), port) for *_, name in found]
        for address in addresses:
            self._channels.host_names[address] = host
        return addresses

    def _note(self, fault: str) -> None:
        self._faults.append(fault)
        if self._order:
            log.warning("%s; continuing with the nameservers known before: %s", fault, ", ".join(self._order))

    def _take(self, found: Iterable[str]) -> None:
        """Keep the order of those that stay, the one in use first, and put the new ones behind, mixed."""
        now = dict.fromkeys(found)
        gone = [address for address in self._order if address not in now]
        stay = [address for address in self._order if address in now]
        new = [address for address in now if address not in self._order]
        self._order = [*stay, *random.sample(new, len(new))]
        for address in gone:
            log.info("the nameserver %s is not in the list any more", address)
            self._channels.drop(address)


def _unwanted(task: asyncio.Task[Answer[R]]) -> None:
    """Ignore how a request ended that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def _fault(address: str, error: BaseException | None, asked: RequestCode) -> str | None:
    """Why the next nameserver is to be asked; None when this one answered, be it by a refusal."""
    if isinstance(error, RemotingError):
        return str(error)
    if isinstance(error, Refused) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and asked in KNOWN_TO_ALL:
        return f"<{address}> is no nameserver, but perhaps a broker, as it does not know {asked.name}"
    return None


class _NotFound(Exception):
    """The list could not be fetched; why is noted."""


def _read(url: str, timeout: float) -> str:
    import urllib.request  # dear to import, and few clients need it
    from http.client import HTTPException

    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310 - the scheme is ours
            data: bytes = answer.read(64 * 1024)
    except HTTPException as error:
        raise ValueError(str(error)) from error
    return data.decode("utf-8", "replace")


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
