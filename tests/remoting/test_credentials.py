"""The account of a daemon: where it is read, and that it may change while the daemon runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.protocol.signature import ACCESS_KEY, sign
from eruca.remoting.credentials import OwnAccount, read_credentials


def write(home: Path, text: str) -> None:
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "tools.yml").write_text(text)


def test_an_account_that_is_added_replaced_and_removed(tmp_path: Path) -> None:
    account = OwnAccount(str(tmp_path))
    assert account({"a": "1"}, b"") == {} and account.read() == []

    write(tmp_path, "accessKey: slave\nsecretKey: 12345678\n")
    assert account.read() == ["requests to other servers are signed by the account slave"]
    made = account({"a": "1"}, b"body")
    assert made == {ACCESS_KEY: "slave", "Signature": sign({"a": "1", ACCESS_KEY: "slave"}, b"body", "12345678")}
    assert account.read() == []

    write(tmp_path, "")
    assert account.read() == ["requests to other servers are not signed any more"]
    assert account({}, b"") == {}


def test_a_faulty_file_keeps_the_former_account_and_tells_no_secret(tmp_path: Path) -> None:
    write(tmp_path, "accessKey: slave\nsecretKey: 12345678\n")
    account = OwnAccount(str(tmp_path))

    write(tmp_path, "secretKey: 87654321\n")
    with pytest.raises(ValueError, match=r"tools\.yml needs both accessKey and secretKey, or neither") as fault:
        account.read()
    assert "87654321" not in str(fault.value)
    assert account({}, b"")[ACCESS_KEY] == "slave"
    assert "12345678" not in repr(account)


def test_without_a_home_there_is_no_account() -> None:
    account = OwnAccount(None)
    assert read_credentials(None) is None
    assert account.files() == [] and account.read() == [] and account({}, b"") == {}
