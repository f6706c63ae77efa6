"""The answer to a request that access control refuses: code and shape as 4.9.7's brokers give it.

Owns the shape: the class, the text, and the place, as Java describes an exception. The texts are 4.9.7's, which
operators search for and clients recognise. Pure.
"""

from __future__ import annotations

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused

_CLASS = "org.apache.rocketmq.acl.common.AclException"
_PLACE = "eruca.remoting.access"
"""Stands where Java names the method that refused."""
_MOST_SHOWN = 255


def refusal(text: str) -> Refused:
    """The refusal of a request by access control."""
    return Refused(ResponseCode.SYSTEM_ERROR, f"{_CLASS}: {text}, {_PLACE}")


def shown(name: str) -> str:
    """A name of the requester's choice as a refusal repeats it: not longer than a name is."""
    return name[:_MOST_SHOWN]
