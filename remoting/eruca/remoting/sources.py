"""Where a configuration comes from: file, environment, command line and defaults, read into one object.

Owns: the sources of texts and their order; the place of each value (``broker.conf:7``, ``ERUCA_LISTEN_PORT``,
``--set``); files that hold secrets; what is refused and what is a warning when all is read.
Must not know: any particular key, and what a value means (``eruca.remoting.settings``).
Invariant: a configuration that ``read`` returns has no fault; else BadSetting names all of them, each with its place.

    start = read(BrokerConfig, text=properties_text, environment=os.environ, given=[Given("listenPort", "0", "--set")])
    start.config      # the BrokerConfig
    start.warnings    # sentences to log: unknown keys by name, values that look wrong
    start.origins     # {"listenPort": "--set", ...}; without the keys that have their defaults

A value is taken from the first of: the command line, an environment variable ``ERUCA_<FIELD>`` (``ERUCA_LISTEN_PORT``),
a further file that a setting names, the file, the variable that the field names itself (as RocketMQ takes
``NAMESRV_ADDR``), the default. The value of a secret may stand in a file of its own, which the key with ``File`` at its
end names. ``%d/`` at the beginning of a path is the folder of systemd's credentials, as in a unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from eruca.protocol import properties
from eruca.protocol.errors import ProtocolError
from eruca.remoting.settings import ENVIRONMENT_PREFIX, BadSetting, Check, Setting, settings_of, unknown_key

__all__ = ["Given", "Start", "assignment", "read", "text_of"]

C = TypeVar("C")

LONGEST_FILE = 1 << 20
"""Bytes of a properties file, at most."""
LONGEST_SECRET = 64 << 10
"""Bytes of a file that holds a secret, at most."""
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The variable in which systemd passes the folder of a unit's credentials."""
_NO_KEYS = {"ERUCA_PURE"}
"""Variables with the prefix that choose code, not a setting."""


class Given(NamedTuple):
    """A text for a key, and where it stands: ``broker.conf:7``, ``ERUCA_LISTEN_PORT``, ``--set``."""

    key: str
    text: str
    place: str


def assignment(item: str) -> Given:
    """What ``--set`` names, KEY=VALUE. Raises BadSetting."""
    key, equals, text = item.partition("=")
    if not equals or not key:
        raise BadSetting(f"--set takes KEY=VALUE, not {item!r}")
    return Given(key, text, "--set")


@dataclasses.dataclass(frozen=True)
class Start(Generic[C]):
    """A configuration and its origin.

    ``warnings`` are sentences for the log; ``origins`` are the places of the values that are no defaults; ``file`` and
    ``shown`` come from the command line: the named properties file, and the text to print instead of a start.
    """

    config: C
    warnings: list[str]
    origins: dict[str, str] = dataclasses.field(default_factory=dict)
    file: str | None = None
    shown: str | None = None


def read(
    kind: type[C],
    *,
    text: str = "",
    environment: Mapping[str, str] | None = None,
    given: Sequence[Given] = (),
    source: str = "the configuration",
    checks: Sequence[Check[C]] = (),
) -> Start[C]:
    """A ``kind`` from a properties ``text``, an environment and the command line.

    ``environment`` defaults to an empty one, ``given`` wins; ``source`` names the text in messages; ``checks`` look at
    values together, after all of them are read. Raises BadSetting with every fault.
    """
    reading = _Reading(kind, environment or {})
    layers = [
        list(reading.own_variables()),
        list(reading.entries(text, source)),
        list(reading.prefixed_variables()),
        given,
    ]
    layers.insert(2, list(reading.further_entries(layers)))
    for layer in layers:
        reading.take(layer)
    reading.check(checks)
    if reading.faults:
        raise BadSetting(*reading.faults, warnings=reading.warnings)
    return Start(reading.config, reading.warnings, reading.origins)


class _Reading(Generic[C]):
    """One reading: the values so far, their places, and what was found."""

    def __init__(self, kind: type[C], environment: Mapping[str, str]) -> None:
        self.config = kind()
        self.faults: list[str] = []
        self.warnings: list[str] = []
        self.origins: dict[str, str] = {}
        self._known = settings_of(kind)
        self._secrets = {f"{key}File": item for key, item in self._known.items() if item.rules.secret}
        self._environment = environment
        self._refused: set[str] = set()

    # ------------------------------------------------------------------ the sources

    def own_variables(self) -> Iterator[Given]:
        """The variables that fields name themselves."""
        for key, item in self._known.items():
            name = item.rules.environment
            if name and self._environment.get(name):
                yield Given(key, self._environment[name], name)

    def prefixed_variables(self) -> Iterator[Given]:
        """``ERUCA_...``; an unknown variable keeps its own name, for a warning."""
        keys = {item.variable: key for key, item in self._known.items()}
        keys |= {f"{item.variable}_FILE": key for key, item in self._secrets.items()}
        for name, text in self._environment.items():
            if name.startswith(ENVIRONMENT_PREFIX) and name not in _NO_KEYS:
                yield Given(keys.get(name, name), text, name)

    def entries(self, text: str, source: str) -> Iterator[Given]:
        """The entries of a properties text, of which the last one with a key counts."""
        found: dict[str, Given] = {}
        try:
            for key, value, line in properties.entries(text):
                if key in found:
                    former = found.pop(key).place
                    self.warnings.append(f"{source}:{line}: {key} is set again; the value of {former} does not count")
                found[key] = Given(key, value, f"{source}:{line}")
        except ProtocolError as broken:
            self.faults.append(f"{source}: {broken}")
        if found and not any(key in self._known or key in self._secrets for key in found):
            first = next(iter(found.values()))
            self.faults.append(
                f"{first.place}: none of the {len(found)} keys in this file is known, the first is {first.key!r}: "
                "name a properties file of this daemon"
            )
            return
        yield from found.values()

    def further_entries(self, layers: Iterable[Iterable[Given]]) -> Iterator[Given]:
        """The entries of files that settings name; one that only a default names may be missing."""
        texts = {each.key: each for layer in layers for each in layer}
        for key, item in self._known.items():
            prefix, named = item.rules.more, texts.get(key)
            if prefix is None or (named is None and not Path(item.default).exists()):
                continue
            try:
                file = item.value(self._path(key, named.text)) if named is not None else item.default
                text = text_of(file)
            except BadSetting as fault:
                self.faults.append(f"{named.place if named is not None else key}: {fault}")
                continue
            for each in self.entries(text, file):
                if each.key.startswith(prefix):
                    yield each
                else:
                    self.warnings.append(f"{each.place}: {each.key} does not belong there; it is ignored")

    # ------------------------------------------------------------------ values

    def take(self, layer: Iterable[Given]) -> None:
        """Put the texts of a source into the configuration."""
        for each in layer:
            try:
                self._take(each)
            except BadSetting as fault:
                self._refused.add(each.key)
                self.faults.append(f"{each.place}: {fault}")

    def _take(self, each: Given) -> None:
        secret = self._secrets.get(each.key)
        if secret is not None:
            file = self._path(each.key, each.text)
            self._put(secret, _secret(each.key, file), f"{file}, named at {each.place}")
        elif each.key in self._known:
            item = self._known[each.key]
            self.warnings.extend(f"{each.place}: {doubt}" for doubt in _doubts(item, each.text))
            self._put(item, self._path(each.key, each.text) if item.rules.path else each.text, each.place)
        else:
            self.warnings.append(f"{each.place}: {unknown_key(each.key, self._known)}; it is ignored")

    def _put(self, item: Setting, text: str, place: str) -> None:
        item.put(self.config, item.value(text))
        self.origins[item.key] = place

    def _path(self, key: str, text: str) -> str:
        if not text.startswith("%d/"):
            return text
        folder = self._environment.get(CREDENTIALS)
        if not folder:
            raise BadSetting(
                f"{key}: {text!r} names a credential of systemd, and there are none ({CREDENTIALS} is not set); "
                "add LoadCredential= to the unit, or write an absolute path"
            )
        return folder + text[2:]

    # ------------------------------------------------------------------ all together

    def check(self, checks: Sequence[Check[C]]) -> None:
        """Look for values without effect, and for those that do not fit together."""
        for item in self._known.values():
            if item.rules.unmet is not None and item.get(self.config) != item.default:
                shown = f"{item.key}={item.text(self.config)}"
                self.warnings.append(f"{self._at(item.key)}{shown} has no effect: {item.rules.unmet}")
        for each in (each for check in checks for each in check(self.config, self.origins)):
            if each.key not in self._refused:
                sentences = self.faults if each.is_fault else self.warnings
                sentences.append(f"{self._at(each.key)}{each.key} {each.sentence}")

    def _at(self, key: str) -> str:
        return f"{self.origins[key]}: " if key in self.origins else ""


def _secret(key: str, file: str) -> str:
    """The content of a file that holds a secret, without the newline at its end."""
    path = Path(file)
    if not path.is_absolute():
        raise BadSetting(f"{key}: {file!r} is not allowed; write an absolute path, or %d/ and a credential's name")
    secret = _content(path, LONGEST_SECRET, lambda why: f"{key}: cannot read {file}: {why}")
    try:
        text = secret.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise BadSetting(f"{key}: {file} holds no text in UTF-8") from None
    if not text:
        raise BadSetting(f"{key}: {file} is empty; write the secret into it")
    return text


def text_of(file: str) -> str:
    """The text of a properties file. Raises BadSetting for one that cannot be read, or that holds no text."""
    data = _content(Path(file), LONGEST_FILE, lambda why: f"cannot read {file}: {why}; name a properties file")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data:
        line = data.partition(b"\0")[0].count(b"\n") + 1
        raise BadSetting(f"{file}:{line}: this is no text in UTF-8 (it is UTF-16, or binary): save the file as UTF-8")
    return properties.decode(data)


def _content(path: Path, most: int, sentence: Callable[[str], str]) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as fault:
        raise BadSetting(sentence(fault.strerror or str(fault))) from None
    if len(data) > most:
        raise BadSetting(sentence(f"it has more than {most} bytes"))
    return data


def _doubts(item: Setting, text: str) -> Iterator[str]:
    if item.kind is str and not item.rules.secret and text != text.strip():
        yield f"the value of {item.key} begins or ends with a blank, which is part of it: {text!r}"
