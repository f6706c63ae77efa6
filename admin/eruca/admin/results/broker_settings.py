"""The settings of brokers that a file of a cluster may have: those that change at run time, with their defaults.

Owns the table; ``tests/house`` compares it with the broker's own. What makes a broker this one (name, role, addresses,
paths) is no setting of a cluster, nor is what only a start reads. Apache's brokers take these settings as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

Value = bool | int | float | str
"""Of a setting; a text such as ``04`` is no number."""

DEFAULTS: Final = {
    "accessMessageInMemoryMaxRatio": "40",
    "autoCreateSubscriptionGroup": "true",
    "autoCreateTopicEnable": "true",
    "brokerFastFailureEnable": "true",
    "brokerPermission": "6",
    "cleanFileForciblyEnable": "true",
    "defaultQueryMaxNum": "32",
    "defaultTopicQueueNums": "8",
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": "75",
    "enablePropertyFilter": "false",
    "fileReservedTime": "72",
    "filterDataCleanTimeSpan": "86400000",
    "filterSupportRetry": "false",
    "logLevel": "INFO",
    "longPollingEnable": "true",
    "maxMsgsNumBatch": "64",
    "maxQueueNumByPrefix": "",
    "maxSubscriptionGroupNum": "20000",
    "maxTopicNum": "20000",
    "maxTopicNumByPrefix": "",
    "maxTransferBytesOnMessageInDisk": "262144",
    "maxTransferBytesOnMessageInMemory": "262144",
    "maxTransferCountOnMessageInDisk": "1024",
    "maxTransferCountOnMessageInMemory": "1024",
    "memoryHighWater": "80%",
    "metricsOtelCardinalityLimit": "2000",
    "notifyConsumerIdsChangedEnable": "true",
    "rejectTransactionMessage": "false",
    "shortPollingTimeMills": "1000",
    "slaveReadEnable": "false",
    "storeReplyMessageEnable": "true",
    "timerMaxDelaySec": "3456000",
    "traceOn": "true",
    "transactionCheckInterval": "60000",
    "transactionCheckMax": "15",
    "transactionTimeOut": "6000",
    "waitTimeMillsInHeartbeatQueue": "31000",
    "waitTimeMillsInPullQueue": "5000",
    "waitTimeMillsInSendQueue": "200",
    "waitTimeMillsInTransactionQueue": "3000",
}
"""Of Eruca's brokers."""
APACHE: Final = {
    "maxTransferBytesOnMessageInDisk": "65536",
    "maxTransferCountOnMessageInDisk": "8",
    "maxTransferCountOnMessageInMemory": "32",
}
"""Of Apache's 4.9.7, where they differ."""
_ERUCA_ALONE: Final = "memoryHighWater"


def defaults_of(settings: Collection[str]) -> Mapping[str, str]:
    """The defaults of a broker that has the settings of these names: of those that it has."""
    table = DEFAULTS if _ERUCA_ALONE in settings else DEFAULTS | APACHE
    return {name: text for name, text in table.items() if name in settings}


def value_of(text: str) -> Value:
    """What a broker's text means."""
    if text in ("true", "false"):
        return text == "true"
    try:
        number = int(text)
    except ValueError:
        return text
    return number if str(number) == text else text


def fits(name: str, value: Value) -> bool:
    """Whether a value is of the kind of a setting's default: a number, true or false, or any text."""
    kind = type(value_of(DEFAULTS.get(name, "")))
    return kind is str or type(value_of(text_of(value))) is kind


def text_of(value: Value) -> str:
    """A value as a broker takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
