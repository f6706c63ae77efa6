"""Signatures: what they cover, and a value that Apache's own AclUtils computes."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eruca.protocol.signature import Credentials, sign


def expected(text: str, body: bytes, secret: str) -> str:
    return base64.b64encode(hmac.new(secret.encode(), text.encode() + body, hashlib.sha1).digest()).decode()


def test_the_values_in_the_order_of_their_names_and_then_the_body() -> None:
    assert sign({"topic": "T", "AccessKey": "me", "b": "2"}, b"body", "12345678") == expected(
        "me2T", b"body", "12345678"
    )


def test_a_signature_is_not_part_of_itself() -> None:
    assert sign({"a": "1", "Signature": "old"}, b"", "secret") == sign({"a": "1"}, b"", "secret")


def test_names_are_in_javas_order() -> None:
    # U+10000 is written with surrogates, which come before U+FFFD in Java.
    assert sign({"\ufffd": "1", "\U00010000": "2"}, b"", "secret") == expected("21", b"", "secret")


def test_credentials_sign_their_own_fields_too() -> None:
    fields = Credentials("me", "12345678", "token")({"topic": "T"}, b"body")

    assert fields == {
        "AccessKey": "me",
        "SecurityToken": "token",
        "Signature": expected("metokenT", b"body", "12345678"),
    }


def test_a_request_without_fields_and_body_is_signed() -> None:
    assert Credentials("me", "12345678")({}, b"")["Signature"] == expected("me", b"", "12345678")


def test_no_secret_is_shown() -> None:
    text = repr(Credentials("me", "the-secret", "the-token"))

    assert "me" in text
    assert "the-secret" not in text
    assert "the-token" not in text


@pytest.mark.parametrize(("access", "secret", "missing"), [("", "x", "access_key"), ("x", "", "secret_key")])
def test_an_empty_key_is_refused(access: str, secret: str, missing: str) -> None:
    with pytest.raises(ValueError, match=f"the {missing} is empty"):
        Credentials(access, secret)


@pytest.mark.parametrize("length", [1, 12, 63, 64, 65, 200])
def test_what_is_prepared_signs_as_the_account_does(length: int) -> None:
    account = Credentials("me", "ü" * length)
    fields = {"a": "group", "g": "1700000000123", "i": "sample", "AccessKey": "me"}
    sign_now = account.prepared(fields, "g", "i")
    for born, text, body in (("1700000000124", "KEYS\x01钥匙", b""), ("1", "", b"body" * 100)):
        expected = sign({**fields, "g": born, "i": text}, body, account.secret_key)
        assert sign_now(born.encode(), text.encode(), body) == expected.encode()
    with pytest.raises(ValueError, match="g is signed before i"):
        account.prepared(fields, "i", "g")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
@example({})
@example({"Signature": "x"})
@example({"n" * 2000: "a long name", "m": "another"})
def test_any_fields_are_signed_in_javas_order_also_when_they_come_again(fields: dict[str, str]) -> None:
    names = sorted((name for name in fields if name != "Signature"), key=lambda name: name.encode("utf-16-be"))
    for _ in range(2):
        text = "".join(fields[name] for name in names)
        assert sign(fields, b"body", "secret") == expected(text, b"body", "secret")
