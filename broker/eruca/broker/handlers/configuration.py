"""The broker's configuration: read it (26), and change what may change at run time (25)."""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import audit, persisting
from eruca.protocol import api, properties
from eruca.protocol.header import Empty
from eruca.protocol.headers.topics import ConfigVersion
from eruca.remoting import Call, Reply, Routes

routes: Routes[Broker] = Routes()


@routes.on(api.GET_BROKER_CONFIG)
def show(broker: Broker, call: Call[Empty]) -> Reply:
    """Every setting as ``name=value``."""
    configuration = broker.configuration
    version = ConfigVersion(version=configuration.version.encode().decode())
    return Reply(header=version, body=configuration.text().encode())


@routes.on(api.UPDATE_BROKER_CONFIG)
async def update(broker: Broker, call: Call[Empty]) -> Reply:
    """Change all given settings or none; they are in the configuration file before the answer."""
    changed = broker.configuration.change(properties.decode(call.body))
    if not changed:
        return Reply()
    broker.reconfigured()
    if changed.keys() & {"brokerPermission", "autoCreateTopicEnable"}:
        broker.topics.renew()
        await broker.registration.register_all()
    audit(call, "configuration_changed", **changed)
    with persisting("the new configuration"):
        await broker.configuration.save(changed)
    return Reply()
