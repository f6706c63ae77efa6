"""How a cluster is reached: its nameservers, an account, TLS, a namespace. The same options for reading and writing.

Owns these options and the client settings that they mean; a value of ``Access`` names a connection, and equal ones
share it. Files are read where they are used, so each executor must have them under the same path.
Invariant: no secret is part of a ``repr`` or of an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from eruca.client import ClientSettings, Credentials, Tls
from eruca.client.errors import BadConfig
from eruca.client.namespaces import check_namespace
from eruca.protocol import names
from eruca.remoting.tls import TlsWords
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.option_parsers import flag, option, readers_of, text


class _Settings(ClientSettings):
    tls_words = TlsWords(
        on='the option tls="true"',
        off='leave the option tls out, or set tls="false"',
        trust="the option tlsCaFile",
        certificate="the options tlsCertificateFile and tlsKeyFile",
        name="say which one is expected with the option tlsServerName",
    )


@dataclass(frozen=True, kw_only=True)
class Access:
    """The options about the connection; ``None`` means not given."""

    name_server: str = option(text)
    access_key: str | None = option(text, None)
    secret_key: str | None = option(text, None, secret=True)
    security_token: str | None = option(text, None, secret=True)
    tls: bool = option(flag, False)
    tls_ca_file: str | None = option(text, None)
    tls_certificate_file: str | None = option(text, None)
    tls_key_file: str | None = option(text, None)
    tls_key_password: str | None = option(text, None, secret=True)
    tls_verify: bool = option(flag, True)
    tls_check_hostname: bool = option(flag, True)
    tls_server_name: str | None = option(text, None)
    namespace: str | None = option(text, None)
    pull_group: str = names.TOOLS_GROUP
    """In whose name is pulled; no option of the sink."""

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
        return _Settings(nameserver=self.name_server, credentials=account, tls=tls, namespace=self.namespace)


def check_access(values: Mapping[str, Any]) -> None:
    """Raise BadOption for options of the connection that contradict one another."""
    if ("access_key" in values) != ("secret_key" in values) or (
        "security_token" in values and "access_key" not in values
    ):
        raise BadOption("Give accessKey and secretKey together (and securityToken with them), or none of them.")
    if not values.get("tls"):
        for public, (name, _) in READERS.items():
            if name.startswith("tls_") and name in values:
                raise BadOption(f'The option {public} has no effect without tls: add tls="true".')
    if "namespace" in values:
        try:
            check_namespace(values["namespace"])
        except BadConfig as error:
            raise BadOption(f"The option {error}.") from None


READERS: Final = readers_of(Access)
"""Every option of the connection."""
