"""Finds the popular domain that an unknown domain imitates: with letters that look alike, or a deliberate misspelling.

Security: compares names that senders choose. A lookup takes a few steps, however many domains there are.
"""

from functools import cache, lru_cache

from mailwarden.analysis.links.brands import is_imitation
from mailwarden.analysis.links.popular import TOP_NAMES, Band, band_of
from mailwarden.lists.impersonation import Lookalikes
from mailwarden.message.lookalikes import label_of


@cache
def _top() -> tuple[Lookalikes, frozenset[str]]:
    lines = TOP_NAMES.read_text("ascii").splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    return Lookalikes(names), frozenset(map(label_of, names))


@lru_cache(maxsize=4_096)
def imitated_by(domain: str) -> str:
    """Return the popular domain that an unknown registered domain imitates, or ""."""
    if not domain or band_of(domain) is not Band.UNKNOWN:
        return ""
    lookalikes, labels = _top()
    label = label_of(domain)
    if label in labels:  # the same name under another ending
        return ""
    found = lookalikes.find(domain)
    return found if found and is_imitation(label, label_of(found)) else ""
