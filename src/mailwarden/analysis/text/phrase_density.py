"""Phrases weighed by how long the text is: whoever writes at length uses the words of everybody at some point.

Text that nobody sees counts for nothing, so that hiding some dilutes no phrase.

Security: works on hostile text inside a killable worker; it only counts.
"""

from collections.abc import Iterator, Mapping

from mailwarden.analysis.text.phrases import match_phrases
from mailwarden.analysis.view import View
from mailwarden.model.evidence import Finding

PORTION = 2_500  # characters beyond which one more phrase of a family may be chance
_OFTEN = "-often"


def match_by_density(view: View, name: str, often: Mapping[str, int]) -> Iterator[Finding]:
    """Yield what `match_phrases` does, but ask one phrase more of a family for every further portion of the text.

    A long text is match in windows, and so is what only some clients show, so that no text dilutes another.
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
