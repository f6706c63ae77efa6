"""One request of each code that broker and nameserver serve, about the topic ``T``, the group ``G`` and the message
at an offset.

Owns the shape of the requests: complete and sound, so that only their senders decide what becomes of them. Knows no
accounts.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

TOPIC, GROUP = "T", "G"
CLIENT = "10.0.0.1@client"


class Asked(NamedTuple):
    """A request: its fields and its body."""

    fields: dict[str, Any]
    body: bytes = b""


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


_TOPIC = {"topic": TOPIC}
_QUEUE = {"topic": TOPIC, "queueId": 0}
_OF_GROUP = {"consumerGroup": GROUP}
_LONG = {
    "producerGroup": "p",
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 1,
    "flag": 0,
}
_SHORT = {"a": "p", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "K\x01v\x02"}
_PULL = {
    **_QUEUE,
    **_OF_GROUP,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}
_SUBSCRIPTION = {"topic": TOPIC, "subString": "*", "subVersion": 7, "tagsSet": [], "codeSet": []}
_HEARTBEAT = _json(
    {
        "clientID": CLIENT,
        "consumerDataSet": [
            {
                "groupName": GROUP,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [_SUBSCRIPTION],
                "unitMode": False,
            }
        ],
        "producerDataSet": [],
    }
)
_LOCKS = _json({"clientId": CLIENT, "consumerGroup": GROUP, "mqSet": [{**_QUEUE, "brokerName": "broker-a"}]})
_BATCH = bytes.fromhex("0000001a 00000000 00000000 00000000 00000004 626f6479 0000".replace(" ", ""))


def of_broker(offset: int = 0, message_id: str = "0" * 32) -> dict[int, Asked]:
    """The requests of the broker; some are about the message that begins at ``offset`` of the commit log."""
    return {
        10: Asked(_LONG, b"body"),
        310: Asked(_SHORT, b"body"),
        320: Asked({**_SHORT, "m": "true"}, _BATCH),
        324: Asked(_LONG, b"body"),
        325: Asked(_SHORT, b"body"),
        37: Asked(
            {
                "producerGroup": "p",
                "tranStateTableOffset": 0,
                "commitLogOffset": offset,
                "commitOrRollback": 12,
                "fromTransactionCheck": "false",
                "msgId": message_id,
            }
        ),
        11: Asked(_PULL),
        361: Asked(_PULL),
        15: Asked({**_QUEUE, **_OF_GROUP, "commitOffset": 0}),
        14: Asked({**_QUEUE, **_OF_GROUP}),
        34: Asked({}, _HEARTBEAT),
        41: Asked({}, _LOCKS),
        42: Asked({}, _LOCKS),
        46: Asked({}, _json({"clientId": CLIENT, "group": GROUP, "subscriptionData": _SUBSCRIPTION})),
        303: Asked({**_TOPIC, "group": GROUP}),
        36: Asked(
            {
                "offset": offset,
                "group": GROUP,
                "delayLevel": 0,
                "originMsgId": message_id,
                "originTopic": TOPIC,
                "unitMode": "false",
                "maxReconsumeTimes": 16,
            }
        ),
        35: Asked({**_OF_GROUP, "clientID": CLIENT}),
        38: Asked(_OF_GROUP),
        203: Asked(_OF_GROUP),
        208: Asked(_OF_GROUP),
        223: Asked({**_TOPIC, "group": GROUP}),
        307: Asked({**_OF_GROUP, "clientId": CLIENT, "jstackEnable": "false"}),
        12: Asked({**_TOPIC, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 42}),
        321: Asked({**_QUEUE, "index": 0, "count": 1}),
        33: Asked({"offset": offset}),
        29: Asked({**_QUEUE, "timestamp": 1}),
        30: Asked(_QUEUE),
        31: Asked(_QUEUE),
        32: Asked(_QUEUE),
        202: Asked(_TOPIC),
        300: Asked(_TOPIC),
        308: Asked({**_TOPIC, "compareGroup": GROUP, "filterGroups": ""}),
        351: Asked(_TOPIC),
        21: Asked({}),
        28: Asked({}),
        43: Asked({}),
        45: Asked({}),
        52: Asked({}),
        201: Asked({}),
        204: Asked({"producerGroup": "p"}),
        305: Asked({}),
        315: Asked({"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}),
        317: Asked({"isOrder": "false"}),
        328: Asked({}),
        352: Asked({"group": GROUP}),
        907: Asked({}),
        1002: Asked({"clusterName": "C", "brokerName": "B", "brokerId": 2}),
        1005: Asked({}),
        1006: Asked({}, b'["B"]'),
        1007: Asked({}),
        17: Asked(
            {
                **_TOPIC,
                "defaultTopic": "TBW102",
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": "false",
            }
        ),
        25: Asked({}, b"traceOn=true\n"),
        26: Asked({}),
        50: Asked({"accessKey": "added-account", "secretKey": "added-secret", "admin": "false"}),
        51: Asked({"accessKey": "added-account"}),
        53: Asked({"globalWhiteAddrs": "127.0.0.2"}),
        54: Asked({}),
        200: Asked({}, _json({"groupName": GROUP, "consumeEnable": True})),
        207: Asked({"groupName": "Other", "removeOffset": "false"}),
        215: Asked({"topic": "Other"}),
        222: Asked({**_TOPIC, "group": GROUP, "timestamp": 1, "isForce": "true"}),
        306: Asked({}),
        309: Asked({**_OF_GROUP, "clientId": CLIENT, "msgId": message_id}),
        314: Asked({"srcGroup": GROUP, "destGroup": "Other", **_TOPIC, "offline": "false"}),
        316: Asked({}),
        323: Asked({"msgId": message_id}),
        329: Asked({}),
    }


_BROKER = {
    "brokerName": "broker-x",
    "brokerAddr": "127.0.0.1:20911",
    "clusterName": "Lab",
    "brokerId": 0,
}


def of_nameserver() -> dict[int, Asked]:
    """The requests of the nameserver."""
    key = {"namespace": "N", "key": "k"}
    return {
        103: Asked({**_BROKER, "haServerAddr": "127.0.0.1:20912", "compressed": "false", "bodyCrc32": 0}),
        322: Asked(_BROKER, b'{"counter":1,"timestamp":1}'),
        104: Asked(_BROKER),
        105: Asked(_TOPIC),
        106: Asked({}),
        100: Asked({**key, "value": "v"}),
        101: Asked(key),
        102: Asked(key),
        205: Asked({"brokerName": "broker-x"}),
        327: Asked({"brokerName": "broker-x"}),
        206: Asked({}),
        216: Asked({"topic": "Other"}),
        219: Asked({"namespace": "N"}),
        224: Asked({"cluster": "Lab"}),
        304: Asked({}),
        311: Asked({}),
        312: Asked({}),
        313: Asked({}),
        318: Asked({}, b"productEnvName=center\n"),
        319: Asked({}),
    }
