"""Pipelines over a cluster's messages, as functions and as the command ``eruca pipeline``: so far the audit.

Each function takes keyword arguments with the meanings of the command's options, and returns a summary.
The page of the documentation is docs/pipelines.md.
"""

from eruca.spark_connector.pipelines.auditing import AuditSummary, GroupAudit, QueueAudit, audit

__all__ = ["AuditSummary", "GroupAudit", "QueueAudit", "audit"]
