"""Telephone numbers in a text, as callback fraud writes them.

Security: works on hostile text; every pattern is linear.
"""

import re

_DIGITS = re.compile(r"\d{3}(?:[ .\-]{1,3}\d{4}|\d{7})")  # what stands in every number below, and is found faster
_PHONE = re.compile(
    r"(?<![\w.-])(?:\+\d{1,3}[ .\-]?|1[ .\-]{1,3})?(?:\(\d{3}\)[ .\-]{0,3}|\d{3}[ .\-]{1,3})"
    r"\d{3}[ .\-]{1,3}\d{4}(?![\w-])|(?<![\w.-])\+1?8[0-9]{9,10}\b"
)


def find_phone(text: str) -> str:
    """Return the first telephone number of a folded text, or ""."""
    found = _PHONE.search(text) if _DIGITS.search(text) else None
    return found.group() if found else ""
