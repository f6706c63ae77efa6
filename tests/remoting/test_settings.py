"""A daemon's configuration: keys from fields, values from texts, and what may change later."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import properties
from eruca.remoting.command_line import command_line
from eruca.remoting.settings import BadSetting, change, setting, settings_of, values
from eruca.remoting.sources import Given, read


class FlushDiskType(StrEnum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(kw_only=True)
class StoreConfig:
    store_path_root_dir: str = setting("/store", path=True)
    flush_disk_type: FlushDiskType = setting(FlushDiskType.ASYNC_FLUSH, live=True, important=True)
    disk_ratio: float = setting(0.75, live=True, at_least=0.1, at_most=0.95)


@dataclass(kw_only=True)
class BrokerConfig:
    broker_cluster_name: str = setting("DefaultCluster", important=True)
    broker_ip1: str = setting("", key="brokerIP1")
    listen_port: int = setting(10911, at_least=0, at_most=65535)
    broker_id: int = setting(0, at_least=0)
    auto_create_topic_enable: bool = setting(True, live=True)
    delete_when: str = setting("04", one_of=("04", "05"), live=True)
    secret_key: str = setting("hush", secret=True)
    quota: int | None = setting(None, live=True)
    namesrv_addr: str | None = setting(None, environment="NAMESRV_ADDR")
    store: StoreConfig = field(default_factory=StoreConfig)


def test_keys_are_the_fields_in_camel_case_nested_ones_included() -> None:
    assert list(settings_of(BrokerConfig)) == [
        "brokerClusterName",
        "brokerIP1",
        "listenPort",
        "brokerId",
        "autoCreateTopicEnable",
        "deleteWhen",
        "secretKey",
        "quota",
        "namesrvAddr",
        "storePathRootDir",
        "flushDiskType",
        "diskRatio",
    ]


def test_an_operators_file_is_read_as_it_is() -> None:
    start = read(
        BrokerConfig,
        text="# the broker\nbrokerClusterName : east\nbrokerIP1=10.0.0.7\nlistenPort = 0 \n"
        "autoCreateTopicEnable=False\nflushDiskType SYNC_FLUSH\ndiskRatio=.5\nquota=\\\n  7\n",
    )

    config = start.config
    assert (config.broker_cluster_name, config.broker_ip1) == ("east", "10.0.0.7")
    assert (config.listen_port, config.auto_create_topic_enable) == (0, False)
    assert config.store == StoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, disk_ratio=0.5)
    assert config.quota == 7
    assert start.warnings == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("listenPort=65536", "listenPort: '65536' is not allowed; write a whole number from 0 to"),
        ("listenPort=ten", "listenPort: 'ten' is not allowed; write a whole number"),
        ("listenPort=1_0", "listenPort: '1_0' is not allowed"),
        ("listenPort=", "listenPort: '' is not allowed"),
        ("brokerId=-1", "brokerId: '-1' is not allowed; write a whole number, at least 0"),
        ("autoCreateTopicEnable=yes", "autoCreateTopicEnable: 'yes' is not allowed; write true or"),
        ("flushDiskType=FAST", "'FAST' is not allowed; write one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("diskRatio=nan", "diskRatio: 'nan' is not allowed; write a number from 0.1 to 0.95"),
        ("deleteWhen=99", "deleteWhen: '99' is not allowed; write one of 04, 05"),
        ("quota=x", "quota: 'x' is not allowed; write a whole number"),
        ("brokerClusterName=\\u00", "broker.conf: line 1: "),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_what_is_allowed(line: str, sentence: str) -> None:
    with pytest.raises(BadSetting) as refused:
        read(BrokerConfig, text=line, source="broker.conf")

    assert sentence in str(refused.value)


def test_unknown_keys_are_warned_about_by_name_with_the_nearest_known_one() -> None:
    start = read(
        BrokerConfig,
        text="brokerClustername=a\nrocketmqHome=b\nbrokerId=0",
        environment={"ERUCA_LISTEN_PROT": "1", "PATH": "x"},
        source="broker.conf",
    )

    assert start.warnings == [
        "broker.conf:1: unknown key brokerClustername (did you mean brokerClusterName?); it is ignored",
        "broker.conf:2: unknown key rocketmqHome; it is ignored",
        "ERUCA_LISTEN_PROT: unknown key ERUCA_LISTEN_PROT (did you mean ERUCA_LISTEN_PORT?); it is ignored",
    ]
    assert start.config == BrokerConfig()


def test_a_value_that_has_no_effect_is_warned_about_and_its_default_is_not() -> None:
    @dataclass(kw_only=True)
    class Promising:
        acl_enable: bool = setting(False, unmet="everybody may do everything")

    assert read(Promising, text="aclEnable=false").warnings == []
    assert read(Promising, given=[Given("aclEnable", "false", "--set")], text="aclEnable=true").warnings == []
    assert read(Promising, text="aclEnable = true", source="x.conf").warnings == [
        "x.conf:1: aclEnable=true has no effect: everybody may do everything"
    ]


def test_a_blank_at_the_end_of_a_text_is_kept_as_java_keeps_it_and_warned_about() -> None:
    start = read(BrokerConfig, text="brokerClusterName=east \n", source="x.conf")

    assert start.config.broker_cluster_name == "east "
    assert start.warnings == [
        "x.conf:1: the value of brokerClusterName begins or ends with a blank, which is part of it: 'east '"
    ]


def test_command_line_wins_over_environment_over_file_over_the_fields_own_variable() -> None:
    def broker(file: str, environment: dict[str, str], flag: str = "") -> str | None:
        given = [Given("namesrvAddr", flag, "-n")] if flag else []
        start = read(BrokerConfig, text=file, environment=environment, given=given)
        assert start.warnings == []
        return start.config.namesrv_addr

    own = {"NAMESRV_ADDR": "own:1"}
    prefixed = own | {"ERUCA_NAMESRV_ADDR": "prefixed:1"}
    assert broker("", {}) is None
    assert broker("", own) == "own:1"
    assert broker("namesrvAddr=file:1", own) == "file:1"
    assert broker("namesrvAddr=file:1", prefixed) == "prefixed:1"
    assert broker("namesrvAddr=file:1", prefixed, "flag:1") == "flag:1"


def test_a_running_configuration_changes_where_it_may() -> None:
    config = BrokerConfig()
    store = config.store

    changed = change(config, {"flushDiskType": "SYNC_FLUSH", "autoCreateTopicEnable": "FALSE"})

    assert changed == {"flushDiskType": "SYNC_FLUSH", "autoCreateTopicEnable": "false"}
    assert store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert not config.auto_create_topic_enable


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("listenPort", "1", "listenPort cannot be changed while the daemon runs; set it in"),
        ("storePathRootDir", "/etc", "storePathRootDir cannot be changed while the daemon runs"),
        ("secretKey", "x", "secretKey cannot be changed while the daemon runs"),
        ("diskRatio", "2", "diskRatio: '2' is not allowed"),
        ("diskRatoi", "2", "unknown key diskRatoi (did you mean diskRatio?)"),
    ],
)
def test_a_refused_change_changes_nothing(key: str, text: str, sentence: str) -> None:
    config = BrokerConfig()

    with pytest.raises(BadSetting) as refused:
        change(config, {"autoCreateTopicEnable": "false", key: text})

    assert sentence in str(refused.value)
    assert config == BrokerConfig()


def test_a_path_or_a_secret_cannot_even_be_declared_changeable() -> None:
    with pytest.raises(TypeError, match="cannot be live"):
        setting("x", live=True, path=True)
    with pytest.raises(TypeError, match="cannot be live"):
        setting("x", live=True, secret=True)


def test_secrets_are_neither_shown_nor_named_in_a_refusal() -> None:
    @dataclass
    class Keys:
        pin: int = setting(1234, secret=True)

    assert values(Keys()) == {}
    with pytest.raises(BadSetting) as refused:
        read(Keys, text="pin=12x4")
    assert str(refused.value) == "the configuration:1: pin: (not shown) is not allowed; write a whole number"


def test_two_fields_with_one_key_and_types_without_a_text_are_mistakes_of_the_class() -> None:
    @dataclass
    class Twice:
        broker_id: int = 0
        other: int = setting(0, key="brokerId")

    @dataclass
    class Listed:
        names: list[str] = field(default_factory=list)

    with pytest.raises(TypeError, match="key brokerId"):
        settings_of(Twice)
    with pytest.raises(TypeError, match=r"Listed\.names"):
        settings_of(Listed)


PRINTABLE = st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"))


@given(
    st.builds(
        BrokerConfig,
        broker_cluster_name=st.text(PRINTABLE, max_size=20),
        listen_port=st.integers(0, 65535),
        auto_create_topic_enable=st.booleans(),
        quota=st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
        store=st.builds(
            StoreConfig,
            flush_disk_type=st.sampled_from(FlushDiskType),
            disk_ratio=st.floats(0.1, 0.95),
        ),
    )
)
def test_what_is_shown_reads_back_as_the_same_configuration(config: BrokerConfig) -> None:
    shown = properties.write(values(config))

    again = read(BrokerConfig, text=shown).config
    assert values(again) == values(config)


def test_the_flags_that_operators_know(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerClusterName=east\nlistenPort=1\n")

    start = command_line(
        BrokerConfig,
        "mqbroker",
        ["-c", str(file), "-n", "a:9876;b:9876", "--set", "listenPort=0", "-m"],
        {"NAMESRV_ADDR": "ignored:1"},
    )

    assert start.config.namesrv_addr == "a:9876;b:9876"
    assert (start.config.broker_cluster_name, start.config.listen_port) == ("east", 0)
    assert start.file == str(file)
    assert start.shown == "brokerClusterName=east\nflushDiskType=ASYNC_FLUSH\n"


def test_p_prints_every_setting_but_secrets() -> None:
    shown = command_line(BrokerConfig, "mqbroker", ["-p"]).shown

    assert shown is not None
    assert properties.parse(shown) == values(BrokerConfig())
    assert "hush" not in shown


def test_a_missing_file_and_a_broken_assignment_are_one_sentence_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "no.conf")

    with pytest.raises(BadSetting, match=r"cannot read .*no\.conf: No such file or directory"):
        command_line(BrokerConfig, "mqbroker", ["-c", missing])
    with pytest.raises(SystemExit) as stopped:
        command_line(BrokerConfig, "mqbroker", ["--set", "listenPort"])
    assert stopped.value.code == 2
    assert "argument --set: takes KEY=VALUE, not 'listenPort'" in capsys.readouterr().err


def test_an_unknown_flag_stops_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command_line(BrokerConfig, "mqbroker", ["--nameserver", "x"])

    assert stopped.value.code == 2
    assert "mqbroker: error: unrecognized arguments: --nameserver" in capsys.readouterr().err


def test_help_says_how_it_runs_and_each_exit_code_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command_line(BrokerConfig, "mqbroker", ["--help"])

    told = " ".join(capsys.readouterr().out.split())
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    codes = page.partition("| exit code | |\n|---|---|\n")[2].partition("\n\n")[0]
    assert stopped.value.code == 0
    assert "Runs until SIGTERM or Ctrl-C" in told
    assert sorted(re.findall(r"\b(\d+): ", told)) == sorted(re.findall(r"(?m)^\| (\d+) \|", codes))


def test_a_class_without_nameservers_has_no_n_flag() -> None:
    with pytest.raises(SystemExit):
        command_line(StoreConfig, "mqnamesrv", ["-n", "a:1"])
