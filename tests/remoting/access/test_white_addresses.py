"""Patterns of addresses: what each form means, and which are refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.remoting.access.white_addresses import AddressPattern


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.0.0.7", ["10.0.0.7", "::ffff:10.0.0.7"], ["10.0.0.8", "110.0.0.7", "::10.0.0.7", "", "localhost"]),
        ("10.0.0.7,10.0.0.9", ["10.0.0.7", "10.0.0.9"], ["10.0.0.8"]),
        ("10.0.0.7,2001:db8::7", ["10.0.0.7", "2001:DB8:0::7"], ["2001:db8::8"]),
        ("10.0.0.{7,9}", ["10.0.0.7", "10.0.0.9"], ["10.0.0.8", "10.0.0.79"]),
        ("10.0.0.*", ["10.0.0.0", "10.0.0.255"], ["10.0.1.0", "10.0.10.1"]),
        ("10.0.*.*", ["10.0.0.0", "10.0.255.1"], ["10.1.0.0"]),
        ("10.*.*.*", ["10.9.8.7"], ["11.9.8.7", "100.9.8.7"]),
        ("10.0.0.7-9", ["10.0.0.7", "10.0.0.9"], ["10.0.0.6", "10.0.0.10", "10.0.0.70"]),
        ("10.0.7-9.*", ["10.0.7.0", "10.0.9.255"], ["10.0.10.0", "10.0.6.255"]),
        ("10.0.0.0-0", ["10.0.0.0"], ["10.0.0.1"]),
        ("2001:db8::7", ["2001:db8:0:0:0:0:0:7", "2001:DB8::7", "2001:db8::7%eth0"], ["2001:db8::8", "32.1.13.184"]),
        ("2001:db8::{7,f}", ["2001:db8::7", "2001:db8::F"], ["2001:db8::e"]),
        ("2001:db8:*", ["2001:db8::", "2001:db8:1:2:3:4:5:6"], ["2001:db9::"]),
        ("2001:db8::1:*", ["2001:db8::1:0", "2001:db8::1:ffff"], ["2001:db8::2:0", "2001:db8:1::1:0"]),
        ("2001:db8::7-1f", ["2001:db8::7", "2001:db8::1F"], ["2001:db8::6", "2001:db8::20"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:1:0", "2::ac5:78:200:ffff"], ["2::ac5:78:201:0", "2::ac5:79:1:0"]),
        ("::*", ["::", "::ffff"], ["::1:0"]),
        ("*", ["10.0.0.7", "2001:db8::7", "", "nowhere"], []),
        ("*.*.*.*", ["10.0.0.7", "2001:db8::7"], []),
        ("*:*:*:*:*:*:*:*", ["10.0.0.7", "2001:db8::7"], []),
        ("", [], ["10.0.0.7", "0.0.0.0", "::", ""]),
        ("  ", [], ["10.0.0.7", ""]),
    ],
)
def test_what_a_pattern_matches(pattern: str, inside: list[str], outside: list[str]) -> None:
    matches = AddressPattern(pattern).matches

    assert [each for each in inside if not matches(each)] == []
    assert [each for each in outside if matches(each)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "10.0.0",
        "10.0.0.0.7",
        "10.0.0.256",
        "10.0.0.07",
        "10.0.0.7/24",
        "localhost",
        " 10.0.0.7",
        "10.0.0.7, 10.0.0.9",
        "10.0.0.*,10.0.1.*",
        ",",
        "10.0.0.{}",
        "10.0.0.{7,}",
        "10.0.0.1{2,3}",
        "10.0.{0,1}.7}",
        "10.{0,1}",
        "*.0.0.7",
        "10.*.0.7",
        "10.0.7-9.3",
        "10.0.0.-9",
        "10.0.0.7-",
        "10.0.0.9-7",
        "10.0.0.7-256",
        "10.0.0.7-8-9",
        "10.0.0.a-b",
        "300.0.0.*",
        "10.0.*",
        "2001:db8::7/64",
        "2001:db8::12345",
        "2001:*:db8::",
        "2001:db8:*:*",
        "2001:db8:1-2:3",
        "1:2:3:4:5:6:7:8:*",
        "2001:db8::9-7",
        "2001:db8::7-10000",
        "fe80::1%eth0",
        ":*",
        "-",
        "{",
        "}",
    ],
)
def test_a_faulty_pattern_is_refused_with_a_sentence(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^the address pattern '.*' cannot be used: .+") as refused:
        AddressPattern(pattern)

    assert pattern in str(refused.value)


byte = st.integers(0, 255)
group = st.integers(0, 0xFFFF)


@given(st.tuples(byte, byte, byte, byte), st.integers(1, 3), byte, byte)
def test_a_range_of_ipv4_is_a_comparison(address: tuple[int, ...], at: int, one: int, other: int) -> None:
    low, high = sorted((one, other))
    parts = [str(part) for part in address]
    pattern = ".".join([*parts[:at], f"{low}-{high}", *["*"] * (3 - at)])

    assert AddressPattern(pattern).matches(".".join(parts)) == (low <= address[at] <= high)


@given(st.lists(group, min_size=8, max_size=8), group, group)
def test_a_range_of_ipv6_is_a_comparison(address: list[int], one: int, other: int) -> None:
    low, high = sorted((one, other))
    text = str(ipaddress.IPv6Address(b"".join(part.to_bytes(2, "big") for part in address)))
    start = ":".join(f"{part:x}" for part in address[:7])

    assert AddressPattern(f"{start}:{low:x}-{high:x}").matches(text) == (low <= address[7] <= high)
    assert AddressPattern(f"{start}:*").matches(text)


@given(st.text("0123456789abf.:*-{}, ", max_size=24), st.tuples(byte, byte, byte, byte))
def test_any_text_is_a_pattern_or_refused(text: str, address: tuple[int, ...]) -> None:
    try:
        pattern = AddressPattern(text)
    except ValueError as refused:
        assert "cannot be used" in str(refused)
    else:
        pattern.matches(".".join(map(str, address)))
        assert not pattern.matches("nowhere") or text.startswith("*")
