"""New topics a second of an account or address; off unless quotaNewTopicsPerSecond is set.

Owns which requests may make a topic. Invariant: topics that are there are not counted, and neither are those of a
group that exists. The fast path makes no topics.
"""

from __future__ import annotations

from typing import Any

from eruca.broker.state.topics import Topics
from eruca.protocol import names
from eruca.protocol.codes import RequestCode
from eruca.remoting import Call
from eruca.remoting.quotas import asker, too_much
from eruca.remoting.rates import Rate

MAKING = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
    }
)
"""The requests that may make a topic that they name."""


class NewTopics:
    """A guard of routers, after that of access control."""

    def __init__(self, topics: Topics, a_second: float) -> None:
        self.rate = Rate(a_second)
        self._topics = topics

    @property
    def on(self) -> bool:
        """Whether anything is limited."""
        return bool(self.rate.a_second)

    def __call__(self, call: Call[Any]) -> None:
        """Count a request that would make a topic. Raises Refused if it is one too many."""
        if call.code not in MAKING:
            return
        topic = getattr(call.header, "topic", None)  # none of a header that could not be read
        if not isinstance(topic, str) or topic in self._topics or names.is_retry_topic(topic):
            return
        who = asker(call)
        if not self.rate.take(who):
            raise too_much(who, f"{self.rate.a_second:g} new topics", "quotaNewTopicsPerSecond")
