"""The guard of a daemon: looks at each request before its header is judged, and refuses what its sender may not ask.

Owns the order of the checks: a listed broker, then the account, then the rule of the request. ``Accounts`` tell who
signed it, the daemon's table what it needs. Must not know any request. Invariant: nothing is decided for a connection:
each request is looked at by itself, since other accounts may use the connection, and accounts change. A code without a
rule is refused. Each refusal is counted, and reported here unless the request is a change, of which the router does so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.signature import ACCESS_KEY
from eruca.remoting.access.account import Account
from eruca.remoting.access.accounts import UNREADABLE, Accounts, host_of, is_long
from eruca.remoting.access.refusals import AccessRefused, shown
from eruca.remoting.access.rules import Rule, may_read, may_send
from eruca.remoting.access.tally import Tally
from eruca.remoting.connection import Connection, FastPath
from eruca.remoting.costly import Work
from eruca.remoting.request import Call

S = TypeVar("S")


class _Asked(NamedTuple):
    """What is reported of a request."""

    remote: str
    account: str
    code: int


class Guard(Generic[S]):
    """Guards the routers of one daemon.

    ``rules`` are by request code; ``changes`` are the codes whose routes declare that they change something. ``as_49``
    leaves open what 4.9.7 leaves open.
    """

    def __init__(
        self,
        service: S,
        rules: Mapping[int, Rule[S]],
        accounts: Accounts,
        tally: Tally,
        *,
        changes: Collection[int] = (),
        as_49: bool = False,
    ) -> None:
        self._service = service
        self._rules = rules
        self._accounts = accounts
        self._tally = tally
        self._changes = changes
        self._as_49 = as_49

    def __call__(self, call: Call[Any]) -> Work | None:
        """Set the account of a request, or raise Refused. A header that cannot be read is left to the router.

        For a long request it returns what does so, since its signature takes time.
        """
        rule = self._rules.get(call.code)
        if rule is not None and rule.of_brokers and self._accounts.is_broker(host_of(call.connection.remote)):
            return None
        call.look_again = self._look_at
        if is_long(call) and not self._accounts.white(host_of(call.connection.remote)):
            return partial(self._look_at_long, call)
        self._look_at(call)
        return None

    def _look_at(self, call: Call[Any]) -> None:
        try:
            account = self._accounts.authenticate(call)
        except AccessRefused as refused:
            self._note_stranger(call, refused)
            raise
        self._admit(call, account)

    async def _look_at_long(self, call: Call[Any]) -> None:
        try:
            account = await self._accounts.authenticate_long(call)
        except AccessRefused as refused:
            self._note_stranger(call, refused)
            raise
        self._admit(call, account)

    def _admit(self, call: Call[Any], account: Account | None) -> None:
        """Let a request in, if its account may ask it. Raises Refused."""
        rule = self._rules.get(call.code)
        if account is None:
            self._let_in(call)
            return
        call.account = account.access_key
        if rule is None:
            self._note(_asked(call), "unknown_code", "")
            raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {call.code} not supported")
        if isinstance(call.header, Refused) or (self._as_49 and not rule.always):
            return
        call.may_read = partial(self._may_read, _asked(call), account)  # not the call, which would hold itself
        call.may_send = partial(self._may_send, account)
        lack = rule.lack(self._service, call, account)
        if lack is not None:
            self._note(_asked(call), lack.reason, lack.resource)
            raise AccessRefused(lack.text, lack.reason, lack.resource)

    def for_white_addresses(self, fast_path: FastPath) -> FastPath:
        """A fast path, which passes the guard by, for the connections that it would let do everything."""
        white = self._accounts.white

        def take(connection: Connection, data: bytes, at: int) -> int:
            return fast_path(connection, data, at) if white(host_of(connection.remote)) else at

        return take

    def _may_read(self, asked: _Asked, account: Account, topic: str) -> bool:
        if may_read(account, topic):
            return True
        self._note(asked, "permission", f"topic:{shown(topic)}")
        return False

    def _let_in(self, call: Call[Any]) -> None:
        ip = host_of(call.connection.remote)
        call.may_send = partial(self._white_may_send, ip, "" if self._accounts.white(ip) else _claimed(call))

    def _may_send(self, account: Account, topic: str) -> bool:
        """Whether who has signed as an account may send now: he is asked about half messages long afterwards."""
        present = self._accounts.get(account.access_key)
        return present is not None and present.secret_key == account.secret_key and may_send(present, topic)

    def _white_may_send(self, ip: str, access_key: str, topic: str) -> bool:
        account = self._accounts.get(access_key)
        return self._accounts.white(ip) or (account is not None and account.white_address.matches(ip))

    def _note_stranger(self, call: Call[Any], refused: AccessRefused) -> None:
        refused.claimed = "" if refused.reason == UNREADABLE else shown(_claimed(call))
        self._note(_asked(call)._replace(account=refused.claimed), refused.reason, "")

    def _note(self, asked: _Asked, reason: str, resource: str) -> None:
        if asked.code in self._changes:
            self._tally.count(reason)
            return
        self._tally.add(
            reason,
            host_of(asked.remote),
            remote=asked.remote,
            account=asked.account,
            request_code=asked.code,
            resource=resource,
        )


def _asked(call: Call[Any]) -> _Asked:
    return _Asked(call.connection.remote, call.account, call.code)


def _claimed(call: Call[Any]) -> str:
    """The access key that a request names, whether it is its sender's or not."""
    try:
        return call.texts().get(ACCESS_KEY, "")
    except ProtocolError:
        return ""
