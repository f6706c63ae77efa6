"""Charts of numbers: bars and sparklines as text, and columns as an SVG file.

Pure: numbers in, text out. Needs no plotting library. Names come from messages, so that they may be long, have
letters that take two columns, or control a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from rich.cells import cell_len, set_cell_size

from eruca.remoting.log_line import one_line

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 600
"""The width of all columns of an SVG together."""


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """One block for each value; adjacent values are summed where there are more than ``width``."""
    if not values:
        return ""
    step = -(-len(values) // width)
    sums = [sum(values[at : at + step]) for at in range(0, len(values), step)]
    top = max(sums) or 1
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(value / top * len(BLOCKS)))] if value else " " for value in sums)


def bars(counts: Mapping[str, int], *, columns: int = 80, width: int = 40, most: int = 20) -> str:
    """A line for each name, the largest first; names beyond ``most`` are summed in one line.

    The lines take ``columns`` at most, the longest bar ``width`` of them, and a name half of them.
    """
    ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    shown, rest = ranked[:most], ranked[most:]
    if rest:
        shown.append((f"{len(rest)} others", sum(value for _, value in rest)))
    if not shown:
        return ""
    top = max(value for _, value in shown) or 1
    names = [shortened(name, columns // 2) for name, _ in shown]
    longest = max(map(cell_len, names))
    width = max(1, min(width, columns - longest - len(f"   {top:,}")))
    return "\n".join(
        f"{set_cell_size(name, longest)}  {'█' * max(1 if value else 0, round(value / top * width))} {value:,}"
        for name, (_, value) in zip(names, shown, strict=True)
    )


def shortened(text: str, most: int) -> str:
    """A text in one line of ``most`` columns or fewer, without its middle: names that are alike differ at the end."""
    name = one_line(text)
    if cell_len(name) <= most:
        return name
    end = set_cell_size(name[::-1], most // 2)[::-1]
    return set_cell_size(name, most - most // 2 - 1) + "…" + end


def svg(title: str, columns: Sequence[tuple[str, float]], unit: str) -> str:
    """Columns side by side with their labels, as an SVG page."""
    top = max((value for _, value in columns), default=0) or 1
    high, left = 200, 60
    wide = WIDTH / max(1, len(columns))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + left + 20} {high + 90}" '
        'font-family="sans-serif" font-size="11">',
        f'<text x="{left}" y="18" font-size="14">{escape(title)}</text>',
        f'<text x="{left - 6}" y="42" text-anchor="end">{top:,.6g}</text>',
        f'<text x="{left - 6}" y="{high + 38}" text-anchor="end">0 {escape(unit)}</text>',
        f'<line x1="{left}" y1="{high + 38}" x2="{left + WIDTH}" y2="{high + 38}" stroke="#888"/>',
    ]
    every = max(1, -(-len(columns) // 12))
    for place, (label, value) in enumerate(columns):
        height = value / top * high
        x = left + place * wide
        parts.append(
            f'<rect x="{x:.1f}" y="{high + 38 - height:.1f}" width="{max(0.5, wide * 0.85):.1f}" '
            f'height="{height:.1f}" fill="#3a6ea5"><title>{escape(label)}: {value:,.6g}</title></rect>'
        )
        if place % every == 0:
            parts.append(
                f'<text x="{x:.1f}" y="{high + 54}" transform="rotate(25 {x:.1f} {high + 54})">{escape(label)}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])
