"""Pipelines with Spark, as functions and as the command ``eruca pipeline``: archive, replay, rollup, triage, audit.

Each function takes a session, keyword arguments with the meanings of the command's options, and returns a summary.
The page of the documentation is docs/pipelines.md.
"""

from eruca.spark_connector.pipelines.archives import ArchiveSummary, archive, read_archive
from eruca.spark_connector.pipelines.audits import AuditSummary, GroupAudit, QueueAudit, audit
from eruca.spark_connector.pipelines.dead_letters import Cause, TriageSummary, triage
from eruca.spark_connector.pipelines.progress import Progress
from eruca.spark_connector.pipelines.replays import ReplaySummary, replay
from eruca.spark_connector.pipelines.rollups import RollupSummary, WindowCounts, rollup
from eruca.spark_connector.pipelines.session import open_session
from eruca.spark_connector.pipelines.traces import TracedGroup, TracedTopic, Traces

__all__ = [
    "ArchiveSummary",
    "AuditSummary",
    "Cause",
    "GroupAudit",
    "Progress",
    "QueueAudit",
    "ReplaySummary",
    "RollupSummary",
    "TracedGroup",
    "TracedTopic",
    "Traces",
    "TriageSummary",
    "WindowCounts",
    "archive",
    "audit",
    "open_session",
    "read_archive",
    "replay",
    "rollup",
    "triage",
]
