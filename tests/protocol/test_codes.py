"""Codes, languages and versions."""

from __future__ import annotations

import pytest

from eruca.protocol import api
from eruca.protocol.codes import LANGUAGES, RequestCode, version_name


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"),
        (28, "V3_0_7_SNAPSHOT"),
        (37, "V3_0_11"),
        (62, "V3_1_8_SNAPSHOT"),
        (121, "V3_4_9"),
        (137, "V3_5_8"),
        (213, "V4_0_0"),
        (317, "V4_5_2"),
        (407, "V4_9_7"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (9999, "HIGHER_VERSION"),
    ],
)
def test_version_names(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name


def test_language_codes() -> None:
    assert (LANGUAGES[0], LANGUAGES[3], LANGUAGES[9], LANGUAGES[12]) == ("JAVA", "PYTHON", "GO", "RUST")


def test_every_code_has_one_entry_in_the_table() -> None:
    assert sorted(endpoint.code for endpoint in api.ENDPOINTS) == sorted(RequestCode)
