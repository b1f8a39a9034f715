"""Finds well-known brands in a text, and knows their domains; the names are data.

Security: compares text that strangers chose; texts are cut, one linear pattern finds every name.
"""

import re
from collections.abc import Iterator
from functools import cache

import re2
from msgspec import Struct

from mailwarden.analysis.links.confusables import reads_as
from mailwarden.analysis.shipped_data import read_shipped
from mailwarden.lists.impersonation import Lookalikes
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.lookalikes import label_of, skeleton
from mailwarden.message.urls import registrable_domain

COUNTRY = 2  # letters of the ending of a country
MIN_ALIKE = 5
MIN_TWISTED = 6  # for letters doubled or exchanged
MIN_EDITED = 9  # one letter is too much of a shorter name: `telkom` and `telekom` are two honest ones
MIN_INSIDE = 6  # a shorter word stands inside other words by accident
MIN_ENDING = 8  # and at their end still more often
SHORT = 3
LABELS = 130  # no host has more
_TOKEN = re.compile(r"[-_.\d]+")
# Words beside a brand in the name of a sender that do not make it another name.
_COMPANY = re.compile(
    r"\b(?:support|team|service|services|security|account|accounts|customer|care|help|center|centre|update|updates|"
    r"alert|alerts|notification|notifications|info|inc|ltd|gmbh|deutschland|france|espana|italia|no-?reply|store|"
    r"rewards?|online|official|membership|department|winner|kundenservice|billing|payments?|delivery|express)\b|"
    r"[^\w&+' -]"
)


class _Entry(Struct, frozen=True):
    words: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    shared: bool = False


class Brand(Struct, frozen=True):
    """One well-known name: `labels` are those of its domains, which it has under the endings of countries too."""

    name: str
    words: tuple[str, ...]
    domains: frozenset[str]
    labels: frozenset[str]
    shared: bool = False  # many organisations have this name, each with a domain that contains it

    def owns(self, domain: str) -> bool:
        """Return whether a host or domain is the brand's own."""
        organisation = registrable_domain(domain) or domain
        if organisation in self.domains or domain in self.domains:
            return True
        if any(domain.endswith(f".{own}") for own in self.domains):
            return True
        label, _, ending = organisation.partition(".")
        if self.shared and any(word.replace(" ", "") in label.replace("-", "") for word in self.words):
            return True
        return label in self.labels and len(ending.rpartition(".")[2]) == COUNTRY


class Brands:
    """All of them, ready to be looked for."""

    def __init__(self, entries: dict[str, _Entry]) -> None:
        self._by_word: dict[str, Brand] = {}
        self._by_whole: dict[str, Brand] = {}
        self._inside: list[tuple[str, Brand]] = []
        self._by_domain: dict[str, Brand] = {}
        for name, entry in entries.items():
            labels = frozenset(map(label_of, entry.domains))
            brand = Brand(name, entry.words, frozenset(entry.domains), labels, entry.shared)
            self._by_word |= {reads_as(word): brand for word in entry.words}
            self._by_whole |= {reads_as(word): brand for word in (*entry.whole, *entry.words)}
            self._by_domain |= dict.fromkeys(entry.domains, brand)
        self._inside = [
            (word.replace(" ", ""), brand)
            for word, brand in self._by_word.items()
            if word.isascii() and word.replace(" ", "").isalnum() and not brand.shared
        ]
        # By position, the first of equal ones: the reported brand must not depend on the search.
        places = {word: place for place, (word, _) in reversed([*enumerate(self._inside)])}
        self._openings = {word: place for word, place in places.items() if len(word) >= MIN_INSIDE}
        self._closings = {word: place for word, place in places.items() if len(word) >= MIN_ENDING}
        self._order = {domain: place for place, domain in enumerate(self._by_domain)}
        self._longest_domain = max((domain.count(".") + 1 for domain in self._by_domain), default=0)
        self._tokens = {word: brand for word, brand in self._inside if len(word) >= 3}
        self._by_label: dict[str, list[Brand]] = {}
        for brand in self._by_domain.values():
            for label in brand.labels:
                self._by_label.setdefault(label, []).append(brand)
        self._lookalikes = Lookalikes(self._by_domain)
        longest_first = sorted(self._by_word, key=len, reverse=True)
        self._pattern = re2.compile("|".join(map(re2.escape, longest_first)))

    def named_in(self, text: str, most: int = 8) -> Iterator[Brand]:
        """Yield the brands whose words stand in a text; a short word counts only in capitals, as it is written."""
        plain = reads_as(text)
        seen: set[str] = set()
        for match in self._pattern.finditer(plain):
            start, end = match.span()
            word = match.group()
            brand = self._by_word[word]
            if brand.name in seen or not _is_bounded(plain, start, end):
                continue
            if len(word) <= SHORT and word.isascii() and word.upper() not in text:
                continue
            seen.add(brand.name)
            yield brand
            if len(seen) >= most:
                return

    def named_by(self, name: str) -> Brand | None:
        """Return the brand that the name of a sender claims to be."""
        if brand := next(self.named_in(name), None):
            return brand
        shown = reads_as(name)
        rest = " ".join(_COMPANY.sub(" ", shown).split())
        return self._by_whole.get(shown) or self._by_whole.get(rest)

    def imitated_by(self, domain: str) -> Brand | None:
        """Return the brand that a domain looks like, letter by letter."""
        if "." not in domain or self.owner_of(domain) or label_of(domain) in self._by_label:
            return None
        found = self._lookalikes.find(domain)
        return self._by_domain[found] if found and is_imitation(label_of(domain), label_of(found)) else None

    def bare(self, domain: str) -> Brand | None:
        """Return the brand whose name, without any ending, stands where a domain should."""
        return None if "." in domain else next(iter(self._by_label.get(domain, ())), None) or self._tokens.get(domain)

    def borne_by(self, host: str) -> tuple[Brand, str] | None:
        """Return the brand whose word stands in a foreign domain, and where: `paypal-secure`, `paypal.com.shop`."""
        organisation = registrable_domain(host)
        if not organisation or self.owner_of(host):
            return None
        above = host[: -len(organisation)].rstrip(".")
        if above and (domain := self._first_domain_in(above)):
            return self._by_domain[domain], "above"
        label = label_of(organisation)
        tokens = _TOKEN.split(label)
        if len(tokens) > 1:
            for token in tokens:
                if bearer := self._tokens.get(token):
                    return bearer, "token"
        return self._inside_of(label)

    def _first_domain_in(self, above: str) -> str:
        """Return the first of the brands' domains that stands in a row of labels, or ""."""
        labels = above.split(".")[:LABELS]  # not inspection: no name has more labels (RFC 1035)
        rows = (
            ".".join(labels[start:end])
            for start in range(len(labels))
            for end in range(start + 1, min(len(labels), start + self._longest_domain) + 1)
        )
        return min((row for row in rows if row in self._order), key=self._order.__getitem__, default="")

    def _inside_of(self, label: str) -> tuple[Brand, str] | None:
        """Return the first of the brands whose word a label begins or ends with."""
        found = [
            self._openings[label[:size]] for size in range(MIN_INSIDE, len(label)) if label[:size] in self._openings
        ]
        found += [self._closings[label[size:]] for size in range(1, len(label)) if label[size:] in self._closings]
        return (self._inside[min(found)][1], "inside") if found else None

    def token_of(self, text: str) -> Brand | None:
        """Return the brand whose word stands apart in the part of an address before the at sign."""
        found = (self._tokens.get(token) for token in _TOKEN.split(reads_as(text)))
        # Mailing services write the address of their customer there: `ada-gmail.com@service.example`.
        return next((brand for brand in found if brand and brand.domains.isdisjoint(free_mail_domains())), None)

    def owner_of(self, domain: str) -> Brand | None:
        """Return the brand that a host or domain belongs to."""
        organisation = registrable_domain(domain) or domain
        label, _, ending = organisation.partition(".")
        if found := self._by_domain.get(organisation):
            return found
        country = len(ending.rpartition(".")[2]) == COUNTRY
        return next((brand for brand in self._by_label.get(label, ()) if country), None)


def is_imitation(label: str, own: str) -> bool:
    """Return whether a difference is a deliberate misspelling, not an honest similarity of two names."""
    if len(own) < MIN_ALIKE:
        return False
    if skeleton(label) == skeleton(own):
        return True
    if len(own) >= MIN_EDITED and label[0] == own[0]:
        return True
    doubled = re.sub(r"(.)\1", r"\1", label) == re.sub(r"(.)\1", r"\1", own)
    return len(own) >= MIN_TWISTED and (doubled or sorted(label) == sorted(own))


def _is_bounded(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    return not (before.isascii() and before.isalnum()) and not (after.isascii() and after.isalnum())


@cache
def load_brands() -> Brands:
    return Brands(read_shipped("links/brands.yml", dict[str, _Entry]))
