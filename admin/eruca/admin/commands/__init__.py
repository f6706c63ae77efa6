"""The commands, by what they are about; importing this package declares them all, in the order of Apache's overview."""

from eruca.admin.commands import topic, group, progress, broker, cluster, offset, message, consume, kv, acl  # noqa: F401, I001
