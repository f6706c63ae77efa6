"""The commands by subject. The import of this package declares them all, in the order of this list."""

from importlib import import_module

_SUBJECTS = (
    "topic",
    "group",
    "progress",
    "broker",
    "cluster",
    "offset",
    "message",
    "queue_messages",
    "response_time",
    "trace",
    "kv",
    "monitor",
    "export",
    "declared",
    "diagnosis",
    "acl",
    "console",
)

for _subject in _SUBJECTS:
    import_module(f"eruca.admin.commands.{_subject}")
