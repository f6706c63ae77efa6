"""A run's way to its cluster: which nameservers, account and TLS, and how long it waits.

Owns the order in which they count: options, Java properties, variables, the context. Must not know commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eruca.admin import contexts, security
from eruca.admin.client import Admin, nameserver_addresses
from eruca.admin.contexts import Context
from eruca.admin.errors import BadValue

NAMESERVERS = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR")
"""The variables with the nameservers: that of Apache's mqadmin counts before that of Python's clients."""


@dataclass(frozen=True, slots=True)
class Session:
    """A cluster to work with, and the context that named it, if one did."""

    admin: Admin
    name: str
    """Of the context; "" without one."""
    context: Context


def opened(
    given: Mapping[str, str],
    environment: Mapping[str, str],
    properties: Mapping[str, str],
    *,
    timeout: float | None = None,
    account: bool = True,
) -> Session:
    """The session of a command line; nothing is connected yet. Raises AdminError.

    Without ``account`` the context's account is left out: a command that prints it may take long. It is that of the
    context's cluster alone: where other nameservers are named, it is neither read nor sent.
    """
    if "n" in given and not nameserver_addresses(given["n"]):
        raise BadValue("option -n (--namesrvAddr) is empty: name a nameserver as host:port, or leave the option out")
    name, context = contexts.chosen(environment) or ("", Context(nameservers=""))
    variables = (environment[each] for each in NAMESERVERS if environment.get(each))
    named = given.get("n") or properties.get("rocketmq.namesrv.addr") or next(variables, None)
    nameservers = nameserver_addresses(named or context.nameservers)
    is_elsewhere = not {*nameservers} & {*nameserver_addresses(context.nameservers)}
    if context.tls:
        properties = {"tls.enable": "true", "tls.config.file": context.tls, **properties}
    credentials = security.find_credentials(properties, environment)
    if credentials is None and account and not is_elsewhere:
        credentials = contexts.account_of(context)
    tls = security.make_context(security.find_tls(properties))
    waits = seconds(given) or timeout
    return Session(Admin(nameservers, credentials=credentials, tls=tls, timeout=waits), name, context)


def seconds(given: Mapping[str, str]) -> float | None:
    """What ``--timeout`` says; None without it. Raises BadValue."""
    text = given.get("timeout")
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found <= 3600:
        raise BadValue(f"option --timeout takes seconds, more than 0 and at most 3600, not '{text}'")
    return found
