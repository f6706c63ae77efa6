"""What each request to the nameserver needs of an account: the table of access control.

Owns the rule of every code that the nameserver serves. Must not know how accounts are checked
(``eruca.remoting.access``). RocketMQ 4.9.7 checks nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping

from eruca.nameserver.handlers import NameserverTables
from eruca.protocol.codes import RequestCode
from eruca.remoting.access.rules import Need, Rule, table

_C = RequestCode

RULES: Mapping[int, Rule[NameserverTables]] = table(
    # A broker asks for the addresses of those with its name: they are its slaves.
    (Rule(need=Need.EITHER, topic="topic", also=frozenset({Need.MONITOR, Need.BROKER})), (_C.GET_ROUTEINFO_BY_TOPIC,)),
    (
        Rule(need=Need.MONITOR),
        (
            _C.GET_KV_CONFIG,
            _C.GET_BROKER_CLUSTER_INFO,
            _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            _C.GET_KVLIST_BY_NAMESPACE,
            _C.GET_TOPICS_BY_CLUSTER,
            _C.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            _C.GET_UNIT_TOPIC_LIST,
            _C.GET_HAS_UNIT_SUB_TOPIC_LIST,
            _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        ),
    ),
    (
        Rule(need=Need.ADMIN),
        (
            _C.PUT_KV_CONFIG,
            _C.DELETE_KV_CONFIG,
            _C.WIPE_WRITE_PERM_OF_BROKER,
            _C.DELETE_TOPIC_IN_NAMESRV,
            _C.UPDATE_NAMESRV_CONFIG,
            _C.GET_NAMESRV_CONFIG,
            _C.ADD_WRITE_PERM_OF_BROKER,
        ),
    ),
    (Rule(need=Need.BROKER), (_C.REGISTER_BROKER, _C.UNREGISTER_BROKER, _C.QUERY_DATA_VERSION)),
)
