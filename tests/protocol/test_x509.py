"""Until when certificates are valid, read from their bytes."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol.errors import ProtocolError
from eruca.protocol.x509 import validity

AUTHORITY = trustme.CA()


def der_of(certificate: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 2500])  # from 2050 on with four digits
def test_a_certificate_is_valid_until(year: int) -> None:
    end = datetime(year, 7, 3, 4, 5, 6, tzinfo=UTC)
    begin = datetime(1998, 1, 2, 3, 4, 5, tzinfo=UTC)
    made = AUTHORITY.issue_cert("a.example", not_before=begin, not_after=end)
    assert validity(der_of(made)) == (begin.timestamp(), end.timestamp())


WHOLE = der_of(AUTHORITY.issue_cert("a.example"))


@given(st.integers(0, len(WHOLE)), st.binary(max_size=4))
def test_other_bytes_are_no_certificate_or_one(at: int, other: bytes) -> None:
    for broken in (WHOLE[:at], WHOLE[:at] + other + WHOLE[at + len(other) :]):
        with suppress(ProtocolError):
            assert validity(broken).begin < 1 << 40


@pytest.mark.parametrize("broken", [b"", b"\x30", b"\x30\x84\xff\xff\xff\xff", b"-----BEGIN CERTIFICATE-----"])
def test_bytes_that_end_too_early(broken: bytes) -> None:
    with pytest.raises(ProtocolError):
        validity(broken)
