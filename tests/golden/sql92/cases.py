"""Writes cases.json: the expressions and the properties that Apache's filter is asked about (see Capture.java).

    python cases.py

The cases of written.txt for every rule, then generated ones; seeded, so that the same file comes out again.
"""

import json
import random
from pathlib import Path

PROPERTIES: list[dict[str, str]] = [
    {},
    {"a": "5"},
    {"a": "6", "b": "x"},
    {"a": "5.0", "b": "it's"},
    {"a": "-5", "b": ""},
    {"a": "+7", "b": "5"},
    {"a": "007", "b": "7"},
    {"a": " 5", "b": "5 "},
    {"a": "2147483647", "b": "2147483648"},
    {"a": "2147483648", "b": "9223372036854775807"},
    {"a": "9223372036854775808", "b": "-9223372036854775808"},
    {"a": "-2147483648", "b": "-2147483649"},
    {"a": "5d", "b": "5.5f"},
    {"a": "5L", "b": "1e1"},
    {"a": "NaN", "b": "NaN"},
    {"a": "Infinity", "b": "-Infinity"},
    {"a": "-0.0", "b": "0.0"},
    {"a": "0x1p3", "b": "0x10"},
    {"a": "1e400", "b": "1e-400"},
    {"a": "true", "b": "false"},
    {"a": "TRUE", "b": "True"},
    {"a": "FALSE", "b": "no"},
    {"a": "abc", "b": "abc"},
    {"a": "abcdef", "b": "cd"},
    {"b": "5"},
    {"b": "x", "c": "5.5"},
    {"a": "5", "b": "5", "c": "5"},
    {"a": "\u0665", "b": "\uff15"},  # digits of other scripts
    {"a": "\U0001d7d3", "b": "\U0001f600"},  # a digit that is two chars in Java
    {"a": "1_000", "b": "1,000"},
    {"a": ".5", "b": "5."},
    {"a": ".", "b": "-"},
    {"a": "0.1", "b": "0.10000000000000001"},
    {"a": "9007199254740993", "b": "9007199254740992.0"},
    {"a": "\t5\n", "b": "\u00a05"},
    {
        "a": "5",
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "contains": "x",
        "startswith": "y",
        "ENDSWITH": "z",
        "_x": "1",
        "$y": "2",
    },
    {"a": "h\u00e9llo", "b": "\u4f60\u597d", "A": "upper"},
    {"a": "\u0130", "b": "tr\u00fce"},
    {"a": "00000000000000000000000000000000000000005", "b": "-00000000000000000000000000000000000000005"},
    {"a": "0x1.8p1f", "b": "0X.8P-1"},
    {"a": "+Infinity", "b": "nan"},
    {"a": "1e", "b": "1e+5"},
]

HERE = Path(__file__).parent

MORE = [
    "",
    " ",
    "\n",
    "a = 5 -- to the end\n",
    "a = 5 -- to the end\nAND b = '5'",
    "a = 5 -- to the end\r\nAND b = '5'",
    "a = 5 -- to the end\rAND b = '5'",
    "-- first\na = 5",
    "a\t=\r\n5\f",
    "a\u000b= 5",
    "a = 5\u0000",
    "a\u00a0= 5",
    "a = 'two\nlines'",
    "a = 'nul\u0000'",
    "a = '\U0001f600'",
    "b = '\U0001f600'",
    "b CONTAINS '\U0001f600'",
    "(" * 20 + "a = 5" + ")" * 20,
    "NOT " * 20 + "a = 5",
    "- " * 20 + "5 = a",
    "+" * 20 + "5 = a",
    " OR ".join(f"a = {number}" for number in range(1, 60)),
    " AND ".join(f"a <> '{number}'" for number in range(60)),
    "a IN (" + ", ".join(f"'{number}'" for number in range(200)) + ")",
    "a = 5" + " = TRUE" * 20,
    "a = '" + "x" * 2000 + "'",
]


def operand(rand: random.Random) -> str:
    kind = rand.random()
    if kind < 0.4:
        return rand.choice("abcab")
    if kind < 0.6:
        return rand.choice(["5", "6", "0", "7", "-5", "2147483648", "5L", "+5", "(5)", "-(5)"])
    if kind < 0.7:
        return rand.choice(["5.0", "5.5", ".5", "5.", "1e1", "-5.5"])
    if kind < 0.85:
        return rand.choice(["'5'", "'x'", "''", "'abc'", "'it''s'", "'true'"])
    if kind < 0.93:
        return rand.choice(["TRUE", "FALSE", "true"])
    return rand.choice(["NULL", "-a", "(a)", "+b"])


def text(rand: random.Random) -> str:
    return rand.choice(["'5'", "'x'", "''", "'abc'", "'bc'", "'.'", "'it''s'"])


def condition(rand: random.Random, depth: int) -> str:
    kind = rand.random()
    negated = rand.choice(["", "", "NOT "])
    if depth and kind < 0.35:
        return f"{condition(rand, depth - 1)} {rand.choice(['AND', 'OR', 'and'])} {condition(rand, depth - 1)}"
    if depth and kind < 0.45:
        return f"({condition(rand, depth - 1)})"
    if depth and kind < 0.52:
        return f"NOT {condition(rand, depth - 1)}"
    if depth and kind < 0.56:
        return f"({condition(rand, depth - 1)}) {rand.choice(['=', '<>'])} ({condition(rand, depth - 1)})"
    if kind < 0.72:
        return f"{operand(rand)} {rand.choice(['=', '<>', '>', '>=', '<', '<='])} {operand(rand)}"
    if kind < 0.78:
        return f"{operand(rand)} {negated}BETWEEN {operand(rand)} AND {operand(rand)}"
    if kind < 0.84:
        return f"{rand.choice('abc')} {negated}IN ({', '.join(text(rand) for _ in range(rand.randint(1, 6)))})"
    if kind < 0.9:
        return f"{operand(rand)} IS {negated}NULL"
    if kind < 0.97:
        return f"{operand(rand)} {negated}{rand.choice(['CONTAINS', 'STARTSWITH', 'endswith'])} {text(rand)}"
    return rand.choice(["a", "TRUE", "FALSE", "NULL", "b", "5"])


def broken(rand: random.Random, whole: str) -> str:
    """An expression with one character gone, doubled or exchanged."""
    at = rand.randrange(len(whole))
    return whole[:at] + rand.choice(["", whole[at] * 2, rand.choice("()'=<>-+5aL. ,#")]) + whole[at + 1 :]


def expressions() -> list[str]:
    rand = random.Random(92)
    written = (HERE / "written.txt").read_text().rstrip("\n").split("\n")
    found = [part for line in written for part in line.split("|")] + MORE
    made = [condition(rand, 2) for _ in range(900)]
    found += made
    found += [broken(rand, rand.choice(made)) for _ in range(400)]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    rows = ",\n".join(json.dumps(value) for value in PROPERTIES)
    texts = ",\n".join(json.dumps(value) for value in expressions())
    content = f'{{"properties": [\n{rows}\n],\n"expressions": [\n{texts}\n]}}\n'
    (HERE / "cases.json").write_text(content)
