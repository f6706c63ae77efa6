"""The settings of a cluster in one process: one list of keys for its nameserver and its broker.

Owns which of them a key belongs to, what the cluster decides itself, and where it differs from the daemons: SQL92
filters are on. Must not know what a value means (``eruca.remoting.settings``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from eruca.broker.config import BrokerConfig
from eruca.broker.services.checks import fits
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.settings import BadSetting, settings_of, unknown_key
from eruca.remoting.sources import Given, read

DEFAULTS: Final = {"brokerName": "broker-a", "enablePropertyFilter": "true"}
DECIDED: Final = {
    "listenPort": "the ports",
    "bindAddress": "the host",
    "brokerIP1": "the host",
    "brokerIP2": "the host",
    "namesrvAddr": "the nameserver",
    "storePathRootDir": "the folder",
    "kvConfigPath": "the folder",
}
"""Keys that the cluster sets by itself, and from what."""


class ClusterSettings(NamedTuple):
    """Settings of both, and sentences for the log."""

    broker: BrokerConfig
    nameserver: NamesrvConfig
    warnings: list[str]


def cluster_settings(
    given: Sequence[Given], *, defaults: Mapping[str, str] = DEFAULTS, environment: Mapping[str, str] | None = None
) -> ClusterSettings:
    """The settings of a cluster.

    A key goes to whom it belongs to, or to both; then come variables ``ERUCA_<FIELD>``, then ``defaults``. Raises
    BadSetting with every fault.
    """
    keys = {kind: settings_of(kind) for kind in (BrokerConfig, NamesrvConfig)}
    everything = keys[BrokerConfig] | keys[NamesrvConfig]
    faults = [f"{each.place}: {unknown_key(each.key, everything)}" for each in given if each.key not in everything]
    faults += [
        f"{each.place}: {each.key} follows from {DECIDED[each.key]} of the cluster: leave it out"
        for each in given
        if each.key in DECIDED
    ]
    if faults:
        raise BadSetting(*faults)
    own = {name: text for name, text in (environment or {}).items() if name not in _variables_decided()}
    complete = {"namesrvAddr": "127.0.0.1:9876", **defaults}  # the cluster will give the true one
    text = "".join(f"{key}={value}\n" for key, value in complete.items())
    broker = read(
        BrokerConfig,
        text=text,
        environment=own,
        given=[each for each in given if each.key in keys[BrokerConfig]],
        source="the defaults",
        checks=[fits],
    )
    nameserver = read(NamesrvConfig, environment=own, given=[each for each in given if each.key in keys[NamesrvConfig]])
    known = {item.variable for item in everything.values()}
    warnings = [each for each in broker.warnings + nameserver.warnings if each.partition(":")[0] not in known]
    return ClusterSettings(broker.config, nameserver.config, list(dict.fromkeys(warnings)))


def _variables_decided() -> set[str]:
    """The variables of what the cluster sets by itself."""
    kinds = (settings_of(BrokerConfig), settings_of(NamesrvConfig))
    return {item.variable for known in kinds for key, item in known.items() if key in DECIDED}
