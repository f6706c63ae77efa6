"""Text whose figures change from run to run, made comparable without losing its columns.

Every replacement keeps the length, so that widths and alignment are still compared.
"""

import re

_ADDRESS = r"\d+\.\d+\.\d+\.\d+:\d+"
_CLIENT_ID = r"\d+\.\d+\.\d+\.\d+@[\w#-]+"
_TIME = r"\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d(?:[,.:]\d{3})?"
_MESSAGE_ID = r"\b(?:[0-9A-F]{56}|[0-9A-F]{32})\b"
_MILLISECONDS = r"\b1[5-9]\d{11}\b"
_CLOCK = r"\b\d+(?=ms\))"
_VARIABLE = re.compile("|".join((_ADDRESS, _CLIENT_ID, _TIME, _MESSAGE_ID, _MILLISECONDS, _CLOCK)))


def normalised(text: str) -> str:
    """`text` with each digit of an address, id, time or duration as 9 (hex digits of ids too)."""
    return _VARIABLE.sub(lambda found: _mask(found.group()), text)


def _mask(text: str) -> str:
    if re.fullmatch(_MESSAGE_ID, text):
        return "9" * len(text)
    return re.sub(r"\d", "9", text)
