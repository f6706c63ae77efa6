"""Pictures of numbers as text. Pure: numbers in, text out."""

from __future__ import annotations

from collections.abc import Mapping


def bars(counts: Mapping[str, int], *, width: int = 40, most: int = 20) -> str:
    """A line for each name, the largest first; what is beyond ``most`` is summed up."""
    ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    shown, rest = ranked[:most], ranked[most:]
    if rest:
        shown.append((f"{len(rest)} others", sum(value for _, value in rest)))
    if not shown:
        return ""
    top = max(value for _, value in shown) or 1
    longest = max(len(name) for name, _ in shown)
    return "\n".join(
        f"{name.ljust(longest)}  {'█' * max(1 if value else 0, round(value / top * width))} {value:,}"
        for name, value in shown
    )
