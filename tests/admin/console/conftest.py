"""The console in this process, in front of the cluster of the lab, and a browser without a screen or a script."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from eruca.admin.client import Admin
from eruca.admin.commands import find
from eruca.admin.console.changes import Changes
from eruca.admin.console.guard import Keys
from eruca.admin.console.resets import end_resets
from eruca.admin.console.site import application
from eruca.admin.console.visit import Console
from eruca.admin.console.watch import Watch
from tests.admin.conftest import Lab

HOSTS = ["127.0.0.1:8088", "localhost:8088"]
ORIGIN = {"Origin": "http://127.0.0.1:8088"}


class Desk:
    """A console, and a browser that has opened its address."""

    def __init__(self, console: Console, keys: Keys, said: list[str]) -> None:
        self.console = console
        self.keys = keys
        self.said = said
        """What the console printed for its operator."""
        self.browser = self.stranger()

    def stranger(self, base: str = "http://127.0.0.1:8088") -> httpx.AsyncClient:
        """A browser that has not opened the address with the token."""
        transport = httpx.ASGITransport(application(self.console, self.keys), client=("127.0.0.1", 50000))
        return httpx.AsyncClient(transport=transport, base_url=base)

    async def text(self, path: str, status: int = 200) -> str:
        """What a person reads on a page."""
        answer = await self.browser.get(path)
        assert answer.status_code == status, answer.text
        body = re.sub(r"(?s)<head>.*?</head>|<option.*?</option>", " ", answer.text)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())

    async def json(self, path: str) -> dict[str, object]:
        """The same page for a program."""
        answer = await self.browser.get(f"/api{path}")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert isinstance(found, dict)
        return found

    async def post(self, path: str, **fields: str) -> httpx.Response:
        """A form of a page, filled in."""
        return await self.browser.post(path, data={"form_token": self.keys.form, **fields}, headers=ORIGIN)

    async def looked(self) -> None:
        """Wait until the console has looked at brokers and groups, each time from the beginning.

        The look that ends first may have begun before what the test has just changed; the second one did not.
        """
        watch = self.console.watch
        for _ in range(2):
            before = (watch.brokers.at, watch.groups.at)

            def newer(before: tuple[float, float] = before) -> bool:
                return watch.brokers.at > before[0] and watch.groups.at > before[1]

            await watch.until(newer, within=30)
            assert newer(), "the console looks again"


Open = Callable[..., "Desk"]


@pytest.fixture
async def opened(lab: Lab) -> AsyncIterator[Callable[[bool], Desk]]:
    """Opens a console; with True one that may change something."""
    desks: list[Desk] = []
    async with Admin([lab.nameserver]) as admin:

        def open_desk(write: bool) -> Desk:
            said: list[str] = []
            environment = {"XDG_STATE_HOME": str(lab.home), "USER": "olivia"}
            console = Console(
                admin, Watch(admin, every=0.1), Changes(environment, said.append), find, environment, "lab", write
            )
            console.watch.start()
            desks.append(Desk(console, Keys(hosts=HOSTS, write=write), said))
            return desks[-1]

        yield open_desk
        for desk in desks:
            await desk.browser.aclose()
            await end_resets(desk.console)
            await desk.console.watch.stop()


@pytest.fixture
async def desk(opened: Callable[[bool], Desk]) -> Desk:
    """A console that may change something, opened in a browser."""
    found = opened(True)
    await found.browser.get(found.keys.address)
    return found


@pytest.fixture
async def reader(opened: Callable[[bool], Desk]) -> Desk:
    """A console that only reads, opened in a browser."""
    found = opened(False)
    await found.browser.get(found.keys.address)
    return found
