"""Settings that all clients share, and where they come from.

Owns the names, units, defaults and checks of the shared settings, and the rule by which the nameservers are found:
argument, then a URL, then ROCKETMQ_NAMESRV_ADDR, then NAMESRV_ADDR. Clients read the environment when they start, not
when they are made: a module that makes them can be imported anywhere.
Facts: ClientConfig in 4.9.7.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from os import PathLike
from types import UnionType
from typing import Any, ClassVar, Literal

from eruca.client.compression import check_kind
from eruca.client.environment import Variable, check_names, collected, converted, known_options, told_by_variable
from eruca.client.errors import BadConfig, BadName, NoNameserver
from eruca.client.moments import moment
from eruca.client.namespaces import check_namespace, namespace_of
from eruca.protocol import names
from eruca.protocol.compression import MAX_BODY, Kind
from eruca.protocol.signature import Credentials
from eruca.remoting import Tls
from eruca.remoting.addresses import whole_address
from eruca.remoting.tls import WORDS, TlsWords

NAMESERVER_VARIABLES = ("ROCKETMQ_NAMESRV_ADDR", "NAMESRV_ADDR")
DEFAULT_NAMESERVER_PORT = 9876
HEADERS = ("JSON", "ROCKETMQ", "MSGPACK")
StartFrom = Literal["first", "last", "end", "earliest", "latest"] | int | datetime
"""Where a group without stored offsets begins."""


@known_options
@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """How long consumers wait until they try again, and for others; in seconds. Raises BadConfig.

    Args:
        rebalance: until a rebalance that could not complete is retried.
        topic: between two lookups of a subscribed topic that does not exist yet.
        send_back: until a message that could not be sent back is consumed here again.
        lock: between two attempts to regain a lost lock.
        release: for the running call of an orderly queue that another member is to get.
        rebalance_listener: for one call of ``on_assigned`` or ``on_revoked``.
        event_listener: for one call of ``on_disconnected``, ``on_reconnected`` or ``on_error``.
        standstill: how long the event loop may stand still without a warning.
    """

    rebalance: float = 1.0
    topic: float = 2.0
    send_back: float = 5.0
    lock: float = 1.0
    release: float = 1.0
    rebalance_listener: float = 10.0
    event_listener: float = 10.0
    standstill: float = 5.0

    def __post_init__(self) -> None:
        check_positive(**asdict(self))


@known_options
@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSettings:
    """What producers and consumers have in common. All times in seconds.

    Clients with equal settings on one event loop share connections, routes and heartbeats.

    Args:
        nameserver: ``host:port`` addresses, joined by ``;`` or as a sequence; None reads the environment. A name may
            stand for several addresses.
        nameserver_url: where the list is fetched from by HTTP instead, as Java does from ``jmenv.tbsite.net``.
        nameserver_interval: how often names are resolved and the list is fetched again.
        credentials: the account in whose name requests are signed, for brokers with ``aclEnable=true``.
        tls: how connections are encrypted; None: not at all.
        namespace: whose topics and groups are meant: ``T`` is ``namespace%T`` for brokers. Also taken from an address
            of the form ``http://MQ_INST_a_b.host:9876``.
        client_ip: the address that the client id names; None takes this machine's.
        instance_name: part of the client id; ``DEFAULT`` is replaced by process id and a number. Broadcasting members
            of one group and machine need one each, which stays the same: their files of offsets go by it.
        unit_name: appended to the client id, and to nameserver_url.
        unit_mode: marks messages and groups as those of a unit of a larger site (unitMode).
        vip_channel: messages are sent to the brokers' second port, two below the first (vipChannelEnabled).
        compression: how large bodies travel: ``zlib``, which every client reads, or ``lz4`` or ``zstd``, which Java
            reads from 4.9.4 on.
        max_body: bytes up to which a received body is unpacked; a larger one cannot be read.
        compression_level: of zlib and zstd; None takes their own (5 and 3).
        connect_timeout: for one connection.
        request_timeout: for what is asked of nameservers and brokers apart from messages (mqClientApiTimeout).
        route_interval: how often routes are asked for again (pollNameServerInterval).
        heartbeat_interval: interval of the heartbeats to the brokers (heartbeatBrokerInterval).
        lock_lifetime: how long a lock of an orderly consumer counts when it cannot be renewed; less than at the broker
            (there 60 s), so that no two members consume a queue at once (rocketmq.client.rebalance.lockMaxLiveTime).
        lock_interval: how often locks are renewed (rocketmq.client.rebalance.lockInterval).
        waits: how long consumers wait until they try again.
        header: how the headers of requests are written. ``JSON`` and ``ROCKETMQ`` are understood by every server
            (``rocketmq.serialize.type`` in Java); with ``MSGPACK`` each connection begins with JSON and an offer, and
            goes over to msgpack only when the server, an Eruca one, takes the offer.
        start_wait: how long ``start`` waits until nameserver, broker and routes are there, for programs that start
            together with the cluster. None: it does not wait; a client starts, or fails, by what is there.
    """

    nameserver: str | Sequence[str] | None = None
    client_ip: str | None = None
    instance_name: str = "DEFAULT"
    nameserver_url: str | None = None
    nameserver_interval: float = 30.0
    credentials: Credentials | None = None
    tls: Tls | ssl.SSLContext | None = None
    namespace: str | None = None
    unit_name: str | None = None
    unit_mode: bool = False
    vip_channel: bool = False
    compression: Kind = "zlib"
    compression_level: int | None = None
    max_body: int = MAX_BODY
    connect_timeout: float = 3.0
    request_timeout: float = 3.0
    route_interval: float = 30.0
    heartbeat_interval: float = 30.0
    lock_lifetime: float = 30.0
    lock_interval: float = 20.0
    waits: Waits = field(default_factory=Waits)
    header: Literal["JSON", "ROCKETMQ", "MSGPACK"] = "JSON"
    start_wait: float | None = None

    tls_words: ClassVar[TlsWords] = WORDS
    """How errors call the settings of TLS; a program in which people write others has a class of its own."""

    @classmethod
    def choose(cls, settings: ClientSettings | None, nameserver: str | Sequence[str] | None) -> ClientSettings:
        """``settings`` (or the defaults), with the nameservers that were given beside them.

        The environment is not asked yet (see ``found``). Raises BadConfig.
        """
        chosen = settings if settings is not None else cls()
        if not isinstance(chosen, ClientSettings):
            raise BadConfig(f"settings is of type {type(settings).__name__}: ClientSettings(...) is expected")
        return chosen.at(nameserver) if nameserver else chosen

    def found(self) -> ClientSettings:
        """These settings with the nameservers that are used: the environment's where none are given.

        Raises NoNameserver and BadConfig.
        """
        return self.at(find_nameservers(self.nameserver)) if self.nameserver or not self.nameserver_url else self

    def at(self, nameserver: str | Sequence[str]) -> ClientSettings:
        """These settings with other nameservers, and the namespace that an address may name. Raises BadConfig."""
        addresses = read_addresses(nameserver)
        namespace = self.namespace or next(filter(None, map(namespace_of, addresses)), None)
        return replace(self, nameserver=addresses, namespace=namespace)

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, *, prefix: str = "ROCKETMQ_") -> ClientSettings:
        """The settings that variables give, such as ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY.

        Each setting has a variable: the prefix and its name in capitals. Those of ``credentials`` have no further
        prefix, those of ``tls`` and ``waits`` have TLS_ and WAITS_; ROCKETMQ_TLS=true is TLS with the defaults. Secrets
        may be in files: ROCKETMQ_SECRET_KEY_FILE is a path. The nameservers are in ROCKETMQ_NAMESRV_ADDR, else
        NAMESRV_ADDR.

        Args:
            environment: where they are; default: this process's.
            prefix: another one for another cluster; then NAMESRV_ADDR does not count.

        Raises BadConfig for a value that cannot be one, and for a variable that is nearly a known one.
        """
        if prefix[-1:].isalnum():
            raise BadConfig(f'prefix="{prefix}" is not allowed: it ends with _, as "{prefix}_" does')
        variables = os.environ if environment is None else environment
        values, found = collected(variables, prefix, _variables(), _SECRETS, _MISTAKEN)
        if prefix == "ROCKETMQ_" and "nameserver" not in values and variables.get("NAMESRV_ADDR", "").strip():
            values["nameserver"] = variables["NAMESRV_ADDR"]
            found[("nameserver",)] = Variable("NAMESRV_ADDR", variables["NAMESRV_ADDR"])
        keys = values.get("credentials", ("access_key", "secret_key"))
        for key in ("access_key", "secret_key"):
            if key not in keys:
                given = next(found[place].name for place in found if place[0] == "credentials")
                raise BadConfig(f"{prefix}{key.upper()} is missing: {given} alone is no account; set both, or neither")
        try:
            on = _switch(f"{prefix}TLS", values.pop(_TLS_ON)) if _TLS_ON in values else None
            if on:
                values.setdefault("tls", {})
            elif on is False and "tls" in values:
                raise BadConfig(f"{prefix}TLS is off, but other variables set TLS up: leave them out, or switch it on")
            return cls.from_mapping(values)
        except BadConfig as error:
            raise told_by_variable(error, found, cls.from_mapping) from None

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> ClientSettings:
        """The settings of a mapping, such as a table of a TOML file; ``credentials``, ``tls`` and ``waits`` nest.

        Raises BadConfig, with the nearest name for one that is not known.
        """
        check_names(values, (each.name for each in fields(cls)))
        parts: dict[str, type] = {"credentials": Credentials, "tls": Tls, "waits": Waits}
        nested: dict[str, Any] = {}
        for name in parts.keys() & values.keys():
            value = values[name]
            try:
                nested[name] = converted(parts[name], value, f"{name}.") if isinstance(value, Mapping) else value
            except (TypeError, ValueError) as error:  # one is missing, or empty
                if isinstance(error, BadConfig):
                    raise
                raise BadConfig(f"{name} is not complete: {error}") from None
        plain = {name: value for name, value in values.items() if name not in nested}
        return replace(converted(cls, plain), **nested)

    @classmethod
    def from_toml(cls, path: str | PathLike[str], table: str = "rocketmq") -> ClientSettings:
        """The settings in a table of a TOML file; ``table`` may be nested (``tool.orders.rocketmq``).

        Raises BadConfig for a file or a table that is missing or cannot be read, and as ``from_mapping``.
        """
        import tomllib  # most programs have none

        try:
            with open(os.fspath(path), "rb") as file:
                found: Any = tomllib.load(file)
        except (OSError, ValueError) as error:
            raise BadConfig(f'the settings in "{path}" cannot be read: {error}') from None
        for name in table.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise BadConfig(f'"{path}" has no table [{table}]')
        return cls.from_mapping(found)

    def nameserver_list(self) -> tuple[str, ...]:
        """The nameservers that are given; none where they are fetched."""
        if not self.nameserver and self.nameserver_url is not None:
            return ()
        return find_nameservers(self.nameserver)

    def list_url(self) -> str | None:
        """Where the nameservers are fetched from, for this unit; None where they are given."""
        if self.nameserver or self.nameserver_url is None:
            return None
        return f"{self.nameserver_url}-{self.unit_name}?nofix=1" if self.unit_name else self.nameserver_url

    def __post_init__(self) -> None:
        if self.header not in HEADERS:
            raise BadConfig(f"header={self.header!r} is not allowed: one of {', '.join(HEADERS)} is expected")
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(each.default, float) and not _is_positive(value):
                raise BadConfig(f"{each.name}={value!r} is not allowed: a number of seconds above 0 is expected")
            kind, expected = _KINDS.get(each.name, (object, ""))
            given = value is not None or each.default is not None
            if given and not isinstance(value, kind):  # the value may be a secret: do not show it
                raise BadConfig(f"{each.name} is of type {type(value).__name__}: {expected} is expected")
        if self.start_wait is not None:
            check_positive(start_wait=self.start_wait)
        if self.nameserver is not None:
            read_addresses(self.nameserver)
            if not isinstance(self.nameserver, str):
                object.__setattr__(self, "nameserver", (*self.nameserver,))  # settings are keys of dictionaries
        if self.nameserver_url is not None and not self.nameserver_url.startswith(("http://", "https://")):
            raise BadConfig(f'nameserver_url="{self.nameserver_url}" is not allowed: an http:// address is expected')
        if self.namespace is not None:
            check_namespace(self.namespace)
        if not isinstance(self.max_body, int) or self.max_body < 1:
            raise BadConfig(f"max_body={self.max_body!r} is not allowed: a number of bytes above 0 is expected")
        check_kind(self.compression)
        _check_level(self.compression, self.compression_level)
        if self.lock_interval >= self.lock_lifetime:
            raise BadConfig(
                f"lock_interval={self.lock_interval} is not allowed: locks live for lock_lifetime={self.lock_lifetime} "
                "seconds and must be renewed before they end"
            )


_TLS_ON = "tls on"
"""The place of the switch among the values, while they are read."""


def _switch(variable: str, text: str) -> bool:
    try:
        return converted(_Switch, {"on": text}).on
    except BadConfig:
        raise BadConfig(f'{variable}="{text}" is not allowed: true or false is expected') from None


@dataclass(frozen=True)
class _Switch:
    on: bool


_SECRETS = ("ACCESS_KEY", "SECRET_KEY", "SECURITY_TOKEN", "TLS_KEY_PASSWORD")
_MISTAKEN = dict.fromkeys(
    ("NAMESERVER", "NAMESERVERS", "NAMESERVER_ADDR", "NAME_SERVER", "NAMESRV", "NAMESRVS"), "NAMESRV_ADDR"
)


def _variables() -> dict[str, tuple[str, ...]]:
    """What follows the prefix of each variable, and the path of its setting."""
    names: dict[str, tuple[str, ...]] = {each.name.upper(): (each.name,) for each in fields(ClientSettings)}
    for outer, kind, before in (("credentials", Credentials, ""), ("tls", Tls, "TLS_"), ("waits", Waits, "WAITS_")):
        del names[outer.upper()]
        names |= {f"{before}{each.name.upper()}": (outer, each.name) for each in fields(kind)}
    del names["NAMESERVER"]
    return {**names, "NAMESRV_ADDR": ("nameserver",), "TLS": (_TLS_ON,)}


_KINDS: Mapping[str, tuple[type | UnionType, str]] = {
    **dict.fromkeys(("client_ip", "instance_name", "nameserver_url", "namespace", "unit_name"), (str, "a text")),
    "credentials": (Credentials, "Credentials(access_key, secret_key)"),
    "waits": (Waits, "Waits(...)"),
    "tls": (Tls | ssl.SSLContext, "Tls(...) or an ssl.SSLContext"),
}
"""What settings have to be, unless they and their defaults are None."""


def _check_level(kind: Kind, level: int | None) -> None:
    if level is None or kind == "lz4":  # which has no levels
        return
    most = 9 if kind == "zlib" else 22
    if not isinstance(level, int) or not 1 <= level <= most:
        raise BadConfig(f"compression_level={level!r} is not allowed: 1 to {most} is expected with {kind}")


def find_nameservers(
    given: str | Sequence[str] | None, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The nameserver addresses ``host:port``, from the argument or the environment.

    Raises NoNameserver when there are none and BadConfig for an address that cannot be one.
    """
    variables = os.environ if environment is None else environment
    found = () if given else [each for each in NAMESERVER_VARIABLES if variables.get(each, "").strip()]
    try:
        addresses = read_addresses(variables[found[0]] if found else given or ())
    except BadConfig as error:
        raise BadConfig(f'{found[0]}="{variables[found[0]]}": {error}' if found else str(error)) from None
    if not addresses:
        raise NoNameserver()
    return addresses


def read_addresses(given: str | Sequence[str]) -> tuple[str, ...]:
    """The addresses ``host:port`` of a list; ``http://`` before one is left out. Raises BadConfig."""
    parts = given.replace(",", ";").split(";") if isinstance(given, str) else given
    if not isinstance(parts, Collection) or not all(isinstance(part, str) for part in parts):
        raise BadConfig(f'nameserver={given!r} is not allowed: "host:port" is expected, or a list of such texts')
    return tuple(_address(part) for part in map(str.strip, parts) if part)


def _address(text: str) -> str:
    try:
        return whole_address(text.removeprefix("http://"), DEFAULT_NAMESERVER_PORT)
    except ValueError as fault:
        raise BadConfig(f'the nameserver address "{text[:80]}" cannot be read: {fault}') from None


def check_group(group: str, kind: str) -> None:
    """Raise BadName unless ``group`` is legal for a ``kind`` (producer, consumer) and not that kind's default.

    Facts: Validators.checkGroup in 4.9.7.
    """
    check_text(group, "group")
    fault = names.group_fault(group)
    if fault is not None:
        raise BadName(fault)
    reserved = f"DEFAULT_{kind.upper()}"
    if group == reserved:
        raise BadName(f"{kind}Group can not equal {reserved}, please specify another one.")


def check_positive(**values: float) -> None:
    """Raise BadConfig for a setting, given by its name, that is not above 0."""
    for name, value in values.items():
        if not _is_positive(value):
            raise BadConfig(f"{name}={value!r} is not allowed: a number above 0 is expected")


def check_codes(**values: Collection[int]) -> None:
    """Raise BadConfig for a setting, given by its name, that is no collection of codes."""
    for name, value in values.items():
        if not isinstance(value, Collection) or not all(isinstance(each, int) for each in value):
            raise BadConfig(f"{name}={value!r} is not allowed: a list of codes, which are whole numbers, is expected")


def seconds_of(timeout: float | None, default: float) -> float:
    """The time of a call in seconds. Raises BadConfig."""
    if timeout is None:
        return default
    check_positive(timeout=timeout)
    return float(timeout)


def _is_positive(value: Any) -> bool:
    try:
        return bool(value > 0)
    except TypeError:  # no number
        return False


def check_text(name: object, what: str) -> None:
    """Raise BadName for a name, ``what`` in the sentence, of another type than a text's; None is checked elsewhere."""
    if name is not None and not isinstance(name, str):
        raise BadName(f"the specified {what} is of type {type(name).__name__}: a text is expected")


def check_suspend(hold: float, timeout: float) -> None:
    """Raise BadConfig unless a pull may take longer than a broker may hold it; both in seconds."""
    check_positive(broker_suspend_max_time=hold, consumer_timeout_when_suspend=timeout)
    if timeout <= hold:
        raise BadConfig(
            "Long polling mode, the consumer consumerTimeoutMillisWhenSuspend must greater than "
            f"brokerSuspendMaxTimeMillis ({timeout} and {hold} s)"
        )


def check_start(start_from: StartFrom) -> str | int:
    """Where to begin: "first", "last", "end", or ms since 1970. Raises BadConfig."""
    if isinstance(start_from, str) and start_from in _STARTS:
        return _STARTS[start_from]
    if start_from is None or isinstance(start_from, str):
        raise BadConfig(
            f'start_from={start_from!r} is not allowed: "first" or "earliest", "last", "end" or "latest", a datetime '
            "or ms since 1970"
        )
    try:
        return moment(start_from)
    except ValueError as error:
        raise BadConfig(f"start_from={start_from!r} is not allowed: {error}") from None


_STARTS: Mapping[str, str] = {
    **{"first": "first", "last": "last", "end": "end"},
    **{"earliest": "first", "latest": "end"},  # the words of Kafka and Spark
}


def check_topic(topic: str) -> None:
    """Raise BadName unless ``topic`` is legal (Validators.checkTopic in 4.9.7)."""
    check_text(topic, "topic")
    if not topic or topic.isspace():
        raise BadName("The specified topic is blank")
    if len(topic) > names.TOPIC_MAX_LENGTH:
        raise BadName(f"The specified topic is longer than topic max length {names.TOPIC_MAX_LENGTH}.")
    if not names.is_legal(topic):
        raise BadName(f"The specified topic[{topic}] contains illegal characters, allowing only {names.NAME_PATTERN}")
