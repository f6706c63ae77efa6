"""Refusals are counted, and told once a minute for a reason and an address."""

from __future__ import annotations

from structlog.testing import capture_logs

from eruca.remoting.access.tally import Tally


class Minutes:
    """A clock in ms."""

    now = 0

    def __call__(self) -> int:
        return self.now


def test_a_reason_and_an_address_have_a_line_a_minute() -> None:
    clock = Minutes()
    tally = Tally(clock)
    with capture_logs() as said:
        for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1"):
            tally.add("no_signature", address, remote=address, group="")
        clock.now = 60_000
        tally.add("no_signature", "10.0.0.1", remote="10.0.0.1")
    assert tally.refused["no_signature"] == 5
    assert [(line["remote"], line["more"]) for line in said] == [("10.0.0.1", 0), ("10.0.0.2", 0), ("10.0.0.1", 2)]
    assert "group" not in said[0]


def test_ten_thousand_addresses_are_remembered() -> None:
    tally = Tally(Minutes())
    with capture_logs() as said:
        for number in range(10_000):
            tally.add("no_signature", f"address {number}")
        tally.add("no_signature", "address 0")
        assert len(said) == 10_000, "the first address is remembered"
        tally.add("no_signature", "one more")
        tally.add("no_signature", "address 0")
    assert len(said) == 10_002, "with one more all are forgotten"
