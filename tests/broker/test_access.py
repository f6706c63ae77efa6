"""A broker with access control, by those who try to get round it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from eruca.broker.store import native
from eruca.protocol import api, frame
from eruca.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from eruca.protocol.errors import Refused
from eruca.protocol.headers.offsets import QueueOf
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.message import parse_offset_message_id
from eruca.protocol.names import TRANS_HALF_TOPIC
from eruca.protocol.record import HEADS, encode_record
from eruca.remoting import Channels
from eruca.remoting.addresses import vip_address
from tests.broker.test_acl_codes import Shop, half
from tests.support import raw
from tests.support.accounts import (
    ADMIN,
    NOBODY,
    PUBLISHER,
    SUBSCRIBER,
    WHITE,
    Account,
    Signing,
    refused,
    write_accounts,
)
from tests.support.desk import START, hear
from tests.support.every_code import GROUP, TOPIC, of_broker
from tests.support.pairs import eventually
from tests.support.peers import Answered, Peer
from tests.support.turns import turns_during

MINE = Account("of-mine", ("topicPerms:", "- Mine=PUB|SUB", "groupPerms:", "- mine=SUB", "- alsomine=SUB"))
"""May do everything with its own topic and groups."""
BACKSLASHES = 260_000
"""As many as a header may have, and nearly as many as are refused."""


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(tmp_path)
    write_accounts(tmp_path / "home", [NOBODY, PUBLISHER, SUBSCRIBER, ADMIN, MINE])
    async with shop:
        shop.desk.topic("Mine")
        yield shop


def denied(resource: str) -> str:
    return f"No default permission for {resource}"


def sent(topic: str, **more: Any) -> dict[str, Any]:
    return {**of_broker()[310].fields, "b": topic, **more}


async def send_half(peer: Signing, account: Account, topic: str) -> Answered:
    properties = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01key\x02REAL_TOPIC\x01Mine\x02"
    return await peer.ask(account, 310, sent(topic, f=4, i=properties), b"half")


# ------------------------------------------------------------------ who is it


async def test_who_is_not_let_in_learns_nothing_about_the_request(shop: Shop) -> None:
    """Not that a field is missing or no number, not that a code is unknown."""
    peer = await shop.peer()
    for fields in ({}, {"topic": TOPIC}, {"topic": TOPIC, "queueId": "x"}):
        assert refused(await peer.ask(None, 30, fields)) == "No accessKey is configured"
        answer = await peer.ask(SUBSCRIBER, 30, fields)
        assert answer.code == 1 and refused(answer) is None and "QueueOf" in (answer.remark or "")


async def test_accounts_change_from_request_to_request(shop: Shop) -> None:
    peer = await shop.peer()
    for _ in range(3):
        assert (await peer.ask(PUBLISHER, *asked(310))).code == 0
        assert refused(await peer.ask(SUBSCRIBER, *asked(310))) == denied("topic:T")
        assert refused(await peer.ask(None, *asked(310))) == "No accessKey is configured"
        assert (await peer.ask(SUBSCRIBER, *asked(11))).code == 0
        assert refused(await peer.ask(PUBLISHER, *asked(11))) == denied("topic:T")


def asked(code: int) -> tuple[int, dict[str, Any], bytes]:
    fields, body = of_broker()[code]
    return code, fields, body


async def test_requests_that_come_in_one_write_are_looked_at_one_by_one(shop: Shop) -> None:
    """The first is allowed; the others, of the same form, are not."""
    frames = []
    for number, account in enumerate((PUBLISHER, PUBLISHER, PUBLISHER, SUBSCRIBER, None)):
        fields = {name: str(value) for name, value in sent(TOPIC).items()}
        fields = fields if account is None else account.signed(fields, b"body")
        frames.append(raw.frame(raw.send_header(opaque=number, extFields=fields), b"body"))
    codes = await answers(shop, b"".join(frames), len(frames))
    assert codes == [0, 0, 0, 1, 1]


async def answers(shop: Shop, data: bytes, count: int, local: str = "127.0.0.1") -> list[int]:
    """The codes of the answers to what is written at once, in the order of the requests' numbers."""
    host, _, port = shop.desk.app.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(local, 0))
    writer.write(data)
    heads = [(await hear(reader))[0] for _ in range(count)]
    writer.close()
    await writer.wait_closed()
    return [head.code for head in sorted(heads, key=lambda head: head.opaque)]


async def test_long_requests_are_looked_at_like_others(shop: Shop) -> None:
    """Their signatures are computed in slices, so a short request behind them may be answered first."""
    body = bytes(300 << 10)
    frames = []
    for number, (account, topic) in enumerate(
        ((PUBLISHER, TOPIC), (SUBSCRIBER, TOPIC), (None, TOPIC), (PUBLISHER, "T2"), (PUBLISHER, TOPIC))
    ):
        fields = {name: str(value) for name, value in sent(topic).items()}
        fields = fields if account is None else account.signed(fields, body)
        header = raw.send_header(opaque=number, extFields=fields)
        frames.append(raw.frame(header, body[:-1] + b"!" if number == 3 else body))
    assert await answers(shop, b"".join(frames), len(frames)) == [0, 1, 1, 1, 0]
    reasons = shop.desk.app.broker.refusals.refused
    assert reasons == {"permission": 1, "no_access_key": 1, "signature": 1}


@pytest.mark.parametrize("unit", ["\\u00e9", "\\\\", "x"], ids=["escapes", "backslashes", "letters"])
async def test_the_longest_header_of_a_signed_request_takes_no_long_turn(shop: Shop, unit: str) -> None:
    """It is read three times, each time in a turn of its own, and signed in slices: 11 ms a turn on an idle core.

    It has as many backslashes as a header may have.
    """
    room = frame.MAX_HEADER - 2000
    text = (unit * min(BACKSLASHES // max(unit.count("\\"), 1), room // len(unit))).ljust(room, "x")
    fields = PUBLISHER.signed({**sent(TOPIC), "unknown": json.loads(f'"{text}"')})
    whole = json.dumps({"code": 310, "flag": 0, "language": "JAVA", "opaque": 0, "version": 407, "extFields": fields})
    data = raw.frame(whole.encode())
    assert await answers(shop, data, 1) == [0]
    turns = await turns_during(partial(answers, shop, data, 1), 0.04)
    assert turns.longest < 0.04


async def test_numbers_are_signed_by_their_text(shop: Shop) -> None:
    """As the C++ client writes them, which leaves the quotes out."""
    fields: dict[str, Any] = SUBSCRIBER.signed({"topic": TOPIC, "queueId": 0})
    header = raw.send_header(code=30, extFields={**fields, "queueId": 0})
    assert b'"queueId": 0' in header
    forged = raw.send_header(code=30, extFields={**fields, "queueId": 1})
    assert await answers(shop, raw.frame(header) + raw.frame(forged), 2) == [0, 1]


async def test_of_fields_that_come_twice_the_one_counts_that_is_signed(shop: Shop) -> None:
    good = SUBSCRIBER.signed({"topic": TOPIC, "queueId": "0"})
    text = json.dumps(good)
    before = text.replace('"topic": "T"', '"topic": "Other", "topic": "T"')
    after = text.replace('"topic": "T"', '"topic": "T", "topic": "Other"')
    head = '{"code":30,"flag":0,"language":"JAVA","opaque":1,"version":407,"extFields":%s}'
    whole = (
        '{"code":30,"flag":0,"language":"JAVA","opaque":1,"version":407,"extFields":{"topic":"Other"},"extFields":%s}'
    )
    frames = [raw.frame((form % fields).encode()) for form, fields in ((head, before), (head, after), (whole, text))]
    assert await answers(shop, b"".join(frames), 3) == [0, 1, 0]


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@pytest.mark.parametrize("offer", [False, True])
async def test_signed_requests_in_every_serialization(shop: Shop, serialization: int, offer: bool) -> None:
    """Also after the peers have agreed on one of their own."""
    channels = Channels(serialization=serialization, offer=offer, signer=PUBLISHER.credentials)
    message = SendMessageV2(producer_group="p", topic=TOPIC, queue_id=0, sys_flag=0, born_timestamp=1, flag=0)
    for _ in range(3):
        answer = await channels.call(shop.desk.app.address, api.SEND_MESSAGE_V2, message, b"body")
        assert answer.code == 0
        with pytest.raises(Refused, match="No default permission for topic:Other"):
            other = SendMessageV2(producer_group="p", topic="Other", queue_id=0, sys_flag=0, born_timestamp=1, flag=0)
            await channels.call(shop.desk.app.address, api.SEND_MESSAGE_V2, other, b"body")
    assert (await channels.get(shop.desk.app.address)).serialization == (frame.MSGPACK if offer else serialization)
    await channels.close()


async def test_who_offers_a_serialization_gets_no_further_by_that(shop: Shop) -> None:
    channels = Channels(offer=True)
    for _ in range(2):
        with pytest.raises(Refused, match="No accessKey is configured"):
            await channels.call(shop.desk.app.address, api.GET_MAX_OFFSET, QueueOf(topic=TOPIC, queue_id=0))
    await channels.close()


async def test_a_request_may_be_sent_again_and_from_elsewhere(shop: Shop) -> None:
    """The protocol has no nonce: who overhears a request can repeat it, and only TLS keeps it from being overheard.

    But nothing else can be made of it.
    """
    fields = PUBLISHER.signed(*of_broker()[310])
    first, second = await shop.peer(), await shop.peer()
    for peer in (first, second):
        assert (await peer.ask(None, 310, fields, b"body")).code == 0
    assert (
        refused(await second.ask(None, 310, fields, b"another body"))
        == "Check signature failed for accessKey=publisher"
    )
    assert refused(await second.ask(None, 310, {**fields, "b": "Mine"}, b"body")) is not None


async def test_long_and_odd_fields_are_refused_like_others(shop: Shop) -> None:
    peer = await shop.peer()
    for key in ("x" * 1_000_000, "", " publisher", "PUBLISHER", "publisher\0"):
        answer = await peer.ask(None, 310, {"AccessKey": key, "Signature": "y" * 1_000_000}, b"body")
        text = refused(answer)
        assert text is not None and text.startswith("No ac") and len(text) < 400
    answer = await peer.ask(None, 30, {**SUBSCRIBER.signed(), "Signature": "ü\u20ac"})
    assert refused(answer) == "Check signature failed for accessKey=subscriber"
    frames = b"".join(
        raw.frame(
            b'{"code":30,"flag":0,"opaque":%d,"extFields":{"AccessKey":%b,"topic":"T","queueId":"0"}}' % (at, key)
        )
        for at, key in enumerate((b'"subscriber"', b"7", b"true", b"null", b'["subscriber"]'))
    )
    assert await answers(shop, frames, 5) == [1] * 5


async def test_the_vip_port_asks_for_the_same(shop: Shop) -> None:
    address = vip_address(shop.desk.app.address)
    peer = Signing(await Peer().connect(address))
    assert (await peer.ask(PUBLISHER, *asked(310))).code == 0
    assert refused(await peer.ask(SUBSCRIBER, *asked(310))) == denied("topic:T")
    assert refused(await peer.ask(None, *asked(11))) == "No accessKey is configured"
    for account in (SUBSCRIBER, NOBODY):
        answer = await peer.ask(account, *asked(11))
        assert (answer.code, answer.remark) == (3, " request type 11 not supported"), "pulls are not served there"
    await peer.peer.close()


# ------------------------------------------------------------------ what may it


async def test_a_batch_in_a_plain_send_is_of_its_topic(shop: Shop) -> None:
    peer = await shop.peer()
    fields, body = of_broker()[320]
    assert (await peer.ask(PUBLISHER, 310, fields, body)).code == 0
    for code in (310, 320):
        assert refused(await peer.ask(MINE, code, fields, body)) == denied("topic:T")


async def test_a_retry_topic_is_its_groups(shop: Shop) -> None:
    """Whatever group the request names besides: 4.9 asks for the rights of that one."""
    peer = await shop.peer()
    for name in ("%RETRY%mine", "%RETRY%other", "%RETRY%%RETRY%mine", "%RETRY%", "%RETRY%mine%RETRY%other"):
        shop.desk.topic(name)
        for fields in (sent(name, a="mine"), sent(name, a="CLIENT_INNER_PRODUCER")):
            text = refused(await peer.ask(MINE, 310, fields, b"body"))
            assert text == (None if name == "%RETRY%mine" else denied(f"group:{name.removeprefix('%RETRY%')}")), name
        pull = {**of_broker()[11].fields, "topic": name, "consumerGroup": "mine"}
        assert (refused(await peer.ask(MINE, 11, pull)) is None) is (name == "%RETRY%mine"), name


async def test_a_group_with_the_name_of_a_retry_topic_is_another_group(shop: Shop) -> None:
    peer = await shop.peer()
    pull = {**of_broker()[11].fields, "topic": "Mine", "consumerGroup": "%RETRY%mine"}
    assert refused(await peer.ask(MINE, 11, pull)) == denied("group:%RETRY%mine")


async def test_dead_letters_are_a_topic_like_any_other(shop: Shop) -> None:
    peer = await shop.peer()
    shop.desk.topic("%DLQ%mine")
    pull = {**of_broker()[11].fields, "topic": "%DLQ%mine", "consumerGroup": "mine"}
    assert refused(await peer.ask(MINE, 11, pull)) == denied("topic:%DLQ%mine")
    assert refused(await peer.ask(MINE, 310, sent("%DLQ%mine"), b"body")) == denied("topic:%DLQ%mine")


async def test_the_subscription_of_a_pull_gives_no_other_topic(shop: Shop) -> None:
    peer = await shop.peer()
    pull = {**of_broker()[11].fields, "topic": "Mine", "consumerGroup": "mine", "subscription": "T", "sysFlag": 4}
    answer = await peer.ask(MINE, 11, pull)
    assert answer.code in (19, 20) and answer.body == b""
    assert refused(await peer.ask(MINE, 11, {**pull, "topic": TOPIC})) == denied("topic:T")


@pytest.mark.parametrize("hidden", ["a group", "a topic"])
async def test_one_foreign_name_in_a_heartbeat_refuses_the_whole(shop: Shop, hidden: str) -> None:
    peer = await shop.peer()

    def of(group: str, topic: str) -> ConsumerData:
        return ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic=topic, sub_string="*")])

    both = [of("mine", "Mine"), of("alsomine", "Mine")]
    beat = HeartbeatData(client_id="c", consumer_data_set=both)
    assert (await peer.ask(MINE, 34, {}, beat.encode())).code == 0
    foreign = of("G", "Mine") if hidden == "a group" else of("mine", TOPIC)
    beat = HeartbeatData(client_id="d", consumer_data_set=[*both, foreign])
    second = await shop.peer()
    assert refused(await second.ask(MINE, 34, {}, beat.encode())) == denied(
        "group:G" if hidden == "a group" else "topic:T"
    )
    for group in ("mine", "alsomine"):
        members = shop.desk.broker.clients.consumer(group)
        assert members is not None and members.client_ids == ["c"]


async def test_a_message_of_another_topic_cannot_be_sent_back_to_be_read(shop: Shop) -> None:
    """By its offset, whatever topic the request says: the copy would come to the requester's own group."""
    peer = await shop.peer()
    shop.desk.broker.groups.find("mine")
    offset = shop.put.physical_offset
    back = {**of_broker(offset)[36].fields, "group": "mine", "originTopic": "Mine"}
    answer = await peer.ask(MINE, 36, back)
    assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
    own = shop.desk.store("Mine", 0, 2).physical_offset
    assert (await peer.ask(MINE, 36, {**back, "offset": own})).code == 0
    assert shop.desk.broker.refusals.refused == {"permission": 1}


async def test_a_message_of_another_topic_is_not_there(shop: Shop) -> None:
    peer = await shop.peer()
    foreign, own = shop.put.physical_offset, shop.desk.store("Mine", 0, 2).physical_offset
    for offset in (foreign, own + 1, 1 << 40):
        answer = await peer.ask(MINE, 33, {"offset": offset})
        assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")
    assert (await peer.ask(MINE, 33, {"offset": own})).code == 0


@pytest.mark.parametrize("decision", [8, 12, 0])
async def test_only_who_may_send_to_the_topic_of_a_half_message_decides_it(shop: Shop, decision: int) -> None:
    """Not the topic of the request, of which there is none, nor what the sender put into its properties."""
    peer = await shop.peer()
    offset = await half(shop)
    end = {**of_broker(offset)[37].fields, "commitOrRollback": decision}
    assert refused(await peer.ask(MINE, 37, end)) == denied("topic:T")
    assert len(shop.desk.broker.halves.undecided) == 1
    if decision:
        assert (await peer.ask(PUBLISHER, 37, end)).code == 0
        assert len(shop.desk.broker.halves.undecided) == 0


@pytest.mark.parametrize("decision", [8, 12])
async def test_the_body_of_a_message_is_no_half_message(shop: Shop, decision: int) -> None:
    """Who knows where his message will be can write into its body what looks like the half message of another."""
    offset = await half(shop)
    [(number, real)] = shop.desk.broker.halves.undecided.items()
    at = shop.desk.broker.store.replicator.end_offset + HEADS[0].size
    forged = encode_record(
        topic=TRANS_HALF_TOPIC,
        queue_id=0,
        queue_offset=number,
        physical_offset=at,
        body=b"forged",
        properties=f"REAL_TOPIC\x01Mine\x02REAL_QID\x010\x02PGROUP\x01{real.group}\x02".encode(),
        flag=0,
        sys_flag=4,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=1,
        store_host=bytes(8),
    )
    peer = await shop.peer()
    assert (await peer.ask(MINE, 310, sent("Mine"), forged)).code == 0
    assert shop.desk.broker.store.record(at) == forged
    end = {**of_broker(at)[37].fields, "tranStateTableOffset": number, "commitOrRollback": decision}
    answer = await peer.ask(MINE, 37, {**end, "producerGroup": real.group})
    assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
    assert shop.desk.broker.halves.undecided.get(number) == real and real.physical_offset == offset


@pytest.mark.parametrize("code", [33, 36])
async def test_the_body_of_a_message_is_no_message(shop: Shop, code: int) -> None:
    """Nor may it reach into the message behind it: neither topic nor properties are part of the checksum."""
    broker = shop.desk.broker
    broker.groups.find("mine")
    body_at = broker.store.replicator.end_offset + HEADS[0].size
    forged = encode_record(
        topic="Mine",
        queue_id=0,
        queue_offset=0,
        physical_offset=body_at,
        body=b"forged",
        properties=b"KEYS\x01" + b"k" * 200 + b"\x02x\x01",
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=1,
        store_host=bytes(8),
    )
    inside = forged[:-200]  # the rest of its properties is what follows the message
    peer = await shop.peer()
    assert (await peer.ask(MINE, 310, sent("Mine"), inside)).code == 0
    secret = shop.desk.store(TOPIC, 0, 2, body=b"of another topic" * 20).physical_offset
    seen = broker.store.record(body_at)
    assert seen is not None and body_at < secret < body_at + len(seen), "the forged record reaches into the next one"

    answer = await peer.ask(MINE, code, {**of_broker(body_at)[36].fields, "group": "mine", "originTopic": "Mine"})
    assert answer.code == 1 and "by" in (answer.remark or "") and not answer.body
    own = body_at - HEADS[0].size
    assert (await peer.ask(MINE, code, {**of_broker(own)[36].fields, "group": "mine", "originTopic": "Mine"})).code == 0


async def test_who_signs_now_is_who_is_asked(shop: Shop, tmp_path: Path) -> None:
    """Whoever else has used the connection before."""
    white = Signing(await Peer().connect(shop.desk.app.address, local=WHITE))
    beat = HeartbeatData(client_id="c", producer_data_set=[ProducerData("p")], consumer_data_set=[]).encode()
    for account, allowed in ((None, True), (MINE, False), (PUBLISHER, True)):
        write_accounts(tmp_path / "home", [PUBLISHER, MINE], white=[] if account else [WHITE])
        shop.desk.broker.reloads.changed()
        assert (await white.ask(account, 34, {}, beat)).code == 0
        member = shop.desk.broker.clients.producer("c")
        assert member is not None and member.may_send(TOPIC) is allowed
    await white.peer.close()


async def test_a_half_message_is_of_the_topic_of_its_request(shop: Shop) -> None:
    peer = await shop.peer()
    assert refused(await send_half(peer, MINE, TOPIC)) == denied("topic:T")
    answer = await send_half(peer, PUBLISHER, TOPIC)
    offset = parse_offset_message_id(answer.fields["msgId"])[1]
    end = {**of_broker(offset)[37].fields, "commitOrRollback": 8}
    assert refused(await peer.ask(MINE, 37, end)) == denied("topic:T")


async def test_only_who_may_send_to_the_topic_is_asked_about_a_half_message(shop: Shop) -> None:
    """Everybody may call himself a producer of any group, and the question holds the message."""
    beat = HeartbeatData(client_id="p", producer_data_set=[ProducerData(group_name="p")]).encode()
    spy, owner = await shop.peer(), await shop.peer()
    assert (await spy.ask(MINE, 34, {}, beat)).code == 0
    await half(shop)
    shop.desk.now += 60_000
    await shop.desk.broker.check_backs.round()
    assert len(shop.desk.broker.halves.undecided) == 1 and not spy.peer.pushed

    assert (await owner.ask(PUBLISHER, 34, {}, beat)).code == 0
    shop.desk.now += 60_000
    await shop.desk.broker.check_backs.round()
    [question] = await owner.peer.received(39)
    assert b"half" in question.body
    assert (await spy.ask(MINE, 34, {}, beat)).code == 0
    assert not spy.peer.pushed


# ------------------------------------------------------------------ refused in silence, but not unnoticed


async def test_one_way_requests_are_refused_counted_and_told(shop: Shop) -> None:
    peer = await shop.peer()
    offset = await half(shop)
    with capture_logs() as said:
        peer.peer.tell(15, SUBSCRIBER.signed({**of_broker()[15].fields, "topic": "Other", "commitOffset": 7}))
        peer.peer.tell(37, MINE.signed(of_broker(offset)[37].fields))
        peer.peer.tell(310, sent(TOPIC), b"body")
        peer.peer.tell(310, sent(TOPIC), b"body")
        assert (await peer.ask(SUBSCRIBER, 30, {"topic": TOPIC, "queueId": 0})).fields["offset"] == "1"
    assert shop.desk.broker.refusals.refused == {"permission": 2, "no_access_key": 2}
    assert shop.desk.broker.offsets.query(GROUP, "Other", 0) == -1
    assert len(shop.desk.broker.halves.undecided) == 1
    remote = peer.peer.address
    assert [line for line in said if line["event"] == "access_refused"] == [
        {
            "event": "access_refused",
            "log_level": "warning",
            "reason": "permission",
            "remote": remote,
            "account": "subscriber",
            "request_code": 15,
            "resource": "topic:Other",
            "more": 0,
        },
        {
            "event": "access_refused",
            "log_level": "warning",
            "reason": "no_access_key",
            "remote": remote,
            "request_code": 310,
            "more": 0,
        },
    ]


async def test_a_refusal_is_told_once_a_minute_and_address_with_the_number_of_the_others(shop: Shop) -> None:
    near, far = await shop.peer(), await shop.peer("127.0.0.4")
    liar = {**SUBSCRIBER.signed(), "Signature": "subscriber-secret"}
    with capture_logs() as said:
        for _ in range(3):
            await near.ask(None, 28, liar)
        await far.ask(None, 28, liar)
        shop.desk.now += 59_999
        await near.ask(None, 28, liar)
        shop.desk.now += 1
        await near.ask(None, 28, liar)
    refusals = [line for line in said if line["event"] == "access_refused"]
    lines = [(line["remote"].split(":")[0], line["reason"], line["more"]) for line in refusals]
    assert lines == [("127.0.0.1", "signature", 0), ("127.0.0.4", "signature", 0), ("127.0.0.1", "signature", 3)]
    assert "secret" not in str(said)


async def test_changes_by_strangers_fill_no_audit_log(shop: Shop) -> None:
    """Those by accounts that may not make them are all in it, each once; of strangers the first of each code."""
    peer = await shop.peer()
    with capture_logs() as said:
        for code in (215, 207):
            for _ in range(20):
                await peer.ask(None, *asked(code))
        for _ in range(2):
            await peer.ask(NOBODY, *asked(215))
    audit = [line for line in said if line["event"] in ("change", "access_refused")]
    assert [(line["event"], line["request_code"], line["account"], line["reason"]) for line in audit] == [
        ("access_refused", 215, "none", "no_access_key"),
        ("access_refused", 207, "none", "no_access_key"),
        ("access_refused", 215, "without-rights", "admin"),
        ("access_refused", 215, "without-rights", "admin"),
    ]
    assert {(line["request"], line["target"]) for line in audit if line["request_code"] == 215} == {
        ("DELETE_TOPIC_IN_BROKER", "topic Other")
    }
    assert shop.desk.broker.refusals.refused == {"no_access_key": 40, "admin": 2}


async def test_a_forged_change_names_the_key_that_it_claims(shop: Shop) -> None:
    peer = await shop.peer()
    with capture_logs() as said:
        await peer.ask(None, 215, {**NOBODY.signed({"topic": TOPIC}), "Signature": "AAAA"})
    (line,) = (line for line in said if line["event"] in ("change", "access_refused"))
    assert (line["event"], line["account"], line["reason"]) == ("access_refused", "without-rights", "signature")


# ------------------------------------------------------------------ the fast path


@pytest.mark.skipif(not native.on, reason="the broker has no native step here")
async def test_the_fast_path_is_for_white_addresses_only_and_follows_the_file(
    shop: Shop, dispatched: list[int], tmp_path: Path
) -> None:
    message = SendMessageV2(
        producer_group="p",
        topic=TOPIC,
        queue_id=0,
        sys_flag=0,
        born_timestamp=START,
        flag=0,
        properties="KEYS\x01k\x02",
        reconsume_times=0,
    )
    await shop.desk.broker.topics.saved()

    async def slow(local: str, account: Account | None) -> int:
        """The number of ten sends that took the slow path; all are stored."""
        signed = None if account is None else account.signed(message.fields(), b"body")
        header = message if signed is None else None
        one = frame.encode(frame.JSON, 310, 1, 0, header, 4, extra=signed) + b"body"
        assert await answers(shop, one * 10, 10, local) == [0] * 10
        taken, dispatched[:] = len(dispatched), []
        return taken

    await slow(WHITE, None)
    assert await slow(WHITE, None) < 5
    assert await slow("127.0.0.1", PUBLISHER) == await slow("127.0.0.1", PUBLISHER) == 10
    signed = PUBLISHER.signed(message.fields(), b"body")
    frames = [frame.encode(frame.JSON, 310, 0, 0, None, 4, extra=signed)]
    frames += [frame.encode(frame.JSON, 310, number, 0, message, 4) for number in range(1, 5)]
    learned = b"".join(each + b"body" for each in frames)
    assert await answers(shop, learned, 5) == [0, 1, 1, 1, 1], "forms that are learned from white addresses"
    dispatched.clear()

    write_accounts(tmp_path / "home", [PUBLISHER], white=["127.0.0.1"])
    shop.desk.broker.reloads.changed()
    white = await shop.peer(WHITE)
    assert refused(await white.ask(None, 310, sent(TOPIC), b"body")) == "No accessKey is configured"
    assert await slow(WHITE, PUBLISHER) == 11
    assert await slow("127.0.0.1", None) < 5


async def test_an_account_that_is_removed_is_refused_on_its_open_connection(shop: Shop, tmp_path: Path) -> None:
    peer = await shop.peer()
    assert (await peer.ask(PUBLISHER, *asked(310))).code == 0
    write_accounts(tmp_path / "home", [SUBSCRIBER])
    shop.desk.broker.reloads.changed()
    assert refused(await peer.ask(PUBLISHER, *asked(310))) == "No acl config for publisher"


@pytest.mark.parametrize("change", ["removed", "another secret", "another permission", "no white address"])
async def test_a_pull_that_waits_is_looked_at_again_before_it_is_answered(
    shop: Shop, tmp_path: Path, change: str
) -> None:
    white = change == "no white address"
    peer = Signing(await Peer().connect(shop.desk.app.address, local=WHITE)) if white else await shop.peer()
    fields, _ = of_broker()[11]
    ask = {**fields, "queueOffset": shop.desk.broker.store.max_offset(TOPIC, 0)}
    ask |= {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
    waiting = asyncio.create_task(peer.ask(None if white else SUBSCRIBER, 11, ask))
    await eventually(lambda: len(shop.desk.broker.holds) == 1)
    write_accounts(tmp_path / "home", [PUBLISHER], white=[])
    file = tmp_path / "home" / "conf" / "plain_acl.yml"
    secret = "changed-secret" if change == "another secret" else "subscriber-secret"
    if change.startswith("another"):
        file.write_text(f"{file.read_text()}- accessKey: subscriber\n  secretKey: {secret}\n  defaultGroupPerm: SUB\n")
    assert shop.desk.broker.accounts is not None
    shop.desk.broker.accounts.read()
    other = await shop.peer()
    assert (await other.ask(PUBLISHER, 310, sent(TOPIC), b"later")).code == 0
    answer = await waiting
    assert (answer.code, answer.body) == (1, b"") and refused(answer) is not None
    await peer.peer.close()


@pytest.mark.parametrize("white", [False, True])
async def test_who_was_let_in_once_is_not_asked_about_half_messages_for_ever(
    shop: Shop, tmp_path: Path, white: bool
) -> None:
    peer = Signing(await Peer().connect(shop.desk.app.address, local=WHITE)) if white else await shop.peer()
    beat = HeartbeatData(client_id="c", producer_data_set=[ProducerData("p")], consumer_data_set=[]).encode()
    assert (await peer.ask(None if white else PUBLISHER, 34, {}, beat)).code == 0
    member = shop.desk.broker.clients.producer("c")
    assert member is not None
    assert member.may_send(TOPIC)
    write_accounts(tmp_path / "home", [ADMIN], white=[])
    assert shop.desk.broker.accounts is not None
    shop.desk.broker.accounts.read()
    assert not member.may_send(TOPIC)
    await peer.peer.close()


async def test_traces_may_be_sent_by_every_account_and_read_by_none(shop: Shop) -> None:
    peer = await shop.peer()
    shop.desk.topic("RMQ_SYS_TRACE_TOPIC")
    assert (await peer.ask(NOBODY, 310, sent("RMQ_SYS_TRACE_TOPIC"), b"body")).code == 0
    pull = {**of_broker()[11].fields, "topic": "RMQ_SYS_TRACE_TOPIC"}
    assert refused(await peer.ask(SUBSCRIBER, 11, pull)) == denied("topic:RMQ_SYS_TRACE_TOPIC")


async def test_what_the_broker_asks_of_its_clients_needs_no_account(shop: Shop) -> None:
    """And neither do their answers."""
    peer = await shop.peer()
    beat = of_broker()[34].body
    assert (await peer.ask(SUBSCRIBER, 34, {}, beat)).code == 0
    asked_for = asyncio.ensure_future((await shop.peer()).ask(ADMIN, *asked(222)))
    await peer.peer.received(220)
    assert (await asked_for).code == 0


async def test_without_access_control_nothing_is_looked_at(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.desk.config.access.acl_enable = False
    async with shop:
        peer = await shop.peer()
        assert (await peer.ask(Account("a-stranger"), *asked(310))).code == 0
        assert shop.desk.broker.accounts is None
    await eventually(lambda: not shop.desk.broker.refusals.refused)


@pytest.mark.parametrize("code", [11, 310, 17])
async def test_what_49_checks_is_checked_with_its_name_too(tmp_path: Path, code: int) -> None:
    shop = Shop(tmp_path)
    shop.desk.config.access.acl_compat = "4.9"
    async with shop:
        peer = await shop.peer()
        assert refused(await peer.ask(NOBODY, *asked(code))) is not None
        assert refused(await peer.ask(None, *asked(code))) == "No accessKey is configured"


async def test_what_49_leaves_open_is_open_with_its_name(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.desk.config.access.acl_compat = "4.9"
    async with shop:
        peer = await shop.peer()
        for code in (320, 14, 361, 41, 203, 321, 28, 26, 314):
            assert refused(await peer.ask(NOBODY, *asked(code))) is None, code
            assert refused(await peer.ask(None, *asked(code))) == "No accessKey is configured", code
        assert (await peer.ask(NOBODY, 33, {"offset": shop.put.physical_offset})).code == 0
