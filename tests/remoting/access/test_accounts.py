"""Accounts of a daemon's files: which holds, when they are read again, and who has signed a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from eruca.protocol import frame
from eruca.protocol.bodies import DataVersion
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.signature import Credentials, sign
from eruca.remoting import Call
from eruca.remoting.access.account import Account
from eruca.remoting.access.accounts import Accounts, is_long
from eruca.remoting.access.permissions import SUB
from eruca.remoting.access.refusals import shown
from eruca.remoting.access.yaml_nodes import BadAccessFile
from eruca.remoting.reloads import Reloads
from tests.support.turns import turns_during

MAIN = """
globalWhiteRemoteAddresses: [10.9.9.*]
brokerAddresses: [10.8.8.8]
accounts:
- accessKey: RocketMQ
  secretKey: '12345678'
  defaultTopicPerm: PUB|SUB
- accessKey: ordinary
  secretKey: marked-secret
  whiteRemoteAddress: 10.0.0.7
dataVersion: [{counter: 2, timestamp: 1700000000000}]
"""
ORDINARY = Credentials("ordinary", "marked-secret")
FAILED = "org.apache.rocketmq.acl.common.AclException: {}, eruca.remoting.access"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """RocketMQ's home, with a file of accounts."""
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "plain_acl.yml").write_text(MAIN)
    return tmp_path


@dataclass
class Remote:
    """The connection of a request."""

    remote: str = "10.0.0.1:50000"


def call_of(serialization: int, header: bytes, body: bytes = b"", remote: str = "10.0.0.1:50000") -> Call[Empty]:
    return Call(Empty(), body, Remote(remote), frame.read(serialization, header), serialization, header)


def call(
    fields: Mapping[str, str], body: bytes = b"", *, serialization: int = frame.JSON, remote: str = "10.0.0.1:50000"
) -> Call[Empty]:
    """A request with these fields, as they are."""
    data = frame.encode(serialization, 310, 7, 0, None, len(body), extra=fields)
    return call_of(serialization, data[8:], body, remote)


def signed(fields: Mapping[str, str], body: bytes = b"", by: Credentials = ORDINARY) -> dict[str, str]:
    return {**fields, **by(fields, body)}


def refused(accounts: Accounts, request: Call[Empty]) -> str:
    with pytest.raises(Refused) as answer:
        accounts.authenticate(request)
    assert answer.value.code == 1
    return answer.value.remark


# ---------------------------------------------------------------- requests


def test_the_request_that_a_real_broker_accepts(home: Path) -> None:
    fields = dict(
        zip(
            "abcdefghijklm",
            ["PG", "T1", "TBW102", "4", "0", "0", "1700000000000", "0", "UNIQ_KEY\x01A1", "0", "false", "0", "false"],
            strict=True,
        )
    )
    given = {**fields, "AccessKey": "RocketMQ", "Signature": "1T/S25lQELTpX1KBWWSG0VYPM74="}
    accounts = Accounts(home)

    assert accounts.authenticate(call(given, b"hello")) == accounts.get("RocketMQ")
    assert refused(accounts, call(given, b"hellO")) == FAILED.format("Check signature failed for accessKey=RocketMQ")


def test_the_texts_in_the_order_of_the_checks(home: Path) -> None:
    accounts = Accounts(home)
    good = signed({"b": "T"}, b"body")

    assert refused(accounts, call({"b": "T"})) == FAILED.format("No accessKey is configured")
    assert refused(accounts, call({})) == FAILED.format("No accessKey is configured")
    assert refused(accounts, call({"AccessKey": "nobody"})) == FAILED.format("No acl config for nobody")
    assert refused(accounts, call({"AccessKey": "x" * 9999})) == FAILED.format(f"No acl config for {'x' * 255}")
    for wrong in (
        call({"AccessKey": "ordinary"}, b"body"),
        call({**good, "b": "U"}, b"body"),
        call({**good, "c": ""}, b"bodY"),
        call({**good, "Signature": "ü"}, b"body"),
        call(good, b""),
    ):
        assert refused(accounts, wrong) == FAILED.format("Check signature failed for accessKey=ordinary")
    assert accounts.authenticate(call(good, b"body")) == accounts.get("ordinary")


def test_a_key_is_repeated_without_what_a_terminal_obeys(home: Path) -> None:
    key = "\x1b[2Jnobody\r\n\u202eü\udc80"
    answer = refused(Accounts(home), call({"AccessKey": key.replace("\udc80", "")}))
    assert answer == FAILED.format("No acl config for \\x1b[2Jnobody\\r\\n\\u202eü")
    assert len(shown("\x1b" * 300)) == 255
    assert shown("\udc80") == "\\udc80"


async def test_the_signature_of_a_long_body_leaves_others_their_turns(home: Path) -> None:
    accounts, body = Accounts(home), bytes(15 << 20)
    good = signed({"b": "T"}, body)
    long = call(good, body)
    assert is_long(long) and not is_long(call(good, b"body"))

    turns = await turns_during(partial(accounts.authenticate_long, long), 0.02)
    assert await accounts.authenticate_long(long) == accounts.get("ordinary")
    assert turns.count > 4 and turns.longest < 0.02

    for wrong in ({**good, "b": "U"}, {**good, "Signature": "x"}, {"AccessKey": "ordinary"}):
        with pytest.raises(Refused, match="Check signature failed for accessKey=ordinary"):
            await accounts.authenticate_long(call(wrong, body))
    assert await accounts.authenticate_long(call({}, body, remote="10.9.9.9:1")) is None


def test_an_unknown_key_costs_no_look_at_the_body(home: Path) -> None:
    for fields in ({"AccessKey": "nobody", "Signature": "x"}, {}):
        looking = Accounts(home).authenticate_long(call(fields, bytes(15 << 20)))
        with pytest.raises(Refused, match=r"No (acl config for nobody|accessKey is configured)"):
            looking.send(None)


async def test_an_account_that_goes_while_its_signature_is_computed_has_signed_nothing(home: Path) -> None:
    accounts, body = Accounts(home), bytes(15 << 20)
    looking = asyncio.ensure_future(accounts.authenticate_long(call(signed({}, body), body)))
    await asyncio.sleep(0)
    assert not looking.done()
    (home / "conf" / "plain_acl.yml").write_text(MAIN.replace("marked-secret", "another-secret"))
    accounts.read()
    with pytest.raises(Refused, match="Check signature failed"):
        await looking


def test_white_addresses_need_no_signature(home: Path) -> None:
    accounts = Accounts(home)

    assert accounts.authenticate(call({}, remote="10.9.9.9:1")) is None
    assert accounts.authenticate(call({}, remote="::ffff:10.9.9.9:1")) is None
    assert accounts.authenticate(call({"AccessKey": "ordinary"}, remote="10.0.0.7:1")) is None
    refused(accounts, call({"AccessKey": "RocketMQ"}, remote="10.0.0.7:1"))
    assert [accounts.white(ip) for ip in ("10.9.9.9", "10.0.0.7", "10.9.9.9", "")] == [True, False, True, False]
    assert [accounts.is_broker(ip) for ip in ("10.8.8.8", "10.9.9.9")] == [True, False]


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ, frame.MSGPACK])
def test_every_serialization_is_signed_alike(home: Path, serialization: int) -> None:
    fields = SendMessageV2(
        producer_group="g", topic="ü", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
        sys_flag=0, born_timestamp=1, flag=0, properties="a\x01b\x02", reconsume_times=0, unit_mode=False, batch=False,
    ).fields()  # fmt: skip

    assert Accounts(home).authenticate(call(signed(fields, b"\xff"), b"\xff", serialization=serialization)) is not None


def test_the_query_field_may_be_signed_or_not(home: Path) -> None:
    accounts = Accounts(home)
    fields = {"topic": "T", "key": "k"}

    for one in (signed({**fields, "_UNIQUE_KEY_QUERY": "true"}), {**signed(fields), "_UNIQUE_KEY_QUERY": "true"}):
        assert accounts.authenticate(call(one)) is not None
    refused(accounts, call({**signed(fields), "_UNIQUE_KEY_QUER": "true"}))


def test_an_empty_field_of_rocketmq_is_null_and_signed_as_java_does_it_or_not_at_all(home: Path) -> None:
    accounts = Accounts(home)

    for text in ("", "null"):
        fields = {"AccessKey": "ordinary", "a": text, "b": "T"}
        sent = {**fields, "a": "", "Signature": sign(fields, b"", "marked-secret")}
        assert accounts.authenticate(call(sent, serialization=frame.ROCKETMQ)) is not None
    wrong = {"AccessKey": "ordinary", "a": "", "b": "T", "Signature": sign({"b": "T"}, b"", "marked-secret")}
    refused(accounts, call(wrong, serialization=frame.ROCKETMQ))


@pytest.mark.parametrize("number", ["7", "-1", "1.50", "1e5", "123456789012345678901234567890"])
def test_numbers_and_nulls_of_json_are_signed_by_their_text(home: Path, number: str) -> None:
    texts = {"AccessKey": "ordinary", "b": "T", "e": number, "m": "true", "z": "null"}
    signature = sign(texts, b"", "marked-secret")
    fields = f'"AccessKey":"ordinary","b":"T","e":{number},"m":true,"z":null,"Signature":{json.dumps(signature)}'
    header = f'{{"code":310,"opaque":7,"extFields":{{{fields}}}}}'.encode()

    assert Accounts(home).authenticate(call_of(frame.JSON, header)) is not None


def test_fields_that_cannot_be_read_are_refused(home: Path) -> None:
    assert "AclException: " in refused(Accounts(home), call_of(frame.JSON, b'{"code":310,"extFields":[1]}'))


# ---------------------------------------------------------------- files


def test_the_first_file_holds_by_name_and_the_main_file_comes_last(home: Path) -> None:
    folder = home / "conf" / "acl" / "teams"
    folder.mkdir(parents=True)
    one = "accounts: [{accessKey: ordinary, secretKey: %s}]\n"
    (folder / "b.yml").write_text(one % "secret-of-b")
    (folder / "a.yaml").write_text(one % "secret-of-a")
    (folder / "b.yml.bak").write_text("no: [yaml")

    with capture_logs() as said:
        accounts = Accounts(home)

    assert [file.name for file in accounts.files()] == ["a.yaml", "b.yml", "plain_acl.yml"]
    found = accounts.get("ordinary")
    assert found is not None and found.secret_key == "secret-of-a"
    assert accounts.home_of("ordinary") == folder / "a.yaml"
    assert [each["warning"] for each in said if "not this one" in each["warning"]] == [
        f"{file}: the account ordinary of {folder / 'a.yaml'} holds, not this one; delete one of them"
        for file in (folder / "b.yml", home / "conf" / "plain_acl.yml")
    ]
    assert accounts.versions[home / "conf" / "plain_acl.yml"] == DataVersion(counter=2, timestamp=1700000000000)


def test_a_secret_that_kubernetes_mounts_is_read_once(home: Path) -> None:
    folder = home / "conf" / "acl"
    (folder / "..2026_01").mkdir(parents=True)
    (folder / "..2026_01" / "team.yml").write_text("accounts: [{accessKey: of-team, secretKey: its-secret}]\n")
    (folder / "..data").symlink_to("..2026_01")
    (folder / "team.yml").symlink_to("..data/team.yml")

    with capture_logs() as said:
        accounts = Accounts(home)

    assert accounts.files() == [folder / "team.yml", home / "conf" / "plain_acl.yml"]
    assert accounts.home_of("of-team") == folder / "team.yml"
    assert [line for line in said if "of-team" in line["warning"]] == []


def test_another_main_file(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "accounts.yml"
    other.write_text("accounts: [{accessKey: someone, secretKey: its-secret}]\n")

    for accounts in (Accounts(home, other), Accounts(None, other)):
        assert accounts.files() == [other]
        assert accounts.get("someone") is not None and accounts.get("ordinary") is None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda file: file.unlink(), "there is none at"),
        (lambda file: file.write_text("accounts: ["), "this is no YAML"),
        (lambda file: file.write_bytes(b"\xff\xfe"), "not in UTF-8"),
        (lambda file: (file.unlink(), file.mkdir()), "cannot be read"),
    ],
)
def test_no_accounts_without_a_readable_file(home: Path, spoil: Callable[[Path], object], words: str) -> None:
    file = home / "conf" / "plain_acl.yml"
    spoil(file)

    with pytest.raises(BadAccessFile) as fault:
        Accounts(home)
    assert words in str(fault.value) and str(file) in str(fault.value)


def test_no_accounts_without_a_place_to_look() -> None:
    with pytest.raises(BadAccessFile, match="set aclFile, or ROCKETMQ_HOME"):
        Accounts(None)


def test_changes_are_told_and_a_broken_file_keeps_the_former_accounts(home: Path) -> None:
    accounts = Accounts(home)
    main = home / "conf" / "plain_acl.yml"
    assert accounts.read() == []

    main.write_text(
        MAIN.replace("PUB|SUB", "SUB").replace("accessKey: ordinary", "accessKey: another").replace("9.9", "7.7")
    )
    assert accounts.read() == [
        "account RocketMQ changed",
        "account another added",
        "account ordinary removed",
        "global white addresses changed",
    ]
    changed = accounts.get("RocketMQ")
    assert changed is not None and changed.topic("T") == SUB
    assert [accounts.white(ip) for ip in ("10.9.9.9", "10.7.7.9")] == [False, True]

    for broken in (f"{MAIN}accounts: []\n", "accounts: ["):
        main.write_text(broken)
        with pytest.raises(BadAccessFile, match=r"plain_acl\.yml:\d+:\d+: "):
            accounts.read()
        assert accounts.get("another") is not None
    main.unlink()
    with pytest.raises(BadAccessFile, match="there is none"):
        accounts.read()
    assert accounts.get("another") is not None


def test_a_new_file_is_noticed(home: Path) -> None:
    accounts, reloads = Accounts(home), Reloads()
    reloads.add("accounts", accounts.read, files=accounts.files)
    folder = home / "conf" / "acl"
    folder.mkdir()
    (folder / "team.yml").write_text("accounts: [{accessKey: someone, secretKey: its-secret}]\n")

    with capture_logs() as lines:
        reloads.changed()
        reloads.changed()

    assert accounts.get("someone") is not None
    assert [(line["event"], line["change"]) for line in lines] == [("reload_changed", "account someone added")]


def test_a_warning_is_said_once(home: Path) -> None:
    with capture_logs() as lines:
        accounts = Accounts(home)
        accounts.read()
        accounts.read()

    assert [line["event"] for line in lines] == ["access_file"]
    assert "the account RocketMQ has the secretKey that RocketMQ ships" in lines[0]["warning"]


def test_nobody_is_warned_of(home: Path) -> None:
    (home / "conf" / "plain_acl.yml").write_text("")

    with capture_logs() as lines:
        Accounts(home)

    assert [line["event"] for line in lines] == ["no_accounts"]


# ---------------------------------------------------------------- secrets

MARK = "zqx-secret-zqx"
line = st.one_of(
    st.just(f"  secretKey: {MARK}\n"),
    st.just(f"  secretKey: '{MARK}'\n"),
    st.just(f"- secretKey: *{MARK}\n"),
    st.just(f"  secretKey: &{MARK} {MARK}\n"),
    st.just(f"  secretKey: !{MARK} x\n"),
    st.just(f'  secretKey: "{MARK}\\q"\n'),
    st.just(f"  secretKey:{MARK}\n"),
    st.just(f"  secretKey {MARK}: x\n"),
    st.just(f"  secretKey: [{MARK}\n"),
    st.sampled_from(
        ["accounts:\n", "- accessKey: ordinary\n", "  admin: maybe\n", "  topicPerms: [A]\n", "  topicPerms:\n", "  x"]
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(line, max_size=8))
def test_no_text_repeats_a_secret(home: Path, lines: list[str]) -> None:
    (home / "conf" / "plain_acl.yml").write_text("accounts:\n- accessKey: ordinary\n" + "".join(lines))

    with capture_logs() as said:
        try:
            accounts = Accounts(home)
        except BadAccessFile as fault:
            said.append({"fault": str(fault), "log_level": "error"})
        else:
            for request in (call({"AccessKey": "ordinary"}), call({})):
                said.append({"answer": refused(accounts, request), "log_level": "info"})
            said.append({"account": repr(accounts.get("ordinary")), "log_level": "info"})

    assert MARK not in repr(said)


def test_an_account_is_equal_by_its_secret_but_does_not_show_it() -> None:
    account = Account(access_key="ordinary", secret_key="marked-secret")

    assert replace(account) == account != replace(account, secret_key="other-secret")
    assert "secret" not in repr(account)
    assert str(replace(account, admin=True, permissions={"T": 12, "%RETRY%g": 8}, default_topic=4)) == (
        "account ordinary (admin, topics by default PUB, groups DENY, T=PUB|SUB, group g=SUB)"
    )
