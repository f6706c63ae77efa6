"""The commands, by what they are about; importing this package declares them all, in the order of this list."""

from importlib import import_module

_SUBJECTS = (
    "topic",
    "group",
    "progress",
    "broker",
    "cluster",
    "offset",
    "message",
    "consume",
    "timing",
    "trace",
    "kv",
    "export",
    "acl",
)

for _subject in _SUBJECTS:
    import_module(f"eruca.admin.commands.{_subject}")
