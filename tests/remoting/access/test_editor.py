"""Changes of access files: what becomes of a file, what is refused in which words, and what remains of the rest."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from eruca.protocol.bodies import DataVersion
from eruca.remoting.access.accounts import Accounts
from eruca.remoting.access.editor import AccountChange, AccountEditor, ChangeRefused, items
from eruca.remoting.access.permissions import PUB, SUB

MAIN = """\
# Accounts of the lab.
# Ask the operators.

globalWhiteRemoteAddresses: []   # nobody
accounts:
- accessKey: ordinary
  secretKey: marked-secret
  admin: yes
  monitor: true
  comment: of the orders team
  topicPerms: [A=PUB]
- accessKey: another
  secretKey: another-secret
team: {name: lab, numbers: [1, 2]}
"""
NOW = 1_700_000_000_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "conf" / "acl").mkdir(parents=True)
    (tmp_path / "conf" / "plain_acl.yml").write_text(MAIN)
    (tmp_path / "conf" / "acl" / "team.yml").write_text("accounts: [{accessKey: of-team, secretKey: its-secret}]\n")
    return tmp_path


@pytest.fixture
def editor(home: Path) -> AccountEditor:
    return AccountEditor(Accounts(home), lambda: NOW)


def main_of(home: Path) -> Any:
    return yaml.safe_load((home / "conf" / "plain_acl.yml").read_text())


def refused(editor: AccountEditor, **values: Any) -> str:
    before = [file.read_text() for file in editor.accounts.files()]
    with pytest.raises(ChangeRefused) as refusal:
        editor.update(AccountChange(**values))
    assert [file.read_text() for file in editor.accounts.files()] == before
    return str(refusal.value)


def test_a_new_account_comes_into_the_main_file(home: Path, editor: AccountEditor) -> None:
    change = AccountChange(
        access_key="newcomer",
        secret_key="012345678",
        white_address="10.0.0.*",
        default_topic="PUB|SUB",
        default_group="SUB",
        topics="A=DENY,B=SUB|PUB",
        groups="g=SUB",
    )

    editor.update(change)

    found = editor.accounts.get("newcomer")
    assert found is not None and (found.topic("A"), found.topic("B"), found.group("g")) == (1, PUB | SUB, SUB)
    assert main_of(home)["accounts"][-1] == {
        "accessKey": "newcomer",
        "secretKey": "012345678",
        "whiteRemoteAddress": "10.0.0.*",
        "admin": False,
        "defaultTopicPerm": "PUB|SUB",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["A=DENY", "B=SUB|PUB"],
        "groupPerms": ["g=SUB"],
    }
    assert main_of(home)["dataVersion"] == [{"counter": 1, "timestamp": NOW}]


def test_an_account_is_changed_where_it_is_and_keeps_what_is_not_named(home: Path, editor: AccountEditor) -> None:
    editor.update(AccountChange(access_key="ordinary", secret_key="newer-secret", groups="g=SUB"))
    editor.update(AccountChange(access_key="of-team", secret_key="newer-secret", admin=True))

    content = main_of(home)
    assert [each["accessKey"] for each in content["accounts"]] == ["another", "ordinary"]
    assert content["accounts"][1] == {
        "accessKey": "ordinary",
        "secretKey": "newer-secret",
        "admin": False,
        "monitor": True,
        "comment": "of the orders team",
        "topicPerms": ["A=PUB"],
        "groupPerms": ["g=SUB"],
    }
    assert content["team"] == {"name": "lab", "numbers": ["1", "2"]}
    assert yaml.safe_load((home / "conf" / "acl" / "team.yml").read_text()) == {
        "accounts": [{"accessKey": "of-team", "secretKey": "newer-secret", "admin": True}],
        "dataVersion": [{"counter": 1, "timestamp": NOW}],
    }


def test_the_comments_at_the_head_remain(home: Path, editor: AccountEditor) -> None:
    editor.delete("another")

    text = (home / "conf" / "plain_acl.yml").read_text()
    assert text.startswith(
        "# Accounts of the lab.\n# Ask the operators.\n\nglobalWhiteRemoteAddresses: []\naccounts:\n"
    )


def test_an_account_is_deleted_from_its_file(home: Path, editor: AccountEditor) -> None:
    editor.delete("of-team")
    editor.delete("ordinary")

    assert editor.accounts.get("of-team") is None
    assert [each["accessKey"] for each in main_of(home)["accounts"]] == ["another"]
    with pytest.raises(ChangeRefused) as refusal:
        editor.delete("ordinary")
    assert str(refusal.value) == "The accesskey[ordinary] corresponding to accessConfig has been deleted failed."


def test_white_addresses_of_a_file(home: Path, editor: AccountEditor) -> None:
    team = home / "conf" / "acl" / "team.yml"
    editor.set_white_addresses("10.0.0.*,10.0.1.{7,9}", None)
    editor.set_white_addresses("10.0.2.1", str(team))

    assert main_of(home)["globalWhiteRemoteAddresses"] == ["10.0.0.*", "10.0.1.{7,9}"]
    whites = ("10.0.0.1", "10.0.1.9", "10.0.2.1", "10.0.1.8")
    assert [editor.accounts.white(ip) for ip in whites] == [True, True, True, False]
    editor.set_white_addresses("", str(team))
    assert [editor.accounts.white(ip) for ip in whites] == [True, True, False, False]


@pytest.mark.parametrize(
    ("addresses", "file", "words"),
    [
        ("10.0.0", None, "the address pattern '10.0.0' cannot be used"),
        ("*,nowhere", None, "the address pattern 'nowhere' cannot be used"),
        ("*", "conf/none.yml", "is no access file of this broker"),
        ("*", "conf/../../etc/passwd", "The globalWhiteAddresses[*] has been updated failed."),
        ("*", "conf", "is no access file of this broker"),
    ],
)
def test_white_addresses_that_are_refused(
    home: Path, editor: AccountEditor, addresses: str, file: str | None, words: str
) -> None:
    with pytest.raises(ChangeRefused) as refusal:
        editor.set_white_addresses(addresses, str(home / file) if file else None)

    assert words in str(refusal.value)
    assert (home / "conf" / "plain_acl.yml").read_text() == MAIN


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"access_key": "short", "secret_key": "marked-secret"},
            "The accessKey=short and secretKey=(not shown) cannot be null and length should longer than 6",
        ),
        (
            {"access_key": "newcomer", "secret_key": "marked"},
            "The accessKey=newcomer and secretKey=(not shown) cannot be null and length should longer than 6",
        ),
        (
            {"access_key": "newcomer"},
            "The accessKey=newcomer and secretKey=null cannot be null and length should longer than 6",
        ),
        (
            {"topics": "A"},
            "Parse Resource format error for A.\nThe expected resource format is 'Res=Perm'. For example: topicA=SUB",
        ),
        (
            {"groups": ""},
            "Parse Resource format error for .\nThe expected resource format is 'Res=Perm'. For example: topicA=SUB",
        ),
        (
            {"topics": "A=PUB,B=ALL"},
            "Parse resource permission error for B=ALL.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.",
        ),
        ({"default_topic": "pub"}, "the permission 'pub' is not one of DENY, PUB, SUB, PUB|SUB"),
    ],
)
def test_what_4_9_refuses_is_refused_in_its_words_but_without_the_secret(
    editor: AccountEditor, values: dict[str, Any], text: str
) -> None:
    named = {"access_key": "newcomer", "secret_key": "marked-secret"} if "access_key" not in values else {}

    assert refused(editor, **named, **values) == text


def test_a_faulty_white_address_is_refused(editor: AccountEditor) -> None:
    text = refused(editor, access_key="newcomer", secret_key="marked-secret", white_address="10.0.0")

    assert "the address pattern '10.0.0' cannot be used" in text and "marked-secret" not in text


def test_a_broken_file_is_not_changed(home: Path, editor: AccountEditor) -> None:
    (home / "conf" / "plain_acl.yml").write_text("accounts: [\n")

    assert "plain_acl.yml:2:1: this is no YAML" in refused(editor, access_key="newcomer", secret_key="marked-secret")


def test_a_change_beside_a_broken_file_is_written_and_told(home: Path, editor: AccountEditor) -> None:
    (home / "conf" / "acl" / "team.yml").write_text("accounts: [\n")

    with pytest.raises(ChangeRefused, match=r"plain_acl\.yml is written, but holds only when .*team\.yml:2:1"):
        editor.delete("another")
    (home / "conf" / "acl" / "team.yml").write_text("")
    editor.accounts.read()
    assert editor.accounts.get("another") is None


def test_a_file_keeps_its_permissions_and_a_new_one_is_the_owners(home: Path, tmp_path: Path) -> None:
    main = home / "conf" / "plain_acl.yml"
    main.chmod(0o640)
    editor = AccountEditor(Accounts(home), lambda: NOW)
    editor.delete("another")
    assert stat.S_IMODE(main.stat().st_mode) == 0o640

    main.unlink()
    editor.update(AccountChange(access_key="newcomer", secret_key="marked-secret"))
    assert stat.S_IMODE(main.stat().st_mode) == 0o600
    assert sorted(file.name for file in main.parent.iterdir()) == ["acl", "plain_acl.yml"], "no copy of old secrets"


def test_the_version_counts_on(home: Path, editor: AccountEditor) -> None:
    for _ in range(3):
        editor.set_white_addresses("*", None)

    assert editor.accounts.versions[home / "conf" / "plain_acl.yml"] == DataVersion(counter=3, timestamp=NOW)


def test_lists_are_split_as_java_does_it_but_for_braces() -> None:
    assert [items(text) for text in (None, "", "a,b", "a,,", "10.0.0.{1,2},b")] == [
        None,
        [""],
        ["a", "b"],
        ["a"],
        ["10.0.0.{1,2}", "b"],
    ]
