"""The checks of a message before it is stored, and what is stored of its properties.

Owns the checks of a send in their order with their texts (AbstractSendMessageProcessor.msgCheck in 4.9.7), the
creation of topics by sending, whether sends are suspended, and the text of the properties. Knows nothing of the store
but the types of its interface. Invariant: a destination that was admitted once is admitted from memory only as long as
nothing that decided it has changed.
"""

from __future__ import annotations

import random
from datetime import datetime
from typing import NamedTuple

from eruca.broker.config import BrokerConfig
from eruca.broker.services.half_records import HalfPlaces
from eruca.broker.services.registration import Registration
from eruca.broker.state.groups import Groups
from eruca.broker.state.topics import UNIT, UNIT_SUB, Topics
from eruca.broker.store.layout import SendForm
from eruca.protocol import names
from eruca.protocol.bodies import PERM_WRITE, SubscriptionGroupConfig, TopicConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.headers.send import SendMessage, SendMessageV2
from eruca.protocol.memo import Memo
from eruca.protocol.message import MULTI_TAGS, decode_properties, encode_properties
from eruca.protocol.templates import Template

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
MAX_RECONSUME_IN_HEADER = 121
"""Version from which a client's own maxReconsumeTimes counts: V3_4_9."""


_LEVEL_DIGITS = 9
_FORMS = 4096
_BATCHES = 256

Send = SendMessage | SendMessageV2


class Destination(NamedTuple):
    """Where a message goes: topic, queue, and bits that the topic adds to its sysFlag."""

    topic: str
    queue_id: int
    sys_flag: int


class Properties(NamedTuple):
    """The properties of a message by name, CLUSTER and WAIT among them, and what the broker reads in them."""

    values: dict[str, str]
    wait: bool = True
    """Whether the answer waits until the message is on disk."""
    delay_level: int = 0
    half: bool = False
    """Whether this is the first half of a transaction."""

    def text(self) -> bytes:
        """What is stored of them with a message that can be consumed at once: all but WAIT.

        Raises ProtocolError when they are too long.
        """
        return encode_properties({name: value for name, value in self.values.items() if name != names.WAIT})

    def whole_text(self) -> bytes:
        """All of them, as batches and messages that come later keep them. Raises ProtocolError as ``text``."""
        return encode_properties(self.values)


class Admission:
    """The checks; ``forget`` drops what was admitted from memory."""

    def __init__(self, config: BrokerConfig, topics: Topics, groups: Groups, registration: Registration) -> None:
        self.admitted: dict[tuple[str, int], Destination] = {}
        """Destinations that need no further check."""
        self.forms: Memo[bytes, SendForm] = Memo(_FORMS)
        """The forms of sends to these that the native step takes (``handlers.send_forms``)."""
        self.reply_templates: Memo[tuple[int, int], Template | None] = Memo(_FORMS)
        """The templates of replies to sends, by serialization and queue id."""
        self.suspended: dict[ResponseCode, str] = {}
        """Why no message is admitted at present, by the code with which sends are refused."""
        self.half_places = HalfPlaces(config.broker_cluster_name)
        self._batches: Memo[str, tuple[bytes, bool, bool]] = Memo(_BATCHES)
        self._config = config
        self._topics = topics
        self._groups = groups
        self._registration = registration
        self._cluster = "CLUSTER\x01" + config.broker_cluster_name
        self._cluster_after = "\x02" + self._cluster
        self.cluster = self._cluster.encode()
        """What is stored of a message without properties, and added to those of any other."""
        topics.watchers.append(lambda _: self.forget())

    def forget(self) -> None:
        """Check every destination again."""
        self.admitted.clear()
        self.forms.clear()
        self.reply_templates.clear()
        self._batches.clear()

    def suspend(self, reason: str, code: ResponseCode = ResponseCode.SYSTEM_BUSY) -> None:
        """Admit nothing until ``resume``: sends are refused with the code and the reason."""
        if not self.suspended:
            self.forget()
        self.suspended[code] = reason

    def resume(self, code: ResponseCode = ResponseCode.SYSTEM_BUSY) -> None:
        """Admit messages again, as far as they were refused with this code."""
        self.suspended.pop(code, None)

    # ------------------------------------------------------------------ where it goes

    def admit(self, ask: Send, remote: str, now: int) -> Destination:
        """Check a send by everything that is known; creates its topic where that is allowed.

        Raises Refused.
        """
        for code, reason in self.suspended.items():
            raise Refused(code, reason)
        start = self._config.start_accept_send_request_time_stamp
        if now < start:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {_readable(start)}")
        topic = ask.topic
        if not self._config.broker_permission & PERM_WRITE and self._topics.is_order(topic):
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._config.broker_ip1}] sending message is forbidden"
            )
        if (fault := names.topic_fault(topic)) is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, fault)
        if topic in names.NOT_ALLOWED_SEND_TOPICS:
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        config = self._topics.get(topic) or self._create(ask)
        queue_id = ask.queue_id
        if queue_id >= max(config.write_queue_nums, config.read_queue_nums):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"request queueId[{queue_id}] is illegal, {config} Producer: {remote}"
            )
        if queue_id < 0:
            queue_id = self._any_queue(config)
        found = Destination(topic, queue_id, _topic_bits(config))
        if ask.queue_id >= 0 and not names.is_retry_topic(topic) and not self._topics.dirty:
            self.admitted[topic, queue_id] = found
        return found

    def _create(self, ask: Send) -> TopicConfig:
        topic = ask.topic
        retry = names.is_retry_topic(topic)
        if retry:
            self.group(topic.removeprefix(names.RETRY_PREFIX))
        flag = (UNIT_SUB if retry else UNIT) if ask.unit_mode else 0
        config = self._topics.create_for_send(topic, ask.default_topic, ask.default_topic_queue_nums, sys_flag=flag)
        if config is None and retry:
            config = self._topics.create_if_absent(topic, 1, sys_flag=flag)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
        self._registration.announce()
        return config

    @staticmethod
    def _any_queue(config: TopicConfig) -> int:
        if config.write_queue_nums <= 0:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the topic[{config.topic_name}] has no write queue; set its writeQueueNums above 0",
            )
        return random.randrange(config.write_queue_nums)

    def redirect(self, ask: Send, to: Destination, version: int) -> Destination:
        """Of a message for a retry topic: the dead letter topic when it has been tried often enough.

        ``version`` is the client's. Raises Refused(26) when the group does not exist.
        """
        name = ask.topic.removeprefix(names.RETRY_PREFIX)
        most = self.most_returns(self.group(name), ask.max_reconsume_times, version)
        return to if (ask.reconsume_times or 0) < most else self.dead_letters(name)

    @staticmethod
    def most_returns(group: SubscriptionGroupConfig, asked: int | None, version: int) -> int:
        """How often a message may come again: as the client of this ``version`` asked, else as the group has it."""
        return asked if asked is not None and version >= MAX_RECONSUME_IN_HEADER else group.retry_max_times

    def dead_letters(self, group: str) -> Destination:
        """The dead letter topic of a group, made where it is not there. Raises Refused(1) for a name too long."""
        topic = names.dead_letter_topic(group)
        if (fault := names.topic_fault(topic)) is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, fault)
        return Destination(topic, 0, _topic_bits(self._registration.have_topic(topic)))

    def group(self, name: str) -> SubscriptionGroupConfig:
        """A consumer group, created where that is allowed. Raises Refused(26)."""
        group = self._groups.find(name)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}")
        return group

    # ------------------------------------------------------------------ what is stored

    def plain(self, text: str | None) -> tuple[bytes, bool] | None:
        """The properties of a single send as they are stored, and whether it waits for the disk.

        CLUSTER is added, WAIT is not stored. None for properties that need more than that (see ``properties``).
        """
        if not text:
            return self.cluster, True
        if "DELAY\x01" in text or "TRAN_MSG\x01" in text or "CLUSTER\x01" in text or "TIMER_D" in text:
            return None
        at = text.find("WAIT\x01")
        if at < 0:
            return (text + (self._cluster if text[-1] == "\x02" else self._cluster_after)).encode(), True
        if at and text[at - 1] != "\x02":
            return None
        if text[at + 5 :] == "true":  # the last one
            return (text[:at] + self._cluster).encode(), True
        if text[at + 5 : at + 10] != "true\x02" or text.find("WAIT\x01", at + 10) >= 0:
            return None
        text = text[:at] + text[at + 10 :]
        if not text:
            return self.cluster, True
        return (text + (self._cluster if text[-1] == "\x02" else self._cluster_after)).encode(), True

    def of_batch(self, text: str) -> tuple[bytes, bool, bool]:
        """What the properties of a batch add to those of its messages, whether it waits for the disk, and whether it
        asks to be delayed; remembered, since they are few. Raises ProtocolError as ``Properties.text``.
        """
        known = self._batches.get(text)
        if known is None:
            found = self.properties(text)
            known = self._batches.remember(text, (found.whole_text(), found.wait, found.delay_level != 0))
        return known

    def properties(self, text: str) -> Properties:
        """The properties of a message, looked at closely; the cluster is added."""
        values = decode_properties(text.encode())
        values[names.CLUSTER] = self._config.broker_cluster_name
        level = values.get(names.DELAY, "0")
        return Properties(
            values,
            values.get(names.WAIT, "true").lower() == "true",
            int(level) if level.isdecimal() and len(level) <= _LEVEL_DIGITS else 0,
            values.get(names.TRANSACTION_PREPARED, "").lower() == "true",
        )


def _topic_bits(config: TopicConfig) -> int:
    return MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0


def _readable(millis: int) -> str:
    moment = datetime.fromtimestamp(millis / 1000)
    return f"{moment:%Y-%m-%d %H:%M:%S},{millis % 1000:03d}"
