"""Reports lures that make people follow a link: a locked account, a full mailbox, a parcel, a prize, urgency.

The phrases are data in `lures_phrases.yml`. Honest services write of such things too. The rules weigh how many
lures there are, whether they urge, and whether their links lead away from the sender.

Security: works on hostile text inside a killable worker; every pattern is linear.
"""

from collections.abc import Iterator
from typing import ClassVar

import re2

from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.phrases import match_by_density
from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import written_domain
from mailwarden.model.evidence import Finding

SEVERAL = 2
MANY = 3
LONG = 8_000  # characters of a text that mentions everything at some point
# How many phrases of a family are more than chance.
OFTEN = {"account-trouble": 2, "verify-request": 2, "mailbox-quota": 2, "mail-held": 2, "parcel": 2, "prize": 2}
TALK = 2  # times that a text names phishing before it is a text about it
HIDDEN = 200  # invisible characters, which may contain any word
# RE2 looks for all alternatives at once; the text is folded.
_TALK = re2.compile(fold("phishing|hameçonnage|фишинг|フィッシング|钓鱼邮件|钓鱼网站|钓鱼攻击"))
# Urgency and calls to act, which are no lure by themselves.
_MANNERS = frozenset({"lures.deadline", "lures.click-request", "lures.generic-greeting"})


class LuresAnalyzer:
    name: ClassVar[str] = "lures"

    def examine(self, view: View) -> Iterator[Finding]:
        found = list(match_by_density(view, self.name, OFTEN))
        yield from found
        if found and _is_talk(view):
            yield Finding("lures.security-discussion")
        lures = [each for each in found if each.name not in _MANNERS and not each.name.endswith("-often")]
        if not lures or view.shown_length > LONG:
            return
        words = ", ".join(str(lure.facts["words"]) for lure in lures[:MANY])[: SHOWN.fact]
        yield Finding("lures.any", facts={"words": words})
        if len(lures) >= SEVERAL:
            yield Finding("lures.several", facts={"words": words})
        if len(lures) >= MANY:
            yield Finding("lures.many", facts={"words": words})
        if domain := _elsewhere(view):
            yield Finding("lures.unrelated-links", facts={"domain": domain})


def _is_talk(view: View) -> bool:
    """Return whether people see that a text is about phishing: in its subject, or several times."""
    if view.unseen > HIDDEN:
        return False
    named = len(_TALK.findall(view.folded_text))
    return named >= TALK or (named > 0 and bool(_TALK.search(fold(view.subject))))


def _elsewhere(view: View) -> str:
    """Return where the links lead when none of them leads to the sender's own domain, or ""."""
    own = written_domain(view.sender.domain)
    domains = [link.domain or link.host for link in view.links if link.host]
    return domains[0][: SHOWN.fact] if domains and own not in domains else ""
