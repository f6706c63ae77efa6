"""Commands about groups that elect their master, while none of their brokers knows of a master."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from eruca.admin.cli import run
from tests.broker.elected import Group
from tests.support.names import Names


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("getSyncStateSet -c Lab", "knows no master of broker-a yet"),
        ("getSyncStateSet -b broker-a", "knows no master of broker-a yet"),
        ("getSyncStateSet -b broker-a -a BROKER", "knows no master of broker-a yet"),
        ("haStatus -c Lab", "no master of cluster Lab is registered"),
    ],
)
async def test_where_no_master_is_known_a_command_says_so(tmp_path: Path, line: str, reason: str) -> None:
    async with Names(tmp_path) as names, Group(tmp_path, names) as group:
        group.etcd.away = True
        one = await group.start(1)
        async with asyncio.timeout(20):
            while (await names.brokers()).get("broker-a") != {1: one.app.address}:
                await one.broker.registration.register_all()
        out, err = io.StringIO(), io.StringIO()
        words = line.replace("BROKER", one.app.address).split()
        variables = {"NAMESRV_ADDR": names.address, "XDG_STATE_HOME": str(tmp_path)}
        assert await run(words, variables, out, err, None) == 4
        assert out.getvalue() == ""
        assert reason in err.getvalue() and err.getvalue().count("\n") == 1
        group.etcd.return_again()
