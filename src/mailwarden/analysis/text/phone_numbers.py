"""Finds phone numbers in a text as callback fraud writes them: North American, with a country code, or named.

Security: works on hostile text; every pattern is linear.
"""

import re

import re2

_DIGITS = re.compile(r"\d{3}(?:[ .\-]{1,3}\d{4}|\d{7})")  # occurs in every number below, and is faster to find
_PHONE = re.compile(
    r"(?<![\w.-])(?:\+\d{1,3}[ .\-]?|1[ .\-]{1,3})?(?:\(\d{3}\)[ .\-]{0,3}|\d{3}[ .\-]{1,3})"
    r"\d{3}[ .\-]{1,3}\d{4}(?![\w-])|(?<![\w.-])\+1?8[0-9]{9,10}\b"
)
# Other countries group digits like sums and dates: a country code or a word must mark them as a number.
_ABROAD = re2.compile(
    r"(?:^|[^\w.+-])(\+[1-9]\d{0,2}[ ./-]?(?:\(0\) ?)?\d[\d ./-]{5,16}\d)\b"
    r"|\b(?:tel|telefon[a-z]*|telephon[a-z]*|hotline|rufnummer|nummer|numero|ruf(?:en|t)?|wahlen sie"
    r"|appele[rz]|composez|llam[a-z]{1,6}|marque|chiam[a-z]{1,4}|lig(?:ue|ar)|bel(?:len|t)?)\b"
    r"[^\d+\n]{0,60}?(\(?0[\d ()./-]{6,18}\d|[2-9]\d{1,2}[ .]\d[\d .]{4,8}\d)\b"
    r"|\b(?:unter|au|allo|al) (\(?0[\d ()./-]{6,18}\d)\b"
)
_DATE = re.compile(r"\d\d?[ ./-]\d\d?[ ./-]\d{4}")
_FEWEST, _MOST = 8, 15  # digits


def find_phone(text: str) -> str:
    """Return the first phone number of a folded text, or ""."""
    found = _PHONE.search(text) if _DIGITS.search(text) else None
    return found.group() if found else _find_abroad(text)


def _find_abroad(text: str) -> str:
    for found in _ABROAD.finditer(text):
        number: str = found[1] or found[2] or found[3]
        if _FEWEST <= sum(map(str.isdigit, number)) <= _MOST and not _DATE.fullmatch(number):
            return number
    return ""
