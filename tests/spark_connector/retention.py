"""A broker that deletes old messages, for tests of what is not there any more."""

from __future__ import annotations

import os
import time

from eruca.client.sync import PullConsumer
from tests.support.eruca import ErucaCluster
from tests.support.spark import Rows, Topic

SETTINGS = {
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "fileReservedTime": "72",
    "cleanResourceInterval": "50",
    "mappedFileSizeCommitLog": str(1 << 18),
    "mappedFileSizeConsumeQueue": "1000",
    "cleanFileForciblyEnable": "false",
}
LONG_AGO = 80 * 3600


def fill(topic: Topic) -> None:
    """So much that it takes several files of the log."""
    topic.fill(800, size=1000)


def forget(cluster: ErucaCluster, topic: Topic) -> Rows:
    """Make all files old but the last ones, and wait until they are gone; what of the topic is still there."""
    log = cluster.home / "store" / "commitlog"
    old = sorted(log.iterdir())[:-2]
    with PullConsumer(nameserver=topic.name_server) as consumer:
        before = begins = [consumer.min_offset(queue) for queue in topic.queues]
        for path in old:
            os.utime(path, (time.time() - LONG_AGO,) * 2)
        deadline = time.monotonic() + 60
        while any(path.exists() for path in old) or any(map(int.__le__, begins, before)):
            assert time.monotonic() < deadline
            begins = [consumer.min_offset(queue) for queue in topic.queues]
    return {place: row for place, row in topic.rows.items() if place[1] >= begins[place[0]]}
