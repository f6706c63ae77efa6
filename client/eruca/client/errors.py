"""The errors of the client: one tree, each error with ``retriable``.

Owns the classes and the sentences. Everything that the client raises to its user is a ``ClientError``; errors of the
wire (``Refused``, ``RemotingError``) are translated by ``translate``. The words in RocketMQ's own sentences are kept,
since people search for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.remoting.errors import CallTimedOut, ConnectFailed, RemotingError

PASSING_CODES = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL})
"""Replies to a send by a broker that is busy, or starts or stops: the same broker may take it a little later."""
RETRIABLE_CODES = PASSING_CODES | {
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
}
"""Replies to a send after which another broker is tried (retryResponseCodes in 4.9.7; SYSTEM_BUSY in 5.x)."""


class ClientError(Exception):
    """Base of all errors of the client. ``retriable``: the same call may succeed a little later or elsewhere."""

    retriable: bool = False


class UsageError(ClientError, ValueError):
    """The call itself is wrong: a name, a body, an option. Nothing was sent."""


class BadName(UsageError):
    """A topic or group that RocketMQ does not allow."""


class BadMessage(UsageError):
    """A message that RocketMQ does not take."""


class BadConfig(UsageError):
    """A setting that is missing or out of its range."""


class StateError(ClientError, RuntimeError):
    """The client is not started, started twice, closed already, or used in another thread or event loop."""


class ForkedClient(StateError):
    """The client was made before a fork and is used in the child process."""


class NoNameserver(BadConfig):
    """No nameserver address was given by argument or environment."""

    def __init__(self) -> None:
        super().__init__(
            "No name server address, please set it. "
            'Pass nameserver="host:9876" or set the environment variable ROCKETMQ_NAMESRV_ADDR.'
        )


class NameserverUnreachable(ClientError):
    """None of the nameservers answered."""

    retriable = True


class TopicNotFound(ClientError):
    """No nameserver knows a route to the topic."""

    retriable = True

    def __init__(self, topic: str, hint: str = "") -> None:
        super().__init__(f"No route info of this topic: {topic}{'. ' + hint if hint else ''}")
        self.topic = topic


class TopicExists(ClientError):
    """A topic that was to be created is there already, at ``brokers``."""

    def __init__(self, topic: str, brokers: Sequence[str]) -> None:
        super().__init__(f"The topic {topic} exists already, at {', '.join(brokers)}")
        self.topic = topic
        self.brokers = tuple(brokers)


class MessageNotFound(ClientError):
    """No broker has the message that was asked for."""

    def __init__(self, message_id: str, hint: str = "") -> None:
        super().__init__(f"query message by id finished, but no message: {message_id}{'. ' + hint if hint else ''}")
        self.message_id = message_id


class BrokerNotFound(ClientError):
    """The route names no address for the broker (its master may be away)."""

    retriable = True

    def __init__(self, broker: str) -> None:
        super().__init__(f"The broker[{broker}] not exist")
        self.broker = broker


class BrokerUnreachable(ClientError):
    """No connection to the peer, or it ended before the answer came."""

    retriable = True


class ClusterNotReady(ClientError):
    """Nameserver, broker or route were not there when the time of ``start(wait=...)`` was over."""

    retriable = True


class CallTimeout(ClientError, TimeoutError):
    """No answer came in time; what was asked may have been done."""

    retriable = True


class RemoteError(ClientError):
    """Who was asked by ``request`` or ``RPC.call`` failed. ``type`` names what it raised, ``text`` is its sentence."""

    def __init__(self, type: str, text: str) -> None:
        super().__init__(f"{type}: {text}" if text != type else type)
        self.type = type
        self.text = text


class BrokerRefused(ClientError):
    """The peer answered with an error. ``code`` is its response code, ``remark`` its sentence."""

    def __init__(self, code: int, remark: str, text: str | None = None) -> None:
        super().__init__(text or str(Refused(code, remark)))
        self.code = code
        self.remark = remark
        self.retriable = code in RETRIABLE_CODES


class AccessDenied(BrokerRefused):
    """The broker denies access to this account, or this operation. The text ends with what helps.

    A send that met it at each of its attempts is a SendFailed with this as its ``__cause__``.
    """

    def __init__(self, code: int, remark: str, help_: str) -> None:
        super().__init__(code, remark, f"{Refused(code, remark)}; {help_}")
        self.retriable = False


_DENIALS = (
    (r"[Cc]heck signature failed", "the secret key is not the one of this access key: look at the credentials"),
    (
        r"No accessKey is configured|username cannot be null",
        "this broker wants an account: give credentials=Credentials(access_key, secret_key) in the ClientSettings",
    ),
    (
        r"No acl config for |User:.* not found",
        "this broker has no such account: look at the access key, or let an operator add it (mqadmin updateAclConfig, "
        "in RocketMQ 5 createUser)",
    ),
    (r"User:.* is disabled", "an operator may enable the account (mqadmin updateUser)"),
    (
        r"No default permission for |Need admin permission |has no permission to access ",
        "an operator may grant it (mqadmin updateAclConfig, in RocketMQ 5 createAcl)",
    ),
)
"""Remarks of brokers that deny access, and what helps (PlainPermissionManager in 4.9.7, module auth in 5.3.3)."""


def refusal(code: int, remark: str) -> BrokerRefused:
    """The error for a refusal by a broker."""
    if code == ResponseCode.NO_PERMISSION or (code == ResponseCode.SYSTEM_ERROR and "AclException" in remark):
        for words, help_ in _DENIALS:
            if re.search(words, remark):
                return AccessDenied(code, remark, help_)
    return BrokerRefused(code, remark)


class BadAnswer(ClientError):
    """The peer's answer, or a stored message, does not follow the protocol."""


class BadBody(ClientError, ValueError):
    """A received body cannot be decoded by its content type or the given serializer."""


class NotConsumed(ClientError):
    """Raised at the ``yield`` of a provider of an App: the handler returned ``outcome``, such as Later or Reject."""

    def __init__(self, outcome: object) -> None:
        super().__init__(f"The handler returned {outcome!r}: its message does not count as consumed")
        self.outcome = outcome


class SendFailed(ClientError):
    """Every attempt of a send failed. ``__cause__`` is the error of the last one.

    ``attempts`` were made within ``seconds``, at ``brokers`` in this order; the sentence ends with that error, and is
    ``retriable`` if that is.
    """

    def __init__(self, topic: str, attempts: int, seconds: float, brokers: Sequence[str], last: ClientError) -> None:
        super().__init__(
            f"Send [{attempts}] times, still failed, cost [{round(seconds * 1000)}]ms, "
            f"Topic: {topic}, BrokersSent: [{', '.join(brokers)}]; the last time: {last}"
        )
        self.__cause__ = last
        self.retriable = last.retriable
        self.topic = topic
        self.attempts = attempts
        self.seconds = seconds
        self.brokers = tuple(brokers)


WRONG_ADDRESS = "if this broker runs, it registered an address that is not reachable from here: set its brokerIP1"


def translate(error: Exception) -> ClientError:
    """The client's error for an error of the protocol or the network."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, Refused):
        return refusal(error.code, error.remark)
    if isinstance(error, CallTimedOut):
        return CallTimeout(str(error))
    if isinstance(error, ConnectFailed) and error.unreachable:
        return BrokerUnreachable(f"{error}; {WRONG_ADDRESS}")
    if isinstance(error, RemotingError):
        return BrokerUnreachable(str(error))
    if isinstance(error, ProtocolError):
        return BadAnswer(str(error))
    return ClientError(f"{type(error).__name__}: {error}")
