"""The settings of access control, and what a daemon says of them at its start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eruca.remoting.access.settings import AccessSettings, access_faults
from eruca.remoting.access.yaml_nodes import BadAccessFile
from eruca.remoting.settings import BadSetting
from eruca.remoting.sources import read

ONE = "accounts: [{accessKey: someone, secretKey: its-secret}]\n"


def test_without_access_control_no_file_is_read(tmp_path: Path) -> None:
    assert AccessSettings(acl_file=str(tmp_path / "none.yml")).accounts(None) is None


def test_accounts_of_the_home_or_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    for name in ("conf/plain_acl.yml", "other.yml"):
        (tmp_path / name).write_text(ONE)
    settings = AccessSettings(acl_enable=True)

    found = settings.accounts(str(tmp_path))
    assert found is not None and found.files() == [tmp_path / "conf" / "plain_acl.yml"]
    settings.acl_file = str(tmp_path / "other.yml")
    for home in (None, "", str(tmp_path)):
        found = settings.accounts(home)
        assert found is not None and found.files() == [tmp_path / "other.yml"]


def test_access_control_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadAccessFile, match=r"there is none at .*conf/plain_acl\.yml and in .*conf/acl"):
        AccessSettings(acl_enable=True).accounts(str(tmp_path))


@pytest.mark.parametrize("address", ["0.0.0.0", "", "::", "10.0.0.7", "broker.example"])
def test_an_open_daemon_is_warned_of(address: str) -> None:
    [warning] = AccessSettings().warnings(address)

    assert warning.startswith(f"access control is off: everybody who reaches {address or '0.0.0.0'} may do everything")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.7", "::1", "[::1]", "localhost"])
def test_an_open_daemon_for_this_machine_is_not(address: str) -> None:
    assert list(AccessSettings().warnings(address)) == []


def test_what_4_9_leaves_open_is_warned_of() -> None:
    assert list(AccessSettings(acl_enable=True).warnings("0.0.0.0")) == []
    [warning] = AccessSettings(acl_enable=True, acl_compat="4.9").warnings("127.0.0.1")
    assert warning.startswith("aclCompat=4.9 leaves requests open")
    with pytest.raises(BadSetting, match=r"aclCompat: '5\.0' is not allowed"):
        read(AccessSettings, text="aclCompat=5.0")


def test_pyyaml_is_imported_with_the_first_file_only(tmp_path: Path) -> None:
    (tmp_path / "accounts.yml").write_text(ONE)
    program = (
        "import sys, eruca.broker.app, eruca.nameserver.app\n"
        "from eruca.remoting.access.settings import AccessSettings\n"
        "before = 'yaml' in sys.modules\n"
        f"AccessSettings(acl_enable=True, acl_file={str(tmp_path / 'accounts.yml')!r}).accounts(None)\n"
        "print(before, 'yaml' in sys.modules)\n"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout == "False True\n"


def test_without_pyyaml_a_sentence_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "accounts.yml").write_text(ONE)
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(BadAccessFile, match=r"needs PyYAML to read its files: pip install 'eruca\[acl\]'"):
        AccessSettings(acl_enable=True, acl_file=str(tmp_path / "accounts.yml")).accounts(None)


def test_a_check_says_what_a_start_warns_of(tmp_path: Path) -> None:
    file = tmp_path / "accounts.yml"
    file.write_text("accounts:\n  - accessKey: RocketMQ\n    secretKey: '12345678'\n")
    settings = AccessSettings(acl_enable=True, acl_file=str(file))

    (found,) = access_faults(settings, None)
    assert (found.key, found.is_fault) == ("aclFile", False)
    assert (
        found.sentence
        == f"is in doubt: {file}:2:5: the account RocketMQ has the secretKey that RocketMQ ships; change it"
    )

    file.write_text("accounts: []\n")
    (found,) = access_faults(settings, None)
    assert found == ("aclFile", f"is in doubt: there is no account in {file}, so nobody may do anything", False)
