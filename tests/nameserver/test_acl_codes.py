"""Every request of the nameserver, asked by everybody there is: who is let in, and how the others are refused.

What each code needs is written out once more here, as it was required: the nameserver's table must say the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.nameserver.handlers import routes
from eruca.remoting.router import changes_of
from tests.support.accounts import (
    ADMIN,
    ALL,
    BROKER,
    LISTED,
    MONITOR,
    NOBODY,
    PUBLISHER,
    SUBSCRIBER,
    WHITE,
    Account,
    Signing,
    one_line_for_each_refusal,
    refused,
    write_accounts,
)
from tests.support.every_code import TOPIC, of_nameserver
from tests.support.peers import Peer

EITHER = {105}
MONITORS = {106, 206, 224, 304, 311, 312, 313, 101, 219}
ADMINS = {100, 102, 205, 216, 318, 319, 327}
BROKERS = {103, 104, 322}


class Names:
    """A nameserver with access control, and peers who ask it."""

    def __init__(self, folder: Path) -> None:
        config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", rocketmq_home=str(write_accounts(folder)))
        config.access.acl_enable = True
        self.server = Nameserver(config)
        self._peers: list[Peer] = []

    async def __aenter__(self) -> Names:
        await self.server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        for peer in self._peers:
            await peer.close()
        await self.server.stop()

    async def peer(self, local: str = "127.0.0.1") -> Signing:
        peer = await Peer().connect(self.server.address, local=local)
        self._peers.append(peer)
        return Signing(peer)


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[Names]:
    async with Names(tmp_path) as names:
        yield names


def lack(code: int, account: Account) -> str | None:
    """The sentence by which the account is refused; None if it is let in."""
    if account is ADMIN or (account is MONITOR and code in MONITORS | EITHER):
        return None
    if account is BROKER and code in BROKERS | EITHER:
        return None
    for role, those in (("admin", ADMINS), ("monitor", MONITORS), ("broker", BROKERS)):
        if code in those:
            return f"Need {role} permission for request code={code}, but accessKey={account.name} is not"
    return None if account in (PUBLISHER, SUBSCRIBER) else f"No default permission for topic:{TOPIC}"


async def test_every_code_for_those_who_are_nobody(names: Names) -> None:
    peer = await names.peer()
    for code, asked in of_nameserver().items():
        assert refused(await peer.ask(None, code, *asked)) == "No accessKey is configured", code
        assert refused(await peer.ask(Account("a-stranger"), code, *asked)) == "No acl config for a-stranger", code
        forged = {**ADMIN.signed(*asked), "Signature": "AAAA"}
        answer = await peer.ask(None, code, forged, asked.body)
        assert refused(answer) == "Check signature failed for accessKey=administrator", code


async def test_every_refused_change_is_one_line_of_the_audit_log(names: Names) -> None:
    await one_line_for_each_refusal(await names.peer(), changes_of([routes]), of_nameserver())


@pytest.mark.parametrize("account", ALL, ids=lambda account: account.name)
async def test_every_code_for_each_account(names: Names, account: Account) -> None:
    peer = await names.peer()
    for code, asked in of_nameserver().items():
        assert refused(await peer.ask(account, code, *asked)) == lack(code, account), code


async def test_every_code_from_a_white_address_and_from_a_listed_broker(names: Names) -> None:
    white, broker = await names.peer(WHITE), await names.peer(LISTED)
    for code, asked in of_nameserver().items():
        assert refused(await white.ask(None, code, *asked)) is None, code
        allowed = code in BROKERS | EITHER
        assert refused(await broker.ask(None, code, *asked)) == (None if allowed else "No accessKey is configured")


@pytest.mark.parametrize("topic", ["TBW102", "RMQ_SYS_TRACE_TOPIC"])
async def test_the_routes_that_every_producer_needs_are_free(names: Names, topic: str) -> None:
    """Of the template of new topics, and of the topic of traces."""
    peer = await names.peer()
    assert (await peer.ask(NOBODY, 105, {"topic": topic})).code == 17
    assert refused(await peer.ask(None, 105, {"topic": topic})) == "No accessKey is configured"


async def test_the_route_of_a_retry_topic_is_its_groups(names: Names) -> None:
    peer = await names.peer()
    assert (await peer.ask(SUBSCRIBER, 105, {"topic": "%RETRY%G"})).code == 17
    assert refused(await peer.ask(PUBLISHER, 105, {"topic": "%RETRY%G"})) == "No default permission for group:G"


async def test_a_code_that_is_not_served_says_so_to_those_who_have_an_account(names: Names) -> None:
    peer = await names.peer()
    assert refused(await peer.ask(None, 10)) == "No accessKey is configured"
    answer = await peer.ask(NOBODY, 10)
    assert (answer.code, answer.remark) == (3, " request type 10 not supported")


def test_there_is_a_request_and_a_need_for_every_code() -> None:
    assert set(of_nameserver()) == EITHER | MONITORS | ADMINS | BROKERS == set(routes.handlers)
