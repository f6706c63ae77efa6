"""What of mqadmin's output must be the same whoever prints it, and whichever cluster answers.

Owns the rules: what is a figure of the moment, where the order is that of a hash map, which texts are
each side's own words (usage, errors). Everything else is compared to the character, columns included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Keys of Apache's configuration that Eruca's daemons do not have, each for a reason.
NOT_ERUCAS = frozenset(
    {
        "isEnableBatchPush",  # Eruca prints it under the key that sets it, enableBatchPush
        "rocketmqHome",  # there is no home: a file is where the configuration says
        # Netty's and Java's own; nothing reads them in Eruca.
        *("clusterTest", "serverAsyncSemaphoreValue", "serverCallbackExecutorThreads"),
        *("serverOnewaySemaphoreValue", "serverPooledByteBufAllocatorEnable", "serverSelectorThreads"),
        *("serverSocketBacklog", "serverSocketRcvBufSize", "serverSocketSndBufSize", "serverWorkerThreads"),
        *("useEpollNativeSelector", "writeBufferHighWaterMark", "writeBufferLowWaterMark"),
    }
)
_HASH_ORDER = frozenset({"topicList", "resetOffsetByTime", "skipAccumulatedMessage", "consumerConnection"})
_FIGURES = frozenset({"clusterList", "statsAll"})
_KEYS = frozenset({"brokerStatus", "getBrokerConfig", "getNamesrvConfig"})
_OPTION = re.compile(r"^ (-\w,--\w+(?: <arg>)?)", re.MULTILINE)


@dataclass(frozen=True)
class Printed:
    """One command of a transcript as a golden file shows it."""

    command: str
    options: str
    exit: int
    stdout: str
    stderr: str

    @property
    def failed(self) -> bool:
        """Whether the command could not do what it was asked, whatever its exit status says."""
        return "command failed" in self.stderr or "[error]" in self.stdout or "not exist." in self.stdout

    @property
    def usage(self) -> bool:
        return self.stdout.startswith("usage:")


def parsed(command: str, text: str) -> list[Printed]:
    """The commands of one golden file, in order."""
    printed = []
    for block in text.removeprefix("$ mqadmin ").split("\n$ mqadmin "):
        line, exit_line, *rest = block.rstrip("\n").split("\n", 2)
        streams = {"stdout": "", "stderr": ""}
        for part in re.split(r"^--- ", rest[0] if rest else "", flags=re.MULTILINE)[1:]:
            title, _, stream = part.partition("\n")
            streams[title] = stream.replace("<no newline>", "")
        options = line.removeprefix(command).strip()
        printed.append(Printed(command, options, int(exit_line.removeprefix("exit ")), **streams))
    return printed


def comparable(printed: Printed) -> list[str]:
    """The lines of standard output that must be the same."""
    if printed.usage:
        return _OPTION.findall(printed.stdout.partition("Not in Apache's mqadmin")[0])
    text = printed.stdout.replace("]MessageTrack [", "]\nMessageTrack [")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if printed.command == "consumerProgress":
        # When a group's retry topic first has an offset is a race; the speed is that of the moment.
        lines = [re.sub(r"TPS: [\d.]+", "TPS: 9", line) for line in lines if not line.startswith("%RETRY%")]
        if lines and "#TPS" in lines[0]:
            lines = [re.sub(r"\d+( +\d+)$", r"9\1", line) for line in lines]
    if printed.command == "updateTopicPerm":
        # Apache's switches the order configuration off; Eruca's changes nothing but the permission.
        lines = [re.sub(r"order=(true|false)", "order=...", line) for line in lines]
    if printed.command in _FIGURES:
        lines = lines[:1] + [" ".join(re.sub(r"\d+(\.\d+)?", "9", line).split()) for line in lines[1:]]
    if printed.command in _HASH_ORDER:
        lines = sorted(lines)
    return lines


def keys(printed: Printed) -> set[str] | None:
    """The left column of a list of keys and values, padding included; None where it is no such list."""
    if printed.command not in _KEYS or printed.failed:
        return None
    value = re.compile(r"(: |=  ).*$")
    return {value.sub(r"\1", line) for line in printed.stdout.splitlines() if value.search(line)}


def has_its_own_reason(shown: str) -> bool:
    """Whether a key of Apache's list is one that Eruca leaves out on purpose."""
    return shown.partition("=")[0].strip() in NOT_ERUCAS
