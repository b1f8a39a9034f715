"""Reports unsolicited offers: pills, casinos, loans, leads, search rankings, factories and others.

The phrases are data in `offers_phrases.yml`. Honest advertising has some of them too. The rules weigh how many
phrases of an offer there are, and whether the excuses and forms of bulk senders come with them.

Security: works on hostile text inside a killable worker; every pattern is linear.
"""

from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.text.phrases import match_by_density
from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.model.evidence import Finding

SEVERAL = 2
MANY = 3
LONG = 8_000  # characters of a text that mentions everything at some point
_TWICE = (
    "pharmacy supplement adult dating casino luxury finance-offer work-at-home mailing-offer seo-offer factory-offer"
    " cold-offer services-offer mass-mail-disclaimer guarantee order-form"
)
OFTEN = dict.fromkeys(_TWICE.split(), 2)
# Phrases that accompany offers and are no offer themselves.
_TRIMMINGS = frozenset({"offers.mass-mail-disclaimer", "offers.opt-out", "offers.guarantee", "offers.order-form"})


class OffersAnalyzer:
    name: ClassVar[str] = "offers"

    def examine(self, view: View) -> Iterator[Finding]:
        found = list(match_by_density(view, self.name, OFTEN))
        yield from found
        offers = [each for each in found if each.name not in _TRIMMINGS and not each.name.endswith("-often")]
        if not offers or view.shown_length > LONG:
            return
        words = ", ".join(str(offer.facts["words"]) for offer in offers[:MANY])[: SHOWN.fact]
        yield Finding("offers.any", facts={"words": words})
        if len(offers) >= SEVERAL:
            yield Finding("offers.several", facts={"words": words})
        if len(offers) >= MANY:
            yield Finding("offers.many", facts={"words": words})
