"""Where the values of a configuration come from: places, files of secrets, credentials, keys that are set twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eruca.remoting.command_line import command_line
from eruca.remoting.settings import BadSetting, Finding, change, setting
from eruca.remoting.sources import Given, read


@dataclass(kw_only=True)
class Config:
    name: str = "plain"
    low: int = setting(1, live=True, at_most=100)
    high: int = setting(10, live=True)
    password: str | None = setting(None, secret=True)
    key_path: str | None = setting(None, path=True)
    namesrv_addr: str | None = setting(None, environment="NAMESRV_ADDR")


def in_order(config: Config, given: Collection[str]) -> Iterator[Finding]:
    if config.low > config.high:
        yield Finding("low", f"is above high ({config.high})", {"low", "high"} <= set(given))


def test_each_value_has_the_place_where_it_was_set(tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text("# names\nname=file\nlow=2\n")
    arguments = ["-c", str(file), "--set", "low=3", "--origins"]

    start = command_line(Config, "daemon", arguments, {"NAMESRV_ADDR": "a:1", "ERUCA_HIGH": "20"})

    assert start.origins == {"name": f"{file}:2", "low": "--set", "high": "ERUCA_HIGH", "namesrvAddr": "NAMESRV_ADDR"}
    assert start.shown == (
        f"name=file  # {file}:2\nlow=3  # --set\nhigh=20  # ERUCA_HIGH\nkeyPath=  # default\n"
        "namesrvAddr=a:1  # NAMESRV_ADDR\n"
    )
    assert read(Config, given=[Given("namesrvAddr", "b:1", "-n")]).origins == {"namesrvAddr": "-n"}


def test_a_key_that_is_set_twice_is_a_warning_with_both_lines() -> None:
    start = read(Config, text="name=a\nlow=2\nname=b\n", source="x.conf")

    assert (start.config.name, start.origins["name"]) == ("b", "x.conf:3")
    assert start.warnings == ["x.conf:3: name is set again; the value of x.conf:1 does not count"]


def test_a_secret_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush hush\n")

    start = read(Config, text=f"passwordFile={secret}\n", source="x.conf")
    assert (start.config.password, start.warnings) == ("hush hush", [])
    assert start.origins == {"password": f"{secret}, named at x.conf:1"}
    assert read(Config, environment={"ERUCA_PASSWORD_FILE": str(secret)}).config.password == "hush hush"
    shown = command_line(Config, "daemon", ["-p", "--set", f"passwordFile={secret}"]).shown
    assert shown is not None and "hush" not in shown


def test_a_credential_of_systemd_is_a_path_that_begins_with_percent_d(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hush")
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}

    config = read(Config, text="passwordFile=%d/password\nkeyPath=%d/key\n", environment=environment).config
    assert (config.password, config.key_path) == ("hush", f"{tmp_path}/key")
    with pytest.raises(BadSetting, match="there are none"):
        read(Config, text="passwordFile=%d/password\n")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "passwordFile: cannot read {file}: No such file or directory"),
        (b"", "passwordFile: {file} is empty; write the secret into it"),
        (b"\n", "passwordFile: {file} is empty; write the secret into it"),
        (b"\xff\xfe", "passwordFile: {file} holds no text in UTF-8"),
        (b"x" * 70_000, "passwordFile: cannot read {file}: it has more than 65536 bytes"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(BadSetting) as refused:
        read(Config, text=f"passwordFile={file}\n", source="x.conf")

    assert refused.value.faults == (f"x.conf:1: {sentence.format(file=file)}",)


def test_a_relative_path_to_a_secret_is_refused() -> None:
    with pytest.raises(BadSetting, match="passwordFile: 'secret' is not allowed; write an absolute path"):
        read(Config, text="passwordFile=secret\n")


def test_values_that_do_not_fit_are_a_fault_where_both_were_given_and_else_a_warning() -> None:
    with pytest.raises(BadSetting) as refused:
        read(Config, text="low=7\nhigh=5\n", source="x.conf", checks=[in_order])
    assert refused.value.faults == ("x.conf:1: low is above high (5)",)

    start = read(Config, text="low=11\n", source="x.conf", checks=[in_order])
    assert start.warnings == ["x.conf:1: low is above high (10)"]


def test_what_was_found_about_a_refused_value_is_not_said() -> None:
    with pytest.raises(BadSetting) as refused:
        read(Config, text="low=many\nhigh=0\n", source="x.conf", checks=[in_order])

    assert refused.value.faults == ("x.conf:1: low: 'many' is not allowed; write a whole number, at most 100",)


def test_a_change_after_which_values_do_not_fit_changes_nothing() -> None:
    config = Config()

    with pytest.raises(BadSetting, match=r"low is above high \(10\)"):
        change(config, {"low": "11"}, in_order, {"high"})
    assert config == Config()
    assert change(config, {"low": "11"}, in_order) == {"low": "11"}
    assert change(config, {"high": "5"}, in_order) == {"high": "5"}, "it did not fit before"
