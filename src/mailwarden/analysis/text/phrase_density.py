"""Matches phrases by their density: a long text contains many common phrases by chance.

Hidden text does not count, so that it dilutes no phrase.

Security: works on hostile text inside a killable worker; it only counts.
"""

from collections.abc import Iterator, Mapping

from mailwarden.analysis.text.phrases import match_phrases
from mailwarden.analysis.view import View
from mailwarden.model.evidence import Finding

PORTION = 2_500  # characters beyond which one more phrase of a family may be chance
_OFTEN = "-often"


def match_by_density(view: View, name: str, often: Mapping[str, int]) -> Iterator[Finding]:
    """Yield the findings of `match_phrases`, but require one phrase more per family for each further portion of text.

    Long texts, and texts that only some clients show, are matched in windows, so that no text dilutes another.
    """
    found: dict[str, Finding] = {}
    hidden = unseen(view)
    for text in view.folded_texts:
        chance = max(0, len(text) - hidden) // PORTION
        hidden = 0  # it stands in the first text alone
        for finding in match_phrases(text, name, often):
            family = finding.name.partition(".")[2]
            needed = often[family.removesuffix(_OFTEN)] if family.endswith(_OFTEN) else 1
            known = found.get(finding.name)
            if int(finding.facts["count"]) >= needed + chance and (known is None or _count(known) < _count(finding)):
                found[finding.name] = finding
    yield from found.values()


def _count(finding: Finding) -> int:
    return int(finding.facts["count"])


def unseen(view: View) -> int:
    """Return how many characters of the body's pages are not shown, too small or white."""
    documents = (page.document for page in view.pages if not page.attached)
    return sum(document.gone_text + document.tiny_text + document.pale_text for document in documents)
