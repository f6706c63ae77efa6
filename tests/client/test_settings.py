"""Settings from the environment, from a mapping and from a TOML file; wrong names are refused, secrets never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eruca.client import ClientSettings, Credentials, Message, Producer, PushConsumer, Tls, Waits, sync
from eruca.client.errors import BadConfig, NoNameserver
from tests.client.conftest import Lab

ACCOUNT = {"ROCKETMQ_ACCESS_KEY": "orders", "ROCKETMQ_SECRET_KEY": "quite secret"}


def test_an_empty_environment_gives_the_defaults() -> None:
    assert ClientSettings.from_env({}) == ClientSettings()


def test_every_kind_of_value(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("quite secret\n")
    settings = ClientSettings.from_env(
        {
            "ROCKETMQ_NAMESRV_ADDR": "a:1;b:2",
            "ROCKETMQ_ACCESS_KEY": "orders",
            "ROCKETMQ_SECRET_KEY_FILE": str(secret),
            "ROCKETMQ_NAMESPACE": "blue",
            "ROCKETMQ_INSTANCE_NAME": "one",
            "ROCKETMQ_TLS_CA_FILE": "/etc/ca.pem",
            "ROCKETMQ_TLS_CHECK_HOSTNAME": "false",
            "ROCKETMQ_REQUEST_TIMEOUT": "1.5",
            "ROCKETMQ_VIP_CHANNEL": "true",
            "ROCKETMQ_COMPRESSION": "lz4",
            "ROCKETMQ_WAITS_TOPIC": "0.5",
            "ROCKETMQ_UNIT_NAME": " ",
            "UNRELATED": "x",
        }
    )
    assert settings == ClientSettings(
        nameserver="a:1;b:2",
        credentials=Credentials("orders", "quite secret"),
        namespace="blue",
        instance_name="one",
        tls=Tls(ca_file="/etc/ca.pem", check_hostname=False),
        request_timeout=1.5,
        vip_channel=True,
        compression="lz4",
        waits=Waits(topic=0.5),
    )
    assert "quite secret" not in repr(settings)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"NAMESRV_ADDR": "n:1"}, ClientSettings(nameserver="n:1")),
        ({"NAMESRV_ADDR": "n:1", "ROCKETMQ_NAMESRV_ADDR": "r:1"}, ClientSettings(nameserver="r:1")),
        ({"ROCKETMQ_TLS": "true"}, ClientSettings(tls=Tls())),
        ({"ROCKETMQ_TLS": "1", "ROCKETMQ_TLS_CA_FILE": "c"}, ClientSettings(tls=Tls(ca_file="c"))),
        ({"ROCKETMQ_TLS": "false"}, ClientSettings()),
        # Others have variables with this prefix, too: Kubernetes for a service named rocketmq, the servers.
        (
            {"ROCKETMQ_HOME": "/opt", "ROCKETMQ_PORT_9876_TCP": "tcp://x", "ROCKETMQ_SERVICE_HOST": "x"},
            ClientSettings(),
        ),
    ],
)
def test_the_environment(variables: dict[str, str], expected: ClientSettings) -> None:
    assert ClientSettings.from_env(variables) == expected


def test_a_prefix_of_ones_own() -> None:
    variables = {"NAMESRV_ADDR": "n:1", "BILLING_NAMESPACE": "blue", "ROCKETMQ_NAMESPACE": "red"}
    assert ClientSettings.from_env(variables, prefix="BILLING_") == ClientSettings(namespace="blue")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"ROCKETMQ_SECRETKEY": "s3cret"}, "ROCKETMQ_SECRETKEY is not known: did you mean ROCKETMQ_SECRET_KEY[?]"),
        ({"ROCKETMQ_NAMESPCE": "x"}, "did you mean ROCKETMQ_NAMESPACE[?]"),
        (
            {"ROCKETMQ_REQUEST_TIMEOUT": "soon"},
            '^ROCKETMQ_REQUEST_TIMEOUT="soon": request_timeout is not allowed: a number is expected$',
        ),
        ({"ROCKETMQ_REQUEST_TIMEOUT": "-1"}, '^ROCKETMQ_REQUEST_TIMEOUT="-1": request_timeout=-1.0 is not allowed'),
        ({"ROCKETMQ_COMPRESSION": "br"}, '^ROCKETMQ_COMPRESSION="br": .*: one of zlib, lz4, zstd is expected$'),
        (
            {"ROCKETMQ_LOCK_INTERVAL": "50", "ROCKETMQ_NAMESPACE": "x"},
            '^ROCKETMQ_LOCK_INTERVAL="50": lock_interval=50.0',
        ),
        ({"ROCKETMQ_TLS": "maybe"}, '^ROCKETMQ_TLS="maybe" is not allowed: true or false is expected$'),
        (
            {"ROCKETMQ_TLS_VERIFY": "7"},
            '^ROCKETMQ_TLS_VERIFY="7": tls.verify is not allowed: true or false is ex',
        ),
        ({"ROCKETMQ_NAMESERVER": "a:1"}, "did you mean ROCKETMQ_NAMESRV_ADDR[?]"),
        ({"ROCKETMQ_NAMESRV": "a:1"}, "did you mean ROCKETMQ_NAMESRV_ADDR[?]"),
        (
            {"ROCKETMQ_ACCESS_KEY": "s3cret"},
            "^ROCKETMQ_SECRET_KEY is missing: ROCKETMQ_ACCESS_KEY alone is no account; set both, or neither$",
        ),
        ({"ROCKETMQ_SECRET_KEY": "s3cret"}, "^ROCKETMQ_ACCESS_KEY is missing: ROCKETMQ_SECRET_KEY alone is no account"),
        (
            {**ACCOUNT, "ROCKETMQ_SECRET_KEY_FILE": "/f"},
            "ROCKETMQ_SECRET_KEY_FILE and ROCKETMQ_SECRET_KEY are both set",
        ),
        ({"ROCKETMQ_SECRET_KEY_FILE": "/no/such"}, 'ROCKETMQ_SECRET_KEY_FILE: the file "/no/such" cannot be read'),
        ({"ROCKETMQ_TLS": "false", "ROCKETMQ_TLS_CA_FILE": "c"}, "ROCKETMQ_TLS is off, but other variables set TLS up"),
        ({"ROCKETMQ_WAITS_TOPIC": "-1"}, '^ROCKETMQ_WAITS_TOPIC="-1": topic=-1.0 is not allowed'),
        ({"ROCKETMQ_NAMESRV_ADDR": "http://a:1/x"}, '^ROCKETMQ_NAMESRV_ADDR="http://a:1/x": the nameserver address'),
        ({"NAMESRV_ADDR": "a:b"}, '^NAMESRV_ADDR="a:b": the nameserver address "a:b" cannot be read'),
    ],
)
def test_wrong_variables(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence) as raised:
        ClientSettings.from_env(variables)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"nameservr": "a:1"}, "^nameservr is not known: did you mean nameserver[?]$"),
        ({"colour": "a:1"}, "^colour is not known: known are client_ip, "),
        ({"tls": {"ca": "x"}}, r"^tls.ca is not known: "),
        ({"credentials": {"access_key": "a", "secretkey": "s3cret"}}, r"did you mean credentials.secret_key[?]"),
        ({"request_timeout": [1]}, "request_timeout is not allowed: a number is expected"),
        ({"credentials": {"access_key": "s3cret"}}, "^credentials.secret_key is missing$"),
        ({"tls": "yes"}, "tls is of type str: Tls"),
        ({"credentials": {"access_key": "", "secret_key": "s3cret"}}, "credentials is not complete: the access_key is"),
    ],
)
def test_wrong_mappings(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence) as raised:
        ClientSettings.from_mapping(values)
    assert "s3cret" not in str(raised.value)


def test_a_table_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    file.write_text(
        '[tool.orders.rocketmq]\nnameserver = ["a:1", "b:2"]\nrequest_timeout = 5\n'
        'credentials = {access_key = "orders", secret_key = "quite secret"}\n'
    )
    settings = ClientSettings.from_toml(file, "tool.orders.rocketmq")
    assert settings.nameserver_list() == ("a:1", "b:2") and settings.request_timeout == 5.0
    assert settings.credentials == Credentials("orders", "quite secret")
    with pytest.raises(BadConfig, match=r"has no table \[rocketmq\]"):
        ClientSettings.from_toml(file)
    with pytest.raises(BadConfig, match="cannot be read"):
        ClientSettings.from_toml(tmp_path / "missing.toml")
    file.write_text("[")
    with pytest.raises(BadConfig, match="cannot be read"):
        ClientSettings.from_toml(file)


async def test_clients_are_made_without_the_environment_and_read_it_at_their_start(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    producer, consumer = Producer("p"), PushConsumer("g", print).subscribe("T")
    for client in (producer, consumer):
        with pytest.raises(NoNameserver):
            await client.start()
    monkeypatch.setenv("NAMESRV_ADDR", lab.address)
    async with producer, consumer:
        await producer.send(Message("T", b"x"))


def test_so_are_blocking_clients(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    producer = sync.Producer("p")
    monkeypatch.setenv("NAMESRV_ADDR", address)
    with producer:
        producer.send(Message("T", b"x"))


def test_a_list_of_nameservers_is_a_setting_as_any_other() -> None:
    addresses = ["a:1", "b:2"]
    settings = ClientSettings(nameserver=addresses)
    assert (
        settings == ClientSettings(nameserver=("a:1", "b:2")) == ClientSettings.from_mapping({"nameserver": addresses})
    )
    assert len({settings, ClientSettings(nameserver=("a:1", "b:2"))}) == 1, "clients with equal settings share"
    addresses.clear()
    assert settings.nameserver_list() == ("a:1", "b:2")
    with pytest.raises(BadConfig, match=r"^nameserver is not allowed: a text or a list of texts is expected$"):
        ClientSettings.from_mapping({"nameserver": 5})
