"""Columns of numbers as a PNG file, without a plotting library.

Why no library: matplotlib and Pillow are native packages of 7 to 50 MB, which everybody who installs the pipelines
would carry for this one picture. All that it needs of the format is a palette and compressed rows (``_encode``). More
than columns, such as axes, curves or other letters, is a reason to take Pillow in place of this module.

Pure: numbers in, bytes out. Letters are drawn as capitals from a font of three by five points; a character that it does
not have is a gap. The SVG of ``charts`` has the texts as they are.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 300
_LEFT, _TOP, _BASE = 90, 40, 250
_POINT: Final = 2
"""Pixels of one point of a letter."""
_WHITE, _INK, _BAR, _GREY = 0, 1, 2, 3
_PALETTE: Final = bytes((255, 255, 255, 34, 34, 34, 58, 110, 165, 136, 136, 136))
_FONT: Final = {
    character: rows
    for line in (
        "0:75557;1:26227;2:71747;3:71717;4:55711;5:74717;6:74757;7:71122;8:75757;9:75717",
        "A:75755;B:65656;C:74447;D:65556;E:74747;F:74744;G:74557;H:55755;I:72227;J:11157;K:55655;L:44447;M:57755",
        "N:75555;O:75557;P:75744;Q:75571;R:75655;S:74717;T:72222;U:55557;V:55552;W:55775;X:55255;Y:55222;Z:71247",
        "-:00700;_:00007;.:00002;,:00024;::02020;/:11244;%:51245;(:12221;):42224;<:12421;>:42124;+:02720;=:07070",
    )
    for character, rows in ((each[0], each[2:]) for each in line.split(";"))
}


def png(title: str, columns: Sequence[tuple[str, float]], unit: str) -> bytes:
    """Columns side by side with their labels, as a PNG file."""
    page = [bytearray(WIDTH) for _ in range(HEIGHT)]
    top = max((value for _, value in columns), default=0) or 1
    _write(page, title, _LEFT, 12)
    for text, y in ((f"{top:,.6g}", _TOP), (f"0 {unit}", _BASE - 5 * _POINT)):
        _write(page, text, max(2, _LEFT - 8 - _length(text)), y)
    _fill(page, (_LEFT, _BASE, WIDTH - 20, _BASE + 1), _GREY)
    wide = (WIDTH - 20 - _LEFT) / max(1, len(columns))
    free = 0
    for place, (label, value) in enumerate(columns):
        left = _LEFT + place * wide
        high = round(value / top * (_BASE - _TOP))
        _fill(page, (round(left), _BASE - high, max(round(left) + 1, round(left + wide * 0.85)), _BASE), _BAR)
        if left >= free and left + _length(label) < WIDTH:
            _write(page, label, round(left), _BASE + 10)
            free = round(left) + _length(label) + 12
    return _encode(page)


def _length(text: str) -> int:
    return len(text) * 4 * _POINT


def _write(page: list[bytearray], text: str, x: int, y: int) -> None:
    for place, character in enumerate(text.upper()):
        for down, row in enumerate(_FONT.get(character, "")):
            for across in range(3):
                if int(row) >> (2 - across) & 1:
                    left, above = x + (place * 4 + across) * _POINT, y + down * _POINT
                    _fill(page, (left, above, left + _POINT, above + _POINT), _INK)


def _fill(page: list[bytearray], box: tuple[int, int, int, int], colour: int) -> None:
    """The points from left and top up to, and without, right and bottom."""
    left, top, right, bottom = box
    for row in page[top:bottom]:
        row[left:right] = bytes((colour,)) * len(row[left:right])


def _encode(page: list[bytearray]) -> bytes:
    """The file: its header, the palette, rows of one byte a point without a filter, and its end."""
    rows = b"".join(b"\0" + bytes(row) for row in page)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", WIDTH, len(page), 8, 3, 0, 0, 0)),
        (b"PLTE", _PALETTE),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
