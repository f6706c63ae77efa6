"""The answer to a request that access control refuses: code and shape as 4.9.7's brokers give it.

Owns the shape: the class, the text, and the place, as Java describes an exception. The texts are 4.9.7's, which
operators search for and clients recognise. Pure.
"""

from __future__ import annotations

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.remoting.log_line import one_line

_CLASS = "org.apache.rocketmq.acl.common.AclException"
_PLACE = "eruca.remoting.access"
"""Stands where Java names the method that refused."""
_MOST_SHOWN = 255


class AccessRefused(Refused):
    """The refusal of a request by access control, with what the log says of it.

    ``reason`` is the kind of it, for those who count; ``resource`` what the account may not use; ``claimed`` the access
    key that a sender without a valid signature has named.
    """

    def __init__(self, text: str, reason: str, resource: str = "") -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{_CLASS}: {text}, {_PLACE}")
        self.reason = reason
        self.resource = resource
        self.claimed = ""


def shown(name: str) -> str:
    """A name of the requester's choice as a refusal repeats it: not longer than a name is, and fit for a terminal."""
    return one_line(name[:_MOST_SHOWN])[:_MOST_SHOWN]
