"""The commands by subject, in the order of help.

A run of mqadmin needs one command: ``find`` imports the module that declares it, and ``every`` imports them all. A
module and its commands stand in ``SUBJECTS``, so that a name is known before its module is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from eruca.admin.command import COMMANDS, Command

SUBJECTS: Final = {
    "Topics": {
        "topic": (
            "updateTopic deleteTopic updateTopicPerm topicRoute topicStatus topicClusterList topicList allocateMQ "
            "updateOrderConf"
        ),
    },
    "Clusters and brokers": {
        "cluster": "clusterList",
        "broker": (
            "brokerStatus updateBrokerConfig getBrokerConfig cleanExpiredCQ cleanUnusedTopic deleteExpiredCommitLog "
            "brokerConsumeStats producer"
        ),
        "response_time": "sendMsgStatus checkMsgSendRT clusterRT",
        "export": "exportMetadata exportConfigs exportMetrics",
    },
    "Watching and finding": {
        "monitor": "startMonitoring",
        "top": "top",
        "watch": "lag check",
        "diagnosis": "doctor",
        "console": "console",
    },
    "A cluster in a file": {"declared": "export diff apply"},
    "Consumer groups and producers": {
        "group": (
            "updateSubGroup deleteSubGroup getConsumerConfig consumerConnection producerConnection consumerStatus"
        ),
        "progress": "consumerProgress statsAll",
    },
    "Offsets": {"offset": "resetOffsetByTime skipAccumulatedMessage resetOffset cloneGroupOffset offsets"},
    "Messages": {
        "message": "sendMessage queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset queryCq",
        "queue_messages": "consumeMessage printMsg printMsgByQueue",
        "streams": "tail send move",
        "trace": "queryMsgTraceById",
    },
    "Nameservers": {
        "kv": ("updateKvConfig deleteKvConfig getNamesrvConfig updateNamesrvConfig wipeWritePerm addWritePerm"),
    },
    "Access control": {
        "acl": "updateAclConfig deleteAclConfig updateGlobalWhiteAddr clusterAclConfigVersion getAclConfig",
    },
}
"""What the commands are about; for each of it the modules, and the names of their commands."""
ALIASES: Final = {
    "updateaccessconfig": "acl",
    "deleteaccessconfig": "acl",
    "getaccessconfigsubcommand": "acl",
}
"""Other names of commands, in lower case, with their modules."""
_MODULES: Final = ALIASES | {
    name.lower(): module
    for modules in SUBJECTS.values()
    for module, commands in modules.items()
    for name in commands.split()
}


def names() -> list[str]:
    """The names of all commands."""
    return [name for subject in SUBJECTS for name in names_of(subject)]


def names_of(subject: str) -> list[str]:
    """The names of the commands about a subject."""
    return [name for commands in SUBJECTS[subject].values() for name in commands.split()]


def find(name: str) -> Command | None:
    """The command of that name, in whatever case; None if there is none."""
    module = _MODULES.get(name.lower())
    if module is None:
        return None
    import_module(f"{__name__}.{module}")
    return COMMANDS[name.lower()]


def every() -> list[Command]:
    """All commands, in the order of help."""
    return [found for name in names() if (found := find(name)) is not None]
