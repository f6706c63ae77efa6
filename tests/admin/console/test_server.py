"""The console at a port, as a browser reaches it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from eruca.admin.client import Admin
from eruca.admin.commands import find
from eruca.admin.console.server import listener, serve
from eruca.admin.errors import AdminError
from tests.admin.conftest import Lab

SERVED: dict[str, Any] = {"write": False, "commands": find, "context": "", "environment": {}}
DELAYED_ACK = 0.04
"""Seconds for which Linux may hold an acknowledgement back, at least."""


async def test_no_page_waits_for_an_acknowledgement_of_its_head(lab: Lab) -> None:
    opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    place = listener("127.0.0.1:0", "", "", "")
    async with Admin([lab.nameserver]) as admin:
        serving = asyncio.create_task(serve(admin, place, **SERVED, say=lambda _: None, ready=opened.set_result))
        address = urlsplit(await opened)
        took = []
        async with httpx.AsyncClient(base_url=f"http://{address.netloc}", follow_redirects=True) as browser:
            (await browser.get(f"/?{address.query}")).raise_for_status()
            for _ in range(20):
                began = time.monotonic()
                (await browser.get("/")).raise_for_status()
                took.append(time.monotonic() - began)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    assert min(took) < DELAYED_ACK


@pytest.mark.parametrize("missing", ["certificate", "key"])
async def test_a_file_of_its_certificate_that_cannot_be_read_is_named(tmp_path: Path, missing: str) -> None:
    there = tmp_path / "there"
    there.write_text("")
    files = {"certificate": there, "key": there, missing: tmp_path / "nonexistent"}
    place = listener("127.0.0.1:0", "", str(files["certificate"]), str(files["key"]))
    option = {"certificate": "--tls-cert", "key": "--tls-key"}[missing]
    async with Admin(["127.0.0.1:9"]) as admin:
        with pytest.raises(AdminError) as refused:
            await serve(admin, place, **SERVED, say=print, ready=print)
    assert str(refused.value) == (
        f"the {missing} {tmp_path / 'nonexistent'} cannot be read (No such file or directory): "
        f"give {option} a file that this user may read"
    )
