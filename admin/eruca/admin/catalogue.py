"""The catalogue of commands: what each is about, the module that declares it, its name, and what it does in a line.

A name and its line are known here before the module is imported: help, completion and a wrong name need no more. A
command is declared under a name of the catalogue (``command.command``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SUBJECTS: Final = {
    "Topics": {
        "topic": {
            "updateTopic": "create a topic or change it",
            "deleteTopic": "delete a topic from a cluster and from the nameservers",
            "updateTopicPerm": "change the permission of a topic",
            "topicRoute": "show the route of a topic",
            "topicStatus": "show the offsets of a topic's queues",
            "topicClusterList": "show the clusters that have a topic",
            "topicList": "list all topics",
            "allocateMQ": "show the allocation of a topic's queues to consumers",
            "updateOrderConf": "show, change or delete the order configuration of a topic",
        },
    },
    "Clusters and brokers": {
        "cluster": {
            "clusterList": "list clusters and brokers",
        },
        "broker": {
            "brokerStatus": "show the runtime info of brokers",
            "updateBrokerConfig": "change a setting of brokers at run time",
            "getBrokerConfig": "show the settings of brokers",
            "cleanExpiredCQ": "remove consume queue files whose messages are gone",
            "cleanUnusedTopic": "remove the queues of deleted topics",
            "deleteExpiredCommitLog": "remove commit log files that are older than the retention",
            "brokerConsumeStats": "show the lag of all groups at a broker",
            "producer": "list the producers of a broker",
        },
        "failover": {
            "haStatus": "show how far slaves have copied their master's log",
            "getSyncStateSet": "show which brokers of a group may become its master",
            "getBrokerEpoch": "show which master wrote which part of the brokers' logs",
            "electMaster": "hand the mastership of a group over to one of its brokers",
            "recreateGroup": "write a group again that etcd has lost, from what its brokers know",
        },
        "response_time": {
            "sendMsgStatus": "send messages to a broker and show the response times",
            "checkMsgSendRT": "send messages to the queues of a topic and show the response times",
            "clusterRT": "send messages to every broker periodically and show the response times",
        },
        "export": {
            "exportMetadata": "write topics and consumer groups to files",
            "exportConfigs": "write the main settings of a cluster's brokers to a file",
            "exportMetrics": "write figures of a cluster's brokers to a file",
        },
    },
    "Watching and finding": {
        "monitor": {
            "startMonitoring": "report lag, subscriptions, members and brokers in rounds, until stopped",
        },
        "top": {
            "top": "show brokers, topics, groups and members on a screen, as they are now",
        },
        "watch": {
            "lag": "show the lag of consumer groups, and with --watch how it changes",
            "check": "check one thing for Nagios or Prometheus: one line, and exit status 0, 1, 2 or 3",
        },
        "diagnosis": {
            "doctor": "say what is wrong in a cluster, and how to mend it",
        },
        "console": {
            "console": "serve the web console, until interrupted",
        },
    },
    "A cluster in a file": {
        "declared": {
            "export": "print topics, groups, order configurations and changed settings as a file for apply",
            "diff": "show what apply would change",
            "apply": "create and change topics, groups, order configurations and settings as a file says",
        },
    },
    "Consumer groups and producers": {
        "group": {
            "updateSubGroup": "create a consumer group or change it",
            "deleteSubGroup": "delete a consumer group",
            "getConsumerConfig": "show the settings of a consumer group",
            "consumerConnection": "list the members of a consumer group",
            "producerConnection": "list the members of a producer group",
            "consumerStatus": "show the state of the members of a consumer group",
        },
        "progress": {
            "consumerProgress": "show the offsets and the lag of consumer groups",
            "statsAll": "show traffic and lag of topics and their groups",
        },
    },
    "Offsets": {
        "offset": {
            "resetOffsetByTime": "move a consumer group to a time",
            "skipAccumulatedMessage": "move a consumer group to the end of a topic",
            "resetOffset": (
                "move a consumer group to the first or last message, a time, an offset, another group's offsets or "
                "those of a file"
            ),
            "cloneGroupOffset": "copy the offsets of a consumer group to another one",
            "offsets": (
                "print the stored offsets of a consumer group as a file, or bring a group back to those of a file"
            ),
        },
    },
    "Messages": {
        "message": {
            "sendMessage": "send a message",
            "queryMsgById": "show a message by the broker's id (offsetMsgId), or with -t or -c by the producer's",
            "queryMsgByKey": "list the messages with a key",
            "queryMsgByUniqueKey": "show a message by the producer's id (msgId)",
            "queryMsgByOffset": "show the message at an offset of a queue",
            "queryCq": "show the units of a consume queue",
        },
        "queue_messages": {
            "consumeMessage": "consume messages and print them",
            "printMsg": "print the messages of a topic",
            "printMsgByQueue": "print or count the messages of a queue",
        },
        "streams": {
            "tail": "print the messages of a topic, of all queues by time; no group takes part",
            "send": "send the lines of the standard input to a topic, each as a message",
            "move": "send the dead letters of a consumer group to their topics again",
        },
        "trace": {
            "queryMsgTraceById": "show who sent a message and who consumed it",
        },
    },
    "Nameservers": {
        "kv": {
            "updateKvConfig": "store a value at the nameservers",
            "deleteKvConfig": "remove a value from the nameservers",
            "getNamesrvConfig": "show the settings of the nameservers",
            "updateNamesrvConfig": "change a setting of the nameservers at run time",
            "wipeWritePerm": "remove the write permission of all topics of a broker",
            "addWritePerm": "restore the write permission of all topics of a broker",
        },
    },
    "Access control": {
        "acl": {
            "updateAclConfig": "create an account or change it",
            "deleteAclConfig": "delete an account",
            "updateGlobalWhiteAddr": "set the addresses that need no account",
            "clusterAclConfigVersion": "show the versions of the access files",
            "getAclConfig": "show the accounts of brokers, secrets included",
        },
    },
}
"""What the commands are about; for each of it the modules, and the names of their commands with what they do."""
ALIASES: Final = {
    "updateaccessconfig": "acl",
    "deleteaccessconfig": "acl",
    "getaccessconfigsubcommand": "acl",
}
"""Other names of commands, in lower case, with their modules."""
SET: Final = {"topic": "updateTopic", "group": "updateSubGroup"}
"""Words that, followed by ``set``, are a command with ``--keep``."""
LINES: Final = {
    name: line for modules in SUBJECTS.values() for lines in modules.values() for name, line in lines.items()
}
"""What each command does, in the order of help."""
_MODULES: Final = ALIASES | {
    name.lower(): module for modules in SUBJECTS.values() for module, lines in modules.items() for name in lines
}


def names() -> list[str]:
    """The names of all commands, in the order of help."""
    return [*LINES]


def names_of(subject: str) -> list[str]:
    """The names of the commands about a subject."""
    return [name for lines in SUBJECTS[subject].values() for name in lines]


def in_full(words: Sequence[str]) -> list[str]:
    """A command line that begins with a command, where ``topic set`` is ``updateTopic --keep``."""
    if len(words) > 1 and words[1] == "set" and (name := SET.get(words[0].lower())):
        return [name, "--keep", *words[2:]]
    return list(words)


def module_of(name: str) -> str | None:
    """The module below ``commands`` that declares a command, by its name in whatever case; None if there is none."""
    return _MODULES.get(name.lower())
