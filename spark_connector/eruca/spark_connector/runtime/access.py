"""How a cluster is reached: its nameservers, an account, TLS, a namespace. The same options for reading and writing.

Owns these options and the client settings that they mean; a value of ``Access`` names a connection, and equal ones
share it. Files are read where they are used, so each executor must have them under the same path.
Invariant: no secret is part of a ``repr`` or of an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from eruca.client import ClientSettings, Credentials, Tls
from eruca.client.errors import BadConfig
from eruca.client.namespaces import check_namespace
from eruca.protocol import names
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.option_parsers import flag, text


@dataclass(frozen=True, kw_only=True)
class Access:
    """The options about the connection; ``None`` means not given."""

    name_server: str
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_verify: bool = True
    tls_check_hostname: bool = True
    tls_server_name: str | None = None
    namespace: str | None = None
    pull_group: str = names.TOOLS_GROUP
    """In whose name is pulled; an option of the source alone."""

    @property
    def access(self) -> Access:
        """This part alone."""
        return Access(**{each.name: getattr(self, each.name) for each in fields(Access)})

    @property
    def settings(self) -> ClientSettings:
        """What it means to the client."""
        account = None
        if self.access_key is not None and self.secret_key is not None:
            account = Credentials(self.access_key, self.secret_key, self.security_token)
        tls = None
        if self.tls:
            tls = Tls(
                ca_file=self.tls_ca_file,
                certificate_file=self.tls_certificate_file,
                key_file=self.tls_key_file,
                key_password=self.tls_key_password,
                verify=self.tls_verify,
                check_hostname=self.tls_check_hostname,
                server_name=self.tls_server_name,
            )
        return ClientSettings(nameserver=self.name_server, credentials=account, tls=tls, namespace=self.namespace)


def check_access(values: Mapping[str, Any]) -> None:
    """Raise BadOption for options of the connection that contradict one another."""
    if ("access_key" in values) != ("secret_key" in values) or (
        "security_token" in values and "access_key" not in values
    ):
        raise BadOption("Give accessKey and secretKey together (and securityToken with them), or none of them.")
    if not values.get("tls"):
        for option, (name, _) in READERS.items():
            if name.startswith("tls_") and name in values:
                raise BadOption(f'The option {option} has no effect without tls: add tls="true".')
    if "namespace" in values:
        try:
            check_namespace(values["namespace"])
        except BadConfig as error:
            raise BadOption(f"The option {error}.") from None


READERS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "nameServer": ("name_server", text),
    "accessKey": ("access_key", text),
    "secretKey": ("secret_key", text),
    "securityToken": ("security_token", text),
    "tls": ("tls", flag),
    "tlsCaFile": ("tls_ca_file", text),
    "tlsCertificateFile": ("tls_certificate_file", text),
    "tlsKeyFile": ("tls_key_file", text),
    "tlsKeyPassword": ("tls_key_password", text),
    "tlsVerify": ("tls_verify", flag),
    "tlsCheckHostname": ("tls_check_hostname", flag),
    "tlsServerName": ("tls_server_name", text),
    "namespace": ("namespace", text),
}
"""Every option of the connection by its public name: the field it fills, and what reads its text."""
