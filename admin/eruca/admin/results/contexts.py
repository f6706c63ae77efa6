"""The contexts of an operator, as results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from eruca.admin import contexts
from eruca.admin.results.answer import WIDE, Result, Table


class NamedContext(Result, frozen=True, kw_only=True, rename="camel"):
    """A cluster of an operator."""

    name: str
    current: bool
    """Whether it is in use."""
    nameservers: str
    account: Annotated[str, WIDE]
    """The file of the account; "" without one."""
    account_command: Annotated[str, WIDE]
    tls: Annotated[str, WIDE]
    ask: bool
    output: str
    color: Annotated[str, WIDE]


class Contexts(Table[NamedContext], frozen=True, kw_only=True, rename="camel"):
    """All contexts, by name."""


def known_contexts(environment: Mapping[str, str]) -> Contexts:
    """The contexts of the operator's file. Raises AdminError."""
    found, current = contexts.known(environment)
    return Contexts(
        items=[
            NamedContext(
                name=name,
                current=name == current,
                nameservers=each.nameservers,
                account=each.account,
                account_command=each.account_command,
                tls=each.tls,
                ask=each.ask,
                output=each.output,
                color=each.color,
            )
            for name, each in sorted(found.items())
        ]
    )


def known_context(environment: Mapping[str, str], name: str) -> NamedContext:
    """One context; the one in use for "". Raises NotFound."""
    wanted = contexts.named(environment, name)
    return next(each for each in known_contexts(environment).items if each.name == wanted)
