"""Finds bank account numbers whose check digits are right: IBANs, and accounts of British and American banks.

The same account has one form, however it is written: `DE89370400440532013000`, `GB:20405612345678` for a sort code with
an account or the IBAN of the two, `US:021000021:123456789`.

Security: reads hostile text inside a killable worker; the patterns are linear, and a candidate has 90 characters.
"""

import re
from collections.abc import Iterator

import re2

# ISO 13616: the length of an IBAN by its country.
_COUNTRIES = {
    15: "NO", 16: "BE", 18: "DK FI FK FO GL NL SD", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK", 21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL", 24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM", 28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC", 33: "RU",
}  # fmt: skip
_LENGTHS = {country: length for length, countries in _COUNTRIES.items() for country in countries.split()}
# Their numbers have no letters behind the country.
_DIGITS_ONLY = frozenset({
    "AT", "BA", "BE", "CR", "CZ", "DE", "DK", "EE", "ES", "FI", "FO", "GL", "HR", "HU", "IL", "IS", "LT", "ME", "MN",
    "NO", "PL", "PT", "RS", "SD", "SE", "SI", "SK", "ST", "TL", "TN", "XK",
})  # fmt: skip
_CANDIDATE = 90  # characters: the longest IBAN with a separator behind each of its characters
_FEWEST_DIGITS = 8  # of an IBAN behind its check digits; words have none

_START = re2.compile(r"\b[a-z]{2}[ .-]?\d[ .-]?\d")
_SEPARATORS = re.compile(r"[ .\-\u2010-\u2015/]+")
_SORT_CODE = r"\bsort(?:ing)?[ -]?code\D{0,20}(\d\d)[ -]?(\d\d)[ -]?(\d\d)\b"
_UK_ACCOUNT = r"\b(?:account|acct|a/c)\D{0,30}(\d{4} ?\d{4})\b"
_UK = re2.compile(rf"{_SORT_CODE}.{{0,60}}?{_UK_ACCOUNT}")
_UK_REVERSED = re2.compile(rf"{_UK_ACCOUNT}.{{0,60}}?{_SORT_CODE}")
_US_WORDS = ("routing", "aba", "rtn")
_US = re2.compile(r"\b(?:routing|aba|rtn)\D{0,40}(\d{9})\b.{0,80}?\b(?:account|acct|a/c)\D{0,30}(\d[\d -]{3,19}\d)\b")
_US_REVERSED = re2.compile(
    r"\b(?:account|acct|a/c)\D{0,30}(\d[\d -]{3,19}\d)\b.{0,80}?\b(?:routing|aba|rtn)\D{0,40}(\d{9})\b"
)


def find_accounts(text: str) -> Iterator[str]:
    """Yield each account number of a folded text once, in one form for all spellings."""
    yield from dict.fromkeys((*_ibans(text), *_british(text), *_american(text)))


def _ibans(text: str) -> Iterator[str]:
    seen: set[str] = set()
    for match in _START.finditer(text):
        country = match.group()[:2].upper()
        candidate = text[match.start() : match.start() + _CANDIDATE]  # not inspection: no IBAN is longer
        if country not in _LENGTHS or candidate in seen:
            continue
        seen.add(candidate)
        number = _SEPARATORS.sub("", candidate)[: _LENGTHS[country]].upper()
        if len(number) == _LENGTHS[country] and is_iban(number):
            yield f"GB:{number[8:]}" if country == "GB" else number


def is_iban(number: str) -> bool:
    """Return whether the check digits are right (ISO 7064, mod 97-10)."""
    if not (number.isascii() and number.isalnum() and number[2:4].isdigit()):
        return False
    if number[:2] in _DIGITS_ONLY and not number[2:].isdigit():
        return False
    if sum(each.isdigit() for each in number[4:]) < _FEWEST_DIGITS:
        return False
    return int("".join(str(int(each, 36)) for each in number[4:] + number[:4])) % 97 == 1


def _british(text: str) -> Iterator[str]:
    if "sort" not in text:
        return
    for first, second, third, account in (match.groups() for match in _UK.finditer(text)):
        yield f"GB:{first}{second}{third}{account.replace(' ', '')}"
    for account, first, second, third in (match.groups() for match in _UK_REVERSED.finditer(text)):
        yield f"GB:{first}{second}{third}{account.replace(' ', '')}"


def _american(text: str) -> Iterator[str]:
    if not any(word in text for word in _US_WORDS):
        return
    pairs = [match.groups() for match in _US.finditer(text)]
    pairs += [(routing, account) for account, routing in (match.groups() for match in _US_REVERSED.finditer(text))]
    for routing, account in pairs:
        if is_routing_number(routing):
            yield f"US:{routing}:{re.sub('[ -]', '', account)}"


def is_routing_number(number: str) -> bool:
    """Return whether the check digit of an ABA routing number is right."""
    weights = (3, 7, 1) * 3
    return (
        any(map(int, number))
        and sum(int(each) * weight for each, weight in zip(number, weights, strict=True)) % 10 == 0
    )
