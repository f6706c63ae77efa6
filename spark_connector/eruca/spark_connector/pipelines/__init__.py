"""Pipelines with Spark, as functions and as the command ``eruca pipeline``: archive, replay, rollup, triage, audit.

Each function takes a session, keyword arguments with the meanings of the command's options, and returns a summary.
The page of the documentation is docs/pipelines.md.
"""

from eruca.spark_connector.pipelines.archiving import ArchiveSummary, archive, read_archive
from eruca.spark_connector.pipelines.auditing import AuditSummary, GroupAudit, QueueAudit, audit
from eruca.spark_connector.pipelines.replaying import ReplaySummary, replay
from eruca.spark_connector.pipelines.rolling import RollupSummary, WindowCounts, rollup
from eruca.spark_connector.pipelines.session import open_session
from eruca.spark_connector.pipelines.telling import Progress
from eruca.spark_connector.pipelines.tracing import TracedGroup, TracedTopic, Traces
from eruca.spark_connector.pipelines.triaging import Cause, TriageSummary, triage

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
