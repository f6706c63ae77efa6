"""The form of plain_acl.yml: what a file says, what is refused with its place, and what Java would read otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eruca.protocol.bodies import DataVersion
from eruca.remoting.access.access_file import read_access_file
from eruca.remoting.access.permissions import DENY, PUB, SUB
from eruca.remoting.access.yaml_nodes import BadAccessFile

SHIPPED = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: ordinary
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
    groupPerms:
      # the group of a retry topic
      - groupC=SUB

  - accessKey: operator
    secretKey: 'a secret: 7'
    whiteRemoteAddress: 192.168.1.*
    admin: true
dataVersion:
- counter: 3
  timestamp: 1700000000000
"""


def test_a_file_as_rocketmq_ships_it() -> None:
    file = read_access_file(SHIPPED, "plain_acl.yml")

    ordinary, operator = file.accounts
    assert (ordinary.access_key, ordinary.secret_key, ordinary.admin) == ("ordinary", "12345678", False)
    assert [ordinary.topic(name) for name in ("topicA", "topicB", "topicC")] == [DENY, PUB | SUB, DENY]
    assert [ordinary.group("groupC"), ordinary.group("groupD")] == [SUB, SUB]
    assert not ordinary.white_address.matches("192.168.1.7")
    assert (operator.secret_key, operator.admin, operator.white_address.text) == ("a secret: 7", True, "192.168.1.*")
    assert [each.text for each in file.white_addresses] == ["10.10.103.*", "192.168.0.*"]
    assert file.version == DataVersion(counter=3, timestamp=1700000000000)
    assert file.warnings == []


def test_the_file_of_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    [example] = re.findall(r"(?s)```yaml\n(global.*?)```", page)

    file = read_access_file(example, "security.md")

    assert file.warnings == []
    assert [each.text for each in (*file.white_addresses, *file.broker_addresses)] == ["10.10.103.*", "10.0.0.7"]
    [account] = file.accounts
    assert [account.topic(name) for name in ("Orders", "Stock", "Others")] == [PUB | SUB, SUB, DENY]
    assert account.group("any") == SUB


def test_the_file_to_begin_with_has_the_three_accounts_of_a_cluster() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    [example] = re.findall(r"(?s)```yaml\n(accounts:.*?)```", page)
    [tools] = re.findall(r"(?s)```yaml\n(accessKey:.*?)```", page)

    file = read_access_file(example, "security.md")

    operator, brokers, orders = file.accounts
    assert file.warnings == []
    assert (operator.admin, brokers.broker, orders.admin, orders.broker) == (True, True, False, False)
    assert tools == f"accessKey: {brokers.access_key}\nsecretKey: {brokers.secret_key}\n"
    assert [orders.topic(name) for name in ("Orders", "Others")] == [PUB | SUB, DENY]


def test_keys_of_erucas_own() -> None:
    file = read_access_file(
        "brokerAddresses: [10.0.0.7]\n"
        "accounts: [{accessKey: exporter, secretKey: its-secret, monitor: true},"
        " {accessKey: broker-a, secretKey: its-secret, broker: yes}]\n",
        "acl.yml",
    )

    assert [(each.monitor, each.broker, each.admin) for each in file.accounts] == [
        (True, False, False),
        (False, True, False),
    ]
    assert file.broker_addresses[0].matches("10.0.0.7")


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "accounts:\n", "globalWhiteRemoteAddresses: []\naccounts: []\n"]
)
def test_a_file_without_accounts(text: str) -> None:
    assert read_access_file(text, "acl.yml").accounts == []


def test_an_admin_without_entries_may_do_everything_and_with_entries_what_they_say() -> None:
    account = "- {accessKey: operator, secretKey: its-secret, admin: true"
    free, bound = read_access_file(f"accounts:\n{account}}}\n{account}, topicPerms: [A=SUB]}}\n", "acl.yml").accounts

    assert [free.topic("A"), free.group("g")] == [PUB | SUB, PUB | SUB]
    assert [bound.topic("A"), bound.topic("B"), bound.group("g")] == [SUB, DENY, DENY]


ACCOUNT = "accounts:\n- accessKey: ordinary\n  secretKey: marked-secret\n"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("accounts: [\n", "acl.yml:2:1", "this is no YAML"),
        ("accounts:\n- accessKey: a\n   secretKey: marked-secret\n", "acl.yml:3:13", "this is no YAML"),
        ("accounts:\n- secretKey: *marked-secret\n", "acl.yml:2:14", "single quotes"),
        ("accounts:\n- secretKey: !marked-secret x\n  accessKey: ordinary\n", "acl.yml:2:14", "a tag of YAML"),
        ("accounts:\n- secretKey: %marked-secret\n", "acl.yml:2:14", "this is no YAML"),
        ("accounts: ordinary\n", "acl.yml:1:11", "accounts must be a list"),
        ("- accounts\n", "acl.yml:1:1", "entries like key: value"),
        ("accounts:\n- marked-secret\n", "acl.yml:2:3", "entries like key: value"),
        (ACCOUNT + "- accessKey: short\n  secretKey: marked-secret\n", "acl.yml:4:3", "7 characters or more"),
        ("accounts:\n- accessKey: ordinary\n  secretKey: marked\n", "acl.yml:2:3", "the account ordinary needs"),
        ("accounts:\n- secretKey: marked-secret\n", "acl.yml:2:3", "the account without accessKey needs"),
        ("accounts:\n- accessKey: ordinary\n  secretKey: ~\n", "acl.yml:2:3", "the account ordinary needs"),
        ("accounts:\n- accessKey: ordinary\n  secretKey: [marked-secret]\n", "acl.yml:3:14", "must be one value"),
        (ACCOUNT + "  secretKey: other-secret\n", "acl.yml:4:3", "this key twice"),
        (ACCOUNT + "  whiteRemoteAddress: 10.0.0\n", "acl.yml:4:23", "'10.0.0' cannot be used"),
        (ACCOUNT + "  admin: maybe\n", "acl.yml:4:10", "admin must be true or false"),
        (ACCOUNT + "  topicPerms: A=SUB\n", "acl.yml:4:15", "topicPerms must be a list"),
        (ACCOUNT + "  topicPerms: [A]\n", "acl.yml:4:16", "topic=permission"),
        (ACCOUNT + "  groupPerms: [A=SUB=PUB]\n", "acl.yml:4:16", "group=permission"),
        ("globalWhiteRemoteAddresses: [10.0.0.*, nowhere]\n", "acl.yml:1:40", "'nowhere' cannot be used"),
        ("dataVersion: [{counter: many}]\n", "acl.yml:1:25", "whole numbers"),
        ("accounts: []\n---\naccounts: []\n", "acl.yml:2:1", "this is no YAML"),
        ("accounts: \x07\n", "acl.yml: character 11", "no character of a YAML file"),
    ],
)
def test_a_faulty_file_is_refused_with_the_place_and_without_secrets(text: str, place: str, words: str) -> None:
    with pytest.raises(BadAccessFile) as refused:
        read_access_file(text, "acl.yml")

    assert str(refused.value).startswith(f"{place}: ") and words in str(refused.value)
    assert "marked-secret" not in str(refused.value)


@pytest.mark.parametrize(
    "secret",
    [
        "01234567",
        "1234567e5",
        "1_234_567",
        "0x1234567",
        "1234567.",
        "2024-01-31",
        "12:30:45.678",
        "0b1010101",
        "+1234567",
    ],
)
def test_a_secret_is_its_text_and_java_that_reads_another_is_told_of(secret: str) -> None:
    plain = read_access_file(f"accounts:\n- accessKey: ordinary\n  secretKey: {secret}\n", "acl.yml")
    quoted = read_access_file(f"accounts:\n- accessKey: ordinary\n  secretKey: '{secret}'\n", "acl.yml")

    assert plain.accounts[0].secret_key == quoted.accounts[0].secret_key == secret
    [warning] = plain.warnings
    assert warning.startswith("acl.yml:3:14: Java's broker reads another secretKey here")
    assert secret not in warning
    assert quoted.warnings == []


@pytest.mark.parametrize(
    "secret", ["12345678", "012345678", "-1234567", "its-secret", "00ab-secret", "10.0.0.7", "truehearted"]
)
def test_a_secret_that_java_reads_alike_is_no_warning(secret: str) -> None:
    file = read_access_file(f"accounts:\n- accessKey: ordinary\n  secretKey: {secret}\n", "acl.yml")

    assert (file.accounts[0].secret_key, file.warnings) == (secret, [])


def test_what_is_read_but_looks_wrong() -> None:
    file = read_access_file(
        "globalWhiteRemoteAdresses: ['*']\n"
        "accounts:\n"
        "- accessKey: RocketMQ\n"
        "  secretKey: 12345678\n"
        "  defaultTopicPerm: pub\n"
        "  topicPerms: [A=ALL]\n"
        "  topicPerm: [B=PUB]\n"
        "  secretKey marked-secret: x\n",
        "acl.yml",
    )

    assert file.warnings == [
        "acl.yml:1:1: the key globalWhiteRemoteAdresses is not known and is ignored",
        "acl.yml:5:21: this is no permission, and counts as DENY as in 4.9; write one of DENY, PUB, SUB, PUB|SUB",
        "acl.yml:6:16: this is no permission, and counts as DENY as in 4.9; write one of DENY, PUB, SUB, PUB|SUB",
        "acl.yml:7:3: an account knows no key topicPerm, which is ignored",
        "acl.yml:8:3: an account knows no key, which is ignored",
        "acl.yml:3:3: the account RocketMQ has the secretKey that RocketMQ ships; change it",
    ]
    assert file.white_addresses == []


def test_no_secret_in_a_repr() -> None:
    file = read_access_file(ACCOUNT, "acl.yml")

    assert "marked-secret" not in repr(file) and file.accounts[0].secret_key == "marked-secret"
