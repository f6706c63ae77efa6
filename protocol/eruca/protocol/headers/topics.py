"""Headers of topics, groups and statistics at the broker.

Fields are those of the headers of codes 17, 200 to 208, 215, 300, 303, 315, 317, 323, 351 and 352 in 4.9.7 and 5.3.3.
"""

from __future__ import annotations

from eruca.protocol.header import Header, Int


class CreateTopic(Header, kw_only=True):
    """17: create a topic or change it. perm: 1 inherit, 2 write, 4 read."""

    topic: str
    default_topic: str = "TBW102"
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None


class OfTopic(Header, kw_only=True):
    """202, 215, 300 and 351: about one topic."""

    topic: str


class DeleteTopicInNamesrv(Header, kw_only=True):
    """216: delete a topic, or only its queues in one cluster."""

    topic: str
    cluster_name: str | None = None


class DeleteSubscriptionGroup(Header, kw_only=True):
    """207: delete a group, with its offsets if remove_offset."""

    group_name: str
    remove_offset: bool = False


class OfGroup(Header, kw_only=True):
    """352: about one group."""

    group: str


class ConsumeStatsOf(Header, kw_only=True):
    """208: offsets and lag of a group, for one topic or all."""

    consumer_group: str
    topic: str | None = None


class ConsumeTimeSpanOf(Header, kw_only=True):
    """303: the times between which a group consumes."""

    topic: str
    group: str


class BrokerStatsOf(Header, kw_only=True):
    """315: the sums and rates of one counter."""

    stats_name: str
    stats_key: str


class BrokerConsumeStatsOf(Header, kw_only=True):
    """317: the lag of all groups; only order topics when is_order."""

    is_order: bool = False


class ResumeCheckHalfMessage(Header, kw_only=True):
    """323: check a discarded half message again."""

    msg_id: str | None = None


class ConfigVersion(Header, kw_only=True):
    """The version of a configuration (a DataVersion as JSON text)."""

    version: str
