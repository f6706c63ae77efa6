"""FastStream's security objects as settings of Eruca's clients."""

from __future__ import annotations

from typing import Any

from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext

from eruca.client import Credentials, Tls


def settings_of(security: BaseSecurity | None) -> dict[str, Any]:
    """The fields of ClientSettings for this object: an account for SASLPlaintext, and TLS.

    Raises SetupError for a kind of security that RocketMQ does not have.
    """
    if security is None:
        return {}
    fields: dict[str, Any] = {}
    if isinstance(security, SASLPlaintext):
        fields["credentials"] = Credentials(security.username, security.password)
    elif type(security) is not BaseSecurity:
        raise SetupError(
            f"RocketMQBroker does not support {type(security).__name__}: give SASLPlaintext(access key, secret key), "
            "or settings=ClientSettings(...)."
        )
    if security.use_ssl:
        fields["tls"] = security.ssl_context or Tls()
    return fields
