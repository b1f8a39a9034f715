"""What people write who want money sent: transfers, gift cards, wages, inheritances, false charges, blackmail.

The phrases are data in `fraud_phrases.yml`; one alone is an everyday word, so that the rules weigh them together.

Security: works on hostile text inside a killable worker; text is cut, every pattern is linear.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.coins import find_bitcoin_address
from mailwarden.analysis.dilution import hear_densely
from mailwarden.analysis.view import View
from mailwarden.model.evidence import Finding

# How many phrases of a family are more than chance.
OFTEN = {
    "windfall": 2,
    "large-sum": 2,
    "inheritance": 2,
    "stranger": 2,
    "loan-offer": 2,
    "charge-notice": 2,
    "call-us": 2,
}
SHORT = 1_500  # characters of a note that somebody types
_COIN_TEXT = 50_000
_ACCOUNT_TEXT = 10_000
_DIGITS = re.compile(r"\d{3}(?:[ .\-]{1,3}\d{4}|\d{7})")  # what stands in every number below, and is found faster
_PHONE = re.compile(
    r"(?<![\w.-])(?:\+\d{1,3}[ .\-]?|1[ .\-]{1,3})?(?:\(\d{3}\)[ .\-]{0,3}|\d{3}[ .\-]{1,3})"
    r"\d{3}[ .\-]{1,3}\d{4}(?![\w-])|(?<![\w.-])\+1?8[0-9]{9,10}\b"
)
_ACCOUNT = re.compile(
    r"\b[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){3,7}(?: ?[a-z0-9]{1,3})?\b"  # an IBAN
    r"|\b(?:account|acct|a/c|routing|sort code|aba|iban|kontonummer|rib)(?: (?:number|no|num|code))?"
    r"\.?[ :#-]{1,4}\d[\d -]{4,30}"
)


class FraudAnalyzer:
    name: ClassVar[str] = "fraud"

    def examine(self, view: View) -> Iterator[Finding]:
        yield from hear_densely(view, self.name, OFTEN)
        if not any(link.host for link in view.links):
            yield Finding("fraud.no-link")
            if len(view.text) <= SHORT:
                yield Finding("fraud.short-note")
        if phone := find_phone(view.folded_text):
            yield Finding("fraud.phone-number", facts={"number": phone[:40]})
        if account := _ACCOUNT.search(view.folded_text[:_ACCOUNT_TEXT]):
            yield Finding("fraud.account-number", facts={"number": account.group()[:40]})
        if address := find_bitcoin_address(view.text[:_COIN_TEXT]):
            yield Finding("fraud.bitcoin-address", facts={"address": address})


def find_phone(text: str) -> str:
    """Return the first telephone number of a folded text, or ""."""
    found = _PHONE.search(text) if _DIGITS.search(text) else None
    return found.group() if found else ""
