"""The reference of settings is what the code is: every key, its bounds, its meaning, and whether it has an effect."""

from __future__ import annotations

import re

import pytest

from eruca.broker.config import BrokerConfig
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.settings import settings_of
from tests.house.configuration import COMMAND, PAGE, meaning, page
from tests.house.tree import ROOT, product_modules

KINDS = [BrokerConfig, NamesrvConfig]
ROOTS = {BrokerConfig: ("broker", "remoting", "standalone"), NamesrvConfig: ("nameserver", "remoting")}


def test_the_page_is_that_of_the_fields() -> None:
    assert PAGE.read_text() == page(), f"docs/configuration.md is not that of the fields: run `{COMMAND}`"


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_with_an_effect_has_a_meaning_in_a_sentence(kind: type) -> None:
    silent = [
        key
        for key, item in settings_of(kind).items()
        if item.rules.effect and not re.fullmatch(r".+\.", meaning(kind, item))
    ]

    assert silent == [], "write a sentence as a string under the field"


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_effect_is_not_read_and_the_rest_is(kind: type) -> None:
    """A field counts as read where a module of its daemon, or of what daemons share, has it as an attribute."""
    texts = [(ROOT / file).read_text() for file in product_modules() if file.parts[0] in ROOTS[kind]]
    attributes = {name for text in texts for name in re.findall(r"\.([a-z_0-9]+)\b", text)}
    wrong = [
        key
        for key, item in settings_of(kind).items()
        if item.rules.effect != (item.place[-1] in attributes or item.rules.more is not None)
    ]

    assert wrong == [], "setting(..., effect=False) is for fields that nothing reads"
