"""Every request of the broker, asked by everybody there is: who is let in, and how the others are refused.

What each code needs is written out once more here, as it was required: the broker's table must say the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.broker.handlers import TABLES
from eruca.protocol.names import TRANS_HALF_TOPIC
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
from tests.support.desk import Desk
from tests.support.every_code import GROUP, TOPIC, of_broker
from tests.support.peers import Peer

PUB = {10, 310, 320, 324, 325, 37}
BOTH = {11, 361, 15, 14, 34, 41, 42, 46, 303}
GROUP_SUB = {36, 35, 38, 203, 208, 223, 307}
TOPIC_SUB = {12, 321}
MESSAGE_SUB = {33}
EITHER = {29, 30, 31, 32, 202, 300, 308, 351}
MONITORS = {21, 28, 43, 45, 201, 204, 305, 315, 317, 328, 352, 907, 52, 1005, 1006, 1007}
ADMINS = {17, 25, 200, 207, 215, 26, 50, 51, 53, 54, 222, 306, 309, 314, 316, 323, 329, 1002}
BROKERS = {21, 43, 45, 201, 28}
ALSO_MONITORS = {29, 30, 31, 32, 202, 300, 308, 351, 203, 208, 303}
"""States of topics and groups, without messages."""


class Shop:
    """A broker with access control, one message in it, and peers who ask it."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk(folder)
        self.desk.config.access.acl_enable = True
        self.desk.config.rocketmq_home = str(write_accounts(folder / "home"))
        self._peers: list[Peer] = []

    async def __aenter__(self) -> Shop:
        await self.desk.start()
        self.prepare()
        return self

    async def __aexit__(self, *error: object) -> None:
        for peer in self._peers:
            await peer.close()
        await self.desk.stop()

    def prepare(self) -> None:
        """What the requests are about is there, whatever the last one did."""
        self.desk.topic(TOPIC)
        self.desk.topic("Other")
        self.desk.commit(GROUP, TOPIC, 0)
        self.put = self.desk.store(TOPIC, 0, 1, properties=b"KEYS\x01k\x02")

    async def peer(self, local: str = "127.0.0.1") -> Signing:
        peer = await Peer().connect(self.desk.app.address, local=local)
        self._peers.append(peer)
        return Signing(peer)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with Shop(tmp_path) as shop:
        yield shop


def served() -> set[int]:
    return {code for table in TABLES for code in table.handlers}


def lack(code: int, account: Account) -> set[str]:
    """The sentences by which the account is refused, whichever comes first; none if it is let in."""
    key = account.name
    if account is ADMIN or (account is MONITOR and code in MONITORS | ALSO_MONITORS):
        return set()
    if account is BROKER and code in BROKERS:
        return set()
    if code in ADMINS | MONITORS:
        role = "admin" if code in ADMINS else "monitor"
        return {f"Need {role} permission for request code={code}, but accessKey={key} is not"}
    topic, group = f"No default permission for topic:{TOPIC}", f"No default permission for group:{GROUP}"
    if code in PUB:
        return set() if account is PUBLISHER else {topic}
    if code in BOTH:
        return set() if account is SUBSCRIBER else {topic, group}
    if code in GROUP_SUB:
        return set() if account is SUBSCRIBER else {group}
    if code in TOPIC_SUB:
        return set() if account is SUBSCRIBER else {topic}
    if code in EITHER:
        return set() if account in (PUBLISHER, SUBSCRIBER) else {topic}
    assert code in MESSAGE_SUB, "no rule for this code"
    return set()


def codes() -> list[int]:
    return sorted(served())


async def test_every_code_for_those_who_are_nobody(shop: Shop) -> None:
    peer = await shop.peer()
    stranger, liar = Account("a-stranger"), Account("subscriber")
    for code, asked in of_broker(shop.put.physical_offset).items():
        assert refused(await peer.ask(None, code, *asked)) == "No accessKey is configured", code
        assert refused(await peer.ask(stranger, code, *asked)) == "No acl config for a-stranger", code
        fields = {**liar.signed(*asked), "Signature": "AAAA"}
        answer = await peer.ask(None, code, fields, asked.body)
        assert refused(answer) == "Check signature failed for accessKey=subscriber", code
        fields = {**liar.signed(*asked), "more": "x"}
        answer = await peer.ask(None, code, fields, asked.body)
        assert refused(answer) == "Check signature failed for accessKey=subscriber", code


async def test_every_refused_change_is_one_line_of_the_audit_log(shop: Shop) -> None:
    await one_line_for_each_refusal(await shop.peer(), changes_of(TABLES), of_broker())


@pytest.mark.parametrize("account", ALL, ids=lambda account: account.name)
async def test_every_code_for_each_account(shop: Shop, account: Account) -> None:
    peer = await shop.peer()
    for code in codes():
        shop.prepare()
        asked = of_broker(shop.put.physical_offset)[code]
        if code == 37:
            asked = asked._replace(fields={**asked.fields, "commitLogOffset": await half(shop)})
        answer = await peer.ask(account, code, *asked)
        expected = lack(code, account)
        assert (refused(answer) in expected) if expected else (refused(answer) is None), (code, answer)
        if code == 33:
            allowed = account in (SUBSCRIBER, ADMIN)
            assert (answer.code == 0) is allowed, answer
            assert allowed or answer.remark == f"can not find message by the offset, {shop.put.physical_offset}"


async def half(shop: Shop) -> int:
    """The offset of a half message for the topic."""
    peer = await shop.peer()
    key = len(shop.desk.records(TRANS_HALF_TOPIC))
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01{key}\x02"
    answer = await peer.ask(ADMIN, 310, {**of_broker()[310].fields, "f": 4, "i": properties}, b"half")
    assert answer.code == 0, answer
    return int(answer.fields["msgId"][16:], 16)


async def test_every_code_from_a_white_address_and_from_a_listed_broker(shop: Shop) -> None:
    white, broker = await shop.peer(WHITE), await shop.peer(LISTED)
    for code in codes():
        shop.prepare()
        asked = of_broker(shop.put.physical_offset)[code]
        assert refused(await white.ask(None, code, *asked)) is None, code
        answer = await broker.ask(None, code, *asked)
        assert refused(answer) == (None if code in BROKERS else "No accessKey is configured"), code


async def test_a_code_that_is_not_served_says_so_to_those_who_have_an_account(shop: Shop) -> None:
    peer = await shop.peer()
    for code in (40, 103, 9999):
        assert refused(await peer.ask(None, code)) == "No accessKey is configured"
        answer = await peer.ask(NOBODY, code)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_there_is_a_request_and_a_need_for_every_code() -> None:
    needs = PUB | BOTH | GROUP_SUB | TOPIC_SUB | MESSAGE_SUB | EITHER | MONITORS | ADMINS
    assert needs >= served()
    assert set(of_broker()) >= served()
