"""A nameserver that denies routes: the sender is told at once, and the nameserver is asked once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.client import ClientSettings, Message, Producer
from eruca.client.errors import AccessDenied
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from tests.support.accounts import BROKER, Account, write_accounts
from tests.support.desk import Desk

ONE = Account("for-one-topic", ("topicPerms:", "- Mine=PUB"))


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[Nameserver]:
    home = write_accounts(tmp_path / "names", [ONE, BROKER])
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", rocketmq_home=str(home))
    config.access.acl_enable = True
    server = Nameserver(config)
    await server.start()
    yield server
    await server.stop()


async def test_a_send_to_a_topic_that_is_denied_fails_at_once(tmp_path: Path, names: Nameserver) -> None:
    settings = ClientSettings(nameserver=names.address, credentials=ONE.credentials)
    async with Producer("p", settings=settings) as producer:
        with pytest.raises(AccessDenied, match="No default permission for topic:Other"):
            await producer.send(Message("Other", b"body"))
    assert names.refusals.refused == {"permission": 1}


async def test_a_route_that_is_denied_keeps_no_other_from_being_refreshed(
    tmp_path: Path, names: Nameserver, caplog: pytest.LogCaptureFixture
) -> None:
    """Those behind it in the order of names, too."""
    desk = Desk(tmp_path)
    desk.config.namesrv_addr = names.address
    desk.config.rocketmq_home = str(tmp_path / "names")
    account = BROKER.credentials
    tools = f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n"
    (tmp_path / "names" / "conf" / "tools.yml").write_text(tools)
    async with desk:
        desk.topic("Mine")
        await desk.broker.registration.register_all()
        settings = ClientSettings(nameserver=names.address, credentials=ONE.credentials)
        async with Producer("p", settings=settings) as producer:
            await producer.send(Message("Mine", b"body"))
            directory = producer.session.directory
            before = directory.version
            with caplog.at_level(logging.WARNING):
                await directory.refresh_all(["Denied"])
            assert directory.version == before + 1, "the route of Mine was asked for"
            assert "the route of Denied could not be refreshed" in caplog.text
