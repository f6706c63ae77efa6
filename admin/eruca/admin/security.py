"""Credentials and TLS of mqadmin, from the places where Apache's mqadmin looks for them.

Owns the lookup: Java properties (``-Dname=value`` in ``JAVA_OPT`` or before the command), the account in
``conf/tools.yml`` below ``ROCKETMQ_HOME``, the ``tls.client.*`` properties and their file. Unlike Apache's, a server's
certificate is checked unless the properties switch that off. Invariant: no secret is ever printed.
"""

from __future__ import annotations

import shlex
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from eruca.admin.errors import AdminError
from eruca.protocol import properties
from eruca.protocol.signature import Credentials
from eruca.remoting import BadTls, Tls
from eruca.remoting.credentials import read_credentials

JavaProperties = dict[str, str]


def split_properties(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[JavaProperties, Sequence[str]]:
    """The Java properties of a command line and of JAVA_OPT, and the arguments that follow. Raises AdminError."""
    try:
        found = [each for each in shlex.split(environment.get("JAVA_OPT", "")) if each.startswith("-D")]
    except ValueError as error:
        raise AdminError(f"the variable JAVA_OPT cannot be read: {error}") from None
    count = next((at for at, each in enumerate(arguments) if not each.startswith("-D")), len(arguments))
    pairs = (each[2:].partition("=") for each in (*found, *arguments[:count]))
    return {name: value for name, _, value in pairs}, arguments[count:]


def find_credentials(given: Mapping[str, str], environment: Mapping[str, str]) -> Credentials | None:
    """The account of ``conf/tools.yml``; None without that file or without an account in it. Raises AdminError."""
    try:
        return read_credentials(given.get("rocketmq.home.dir") or environment.get("ROCKETMQ_HOME"))
    except ValueError as error:
        raise AdminError(str(error)) from None


def find_tls(given: Mapping[str, str]) -> Tls | None:
    """The TLS settings; None unless ``tls.enable=true``. Raises AdminError."""
    if not _is_true(given.get("tls.enable", "false")):
        return None
    from eruca.remoting.settings import BadSetting, settings_of  # only encrypted connections need settings
    from eruca.remoting.sources import Given, read
    from eruca.remoting.tls_settings import TLS_FILE, TlsClientSettings

    file = Path(given.get("tls.config.file", TLS_FILE))
    try:
        known = {**given, **properties.parse(properties.decode(file.read_bytes()))}
    except FileNotFoundError:
        if "tls.config.file" in given:
            raise AdminError(f"the file {file}, which tls.config.file names, is not there") from None
        known = dict(given)
    except (OSError, ValueError) as error:
        raise AdminError(f"{file} cannot be read: {error}") from None
    ours = settings_of(TlsClientSettings)
    try:
        texts = [Given(key, text, "mqadmin") for key, text in known.items() if key in ours]
        return read(TlsClientSettings, given=texts).config.client
    except BadSetting as error:
        raise AdminError(f"TLS cannot be used: {error}") from None


def _is_true(text: str) -> bool:
    plain = text.strip().lower()
    if plain not in ("true", "false"):
        raise AdminError(f"-Dtls.enable={text} is neither: write true or false")
    return plain == "true"


def make_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The TLS context of connections. Raises AdminError for files that cannot be used."""
    try:
        return tls.context() if tls is not None else None
    except BadTls as error:
        raise AdminError(f"TLS cannot be used: {error}") from None
