"""Access control settings as tools see them: the answer to 54 and fields of 52.

Owns the text formats.  Must not know how access is decided.
"""

import msgspec

from eruca.protocol import fastjson
from eruca.protocol.bodies.body import Body
from eruca.protocol.bodies.topics import DataVersion


class PlainAccessConfig(Body):
    """One account (``PlainAccessConfig`` in 4.9.7); permissions are texts such as
    ``T1=PUB|SUB``."""

    access_key: str | None = None
    admin: bool = False
    default_group_perm: str | None = None
    default_topic_perm: str | None = None
    group_perms: list[str] | None = None
    secret_key: str | None = None
    topic_perms: list[str] | None = None
    white_remote_address: str | None = None


class AclConfig(Body):
    """All accounts and the addresses that need no account, the answer to 54."""

    global_white_addrs: list[str] = msgspec.field(default_factory=list)
    plain_access_configs: list[PlainAccessConfig] = msgspec.field(default_factory=list)


def encode_file_versions(versions: dict[str, DataVersion]) -> str:
    """The field ``allAclFileVersion`` of the answer to 52: a version for each file path."""
    return fastjson.dumps(versions).decode()


def decode_file_versions(text: str) -> dict[str, DataVersion]:
    """Read the field ``allAclFileVersion``; raises ProtocolError when it is malformed."""
    return fastjson.reader(dict[str, DataVersion])(text)
