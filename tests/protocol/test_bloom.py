"""The bits of consumer groups in Bloom filters, as Apache RocketMQ computes them."""

from pathlib import Path

from eruca.protocol.bloom import BloomFilter
from eruca.protocol.bodies import BloomFilterData

CAPTURED = Path(__file__).parents[1] / "golden" / "sql92" / "bloom.txt"


def test_filters_and_bits_are_apaches() -> None:
    lines = CAPTURED.read_text().splitlines()
    assert len(lines) == 45
    for line in lines:
        rate, names, bits, hashes, *captured = line.split(" ")
        bloom = BloomFilter.of(int(rate), int(names))
        assert bloom == (int(bits), int(hashes)), line
        for text in captured:
            name, _, positions = text.partition("=")
            assert str(list(bloom.data(name).bit_pos)).replace(" ", "") == positions, line


def test_bits_fit_the_filter_they_are_of() -> None:
    bloom = BloomFilter.of(20, 64)
    assert bloom.fits(bloom.data("g#T")) and bloom.data("g#T") == BloomFilterData(bit_num=216, bit_pos=(162, 52, 132))
    assert not bloom.fits(None)
    assert not bloom.fits(BloomFilter.of(20, 32).data("g#T"))
    assert not bloom.fits(BloomFilterData(bit_num=216, bit_pos=(162, 52)))
