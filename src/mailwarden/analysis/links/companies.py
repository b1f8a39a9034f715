"""Knows which domains belong to one company, so that a link from one of them to another leads home.

Security: compares names that senders choose. A domain joins a company by the shipped data, by the operator's own, or
where both domains are popular and one name begins with the other, which registering a domain does not achieve.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from msgspec import ValidationError, convert
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mailwarden.analysis.links.brands import load_brands
from mailwarden.analysis.links.hosts import HostKind, kind_of
from mailwarden.analysis.links.popular import Band, band_of
from mailwarden.analysis.shipped_data import read_shipped
from mailwarden.errors import ConfigurationError
from mailwarden.lists.kinds.domains import free_mail_domains

MIN_NAME = 4  # letters: a shorter name begins others by accident
_OWNED = frozenset({HostKind.OTHER, HostKind.KNOWN})
_POPULAR = frozenset({Band.TOP, Band.POPULAR})
_own_groups: list[list[str]] = []  # the operator's


class Companies:
    """Groups of domains; a domain may be in several groups, which then are one."""

    def __init__(self, groups: Iterable[Iterable[str]]) -> None:
        self._number: dict[str, int] = {}
        for number, group in enumerate(groups):
            joined = {self._number[domain] for domain in group if domain in self._number}
            self._number |= {domain: number for domain, other in self._number.items() if other in joined}
            self._number |= dict.fromkeys(group, number)

    def are_one(self, domain: str, other: str) -> bool:
        number = self._number.get(domain)
        return number is not None and number == self._number.get(other)


def read_groups(text: str) -> list[list[str]]:
    """Return the groups of a file; raise ConfigurationError if it has another form."""
    try:
        sections = convert(YAML(typ="safe").load(text) or {}, dict[str, list[str]])
    except (YAMLError, ValidationError) as error:
        raise ConfigurationError(f"Expected lists of domains, one group a line: {error}") from None
    return _groups(sections)


def _groups(sections: dict[str, list[str]]) -> list[list[str]]:
    return [line.lower().split() for lines in sections.values() for line in lines]


@cache
def _shipped() -> list[list[str]]:
    return _groups(read_shipped("links/companies.yml", dict[str, list[str]]))


@cache
def load_companies() -> Companies:
    return Companies((*_shipped(), *_own_groups))


def add_companies(file: Path) -> None:
    """Add the operator's groups; a process does it once, before it reads mail."""
    try:
        _own_groups.extend(read_groups(file.read_text("utf-8")))
    except OSError as error:
        raise ConfigurationError(f"Cannot read {file}: {error.strerror}.") from None
    load_companies.cache_clear()
    same_company.cache_clear()


@lru_cache(maxsize=4_096)
def same_company(domain: str, other: str) -> bool:
    """Return whether two registered domains belong to one company, as far as is known."""
    if not domain or not other or not (is_owned(domain) and is_owned(other)):
        return False
    if domain == other or load_companies().are_one(domain, other):
        return True
    return _are_one_brand(domain, other) or _extends(domain, other)


def is_owned(domain: str) -> bool:
    """Return whether one owner has the domain: it is no mail service and no rented space."""
    return domain not in free_mail_domains() and kind_of(domain) in _OWNED


def _are_one_brand(domain: str, other: str) -> bool:
    """Return whether a brand has both domains; one that it only has by its name under a country must be listed."""
    brands = load_brands()
    brand = brands.owner_of(domain)
    if brand is None or brand is not brands.owner_of(other):
        return False
    return all(each in brand.domains or band_of(each) for each in (domain, other))


def _extends(domain: str, other: str) -> bool:
    """Return whether one name begins with the other and both are popular: `north.example` and `northchat.example`."""
    shorter, longer = sorted((domain.partition(".")[0], other.partition(".")[0]), key=len)
    if len(shorter) < MIN_NAME or not longer.startswith(shorter):
        return False
    return band_of(domain) in _POPULAR and band_of(other) in _POPULAR
