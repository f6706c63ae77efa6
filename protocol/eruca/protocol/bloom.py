"""The Bloom filter bits of a consumer group in ``consumerFilter.json``.

Owns the size of the filter and the positions of a name's bits (BloomFilter in 4.9.7, over Guava's murmur3_128). Must
not know consumers, or what the bits are used for. Pure.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from eruca.protocol.bodies import BloomFilterData

_WORD = 0xFFFFFFFFFFFFFFFF
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


class BloomFilter(NamedTuple):
    """A filter of ``bits`` bits in which each name sets ``hashes`` of them."""

    bits: int
    hashes: int

    @classmethod
    def of(cls, error_rate: int, names: int) -> BloomFilter:
        """The filter for ``names`` names (1 or more) at an error rate in percent (1 to 99)."""
        rate = error_rate / 100
        hashes = math.ceil(_log(0.5, rate))
        bits = math.ceil(names * _log(2, 1 / rate) * _log(2, math.e))
        return cls(8 * math.ceil(bits / 8), hashes)

    def data(self, name: str) -> BloomFilterData:
        """The bits of one name."""
        hashed = murmur3(name.encode())
        low, high = _int(hashed), _int(hashed >> 32)
        positions = []
        for number in range(1, self.hashes + 1):
            place = _int(low + number * high)
            positions.append((~place if place < 0 else place) % self.bits)
        return BloomFilterData(bit_num=self.bits, bit_pos=tuple(positions))

    def fits(self, data: BloomFilterData | None) -> bool:
        """Whether ``data`` belongs to a filter with these parameters."""
        return data is not None and data.bit_num == self.bits and len(data.bit_pos) == self.hashes


def _log(base: float, value: float) -> float:
    return math.log(value) / math.log(base)


def _int(value: int) -> int:
    """The low 32 bits, as a Java ``int``."""
    return ((value + 2**31) & 0xFFFFFFFF) - 2**31


def murmur3(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0."""
    one = two = 0
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        one ^= _mixed(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        one = (_rotated(one, 27) + two) & _WORD
        one = (one * 5 + 0x52DCE729) & _WORD
        two ^= _mixed(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        two = (_rotated(two, 31) + one) & _WORD
        two = (two * 5 + 0x38495AB5) & _WORD
    rest = data[whole:]
    two ^= _mixed(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
    one ^= _mixed(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    one ^= len(data)
    two ^= len(data)
    one = (one + two) & _WORD
    two = (two + one) & _WORD
    return (_final(one) + _final(two)) & _WORD


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _WORD


def _mixed(value: int, first: int, by: int, second: int) -> int:
    return (_rotated((value * first) & _WORD, by) * second) & _WORD


def _final(value: int) -> int:
    value = ((value ^ value >> 33) * 0xFF51AFD7ED558CCD) & _WORD
    value = ((value ^ value >> 33) * 0xC4CEB9FE1A85EC53) & _WORD
    return value ^ value >> 33
