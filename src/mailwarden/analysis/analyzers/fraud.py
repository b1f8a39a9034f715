"""Reports phrases of payment fraud: transfers, gift cards, wages, inheritances, false charges, blackmail.

The phrases are data in `fraud_phrases.yml`; a single phrase is common, so the rules weigh them together.

Security: works on hostile text inside a killable worker; every pattern is linear.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import re2

from mailwarden.analysis.analyzer import limit_each_kind
from mailwarden.analysis.text.bank_accounts import find_accounts
from mailwarden.analysis.text.extraction import find_bitcoin_address, find_phone
from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.patterns import TextPattern
from mailwarden.analysis.text.phrases import SENTENCE_ENDS, Matches, load_books, match_books, match_by_density
from mailwarden.analysis.view import View
from mailwarden.model.evidence import Finding, Omitted
from mailwarden.model.place import THE_TEXT

# How many phrases of a family are more than chance.
OFTEN = {
    "unexpected-money": 2,
    "large-sum": 2,
    "inheritance": 2,
    "scam-wording": 2,
    "loan-offer": 2,
    "charge-notice": 2,
    "call-request": 2,
}
SHORT = 1_500  # characters of a typed note
# Where a link opens a conversation with a number or a name.
MESSENGERS = frozenset(
    {"wa.me", "api.whatsapp.com", "chat.whatsapp.com", "t.me", "telegram.me", "signal.me", "line.me", "lin.ee", "m.me"}
)
_ACCOUNT = TextPattern(
    r"\b[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){3,7}(?: ?[a-z0-9]{1,3})?\b"  # an IBAN
    r"|\b(?:account|acct|a/c|routing|sort code|aba|iban|kontonummer|rib)(?: (?:number|no|num|code))?"
    r"\.?[ :#-]{1,4}\d[\d -]{4,30}"
)


# Companies add these warnings below all their mail, so the phrase must occur elsewhere in the text too.
WARNED_OF = frozenset({"fraud.bank-change", "fraud.transfer-request", "fraud.gift-cards", "fraud.payroll"})
AROUND = 90  # characters about a warning that belong to it, in its sentence
# A change that is denied, and what belongs to a warning; "do not use the old account, it has changed" denies nothing.
# Text is folded.
_WARNING = re2.compile(
    r"\b(?:never|not|won't|don't|doesn't|hasn't|haven't|wouldn't) (?:ever |be |been )?(?:chang|updat|amend|alter)"
    r"|\b(?:andern|andert|geandert|wechseln)\b.{0,40}\b(?:nie|niemals|nicht)\b"
    r"|\b(?:nie|niemals|nicht|keine) (?:geandert|gewechselt|aktualisiert|verandert)"
    r"|\bne (?:change|modifie)[a-z]{0,5} (?:jamais|pas)\b"
    r"|\bn'(?:a|ont|avons) (?:pas|jamais|nullement) (?:change|ete modifie)"
    r"|\b(?:nunca|no) cambia|\bno (?:ha|han|hemos) (?:cambiad|variad|modificad|sido modificad)"
    r"|\bnon (?:e|sono|ha|hanno|abbiamo) (?:mai )?(?:cambiat|variat|modificat|stat[aeio] modificat)|\bnon cambi"
    r"|\b(?:nao|nunca) (?:mud|alter|(?:foi|foram) alterad)"
    r"|\b(?:niet|nooit) (?:gewijzigd|veranderd|aangepast|wijzig)"
    r"|\bnie (?:zmieni|ulegl|ulega)|\bdegisme(?:di|mis|z|yecek)"
    rf"|{fold('変更(?:は|が|も)?(?:ございません|ありません|なし|して(?:おりません|いません))')}"
    r"|\b(?:never|not) ask(?:s|ed)? (?:you )?(?:for|to)\b"
    r"|\b(?:criminals|fraudsters|scammers|betruger|kriminelle|fraudeurs)\b"
    # "If you did not make this payment, call us"; "do not make it to the old account" is another case.
    r"|\b(?:did not|didn't|have not|haven't) (?:made?|authori[sz]|recogni[sz])"
    r"|\bnicht (?:veranlasst|autorisiert|beauftragt|getatigt)"
    r"|\bn'(?:etes pas a l'origine|avez pas (?:autorise|effectue))"
    r"|\bno (?:reconoce|autoriz|ha realizado)|\bnon (?:ha |hai )(?:autorizzat|effettuat|richiest)|\bnon riconosc"
    r"|\bnao (?:reconhece|autoriz)|\bniet (?:goedgekeurd|herkent)"
    # A sender that asks its readers for their new account has changed no account itself.
    r"|\bteil(?:t|en|e)\b.{0,60}\bneue.{0,30}\bmit\b"
    # "If a caller gives you another account, call us".
    r"|\bif (?:any|some)(?:one|body)\b"
    r"|\b(?:falls|wenn|sollte) (?:ihnen |dir |sie )?jemand\b|\bsi (?:quelqu'un|alguien)\b"
    r"|\bse (?:qualcuno|alguem)\b|\b(?:als|noemt|mocht) iemand\b|\b(?:jesli|jezeli|gdyby) ktos\b|\bbiri(?:si)? siz"
    r"|\bpretending to be (?:from )?us\b|\bif you (?:ever )?(?:receive|get) an?y? (?:e-?mail|message|letter|call)"
)


class FraudAnalyzer:
    name: ClassVar[str] = "fraud"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        found = tuple(match_by_density(view, self.name, OFTEN))
        warnings = _warnings(view.folded_texts) if any(each.name in WARNED_OF for each in found) else frozenset()
        yield from (each for each in found if each.name not in warnings)
        if not any(link.host and not link.bare for link in view.links):
            yield Finding("fraud.no-link")
            if view.shown_length <= SHORT + len(view.subject):
                yield Finding("fraud.short-note")
        if not any(each.name == "fraud.messenger" for each in found):
            hosts = (link.host for link in view.links if link.host in MESSENGERS)
            yield from (Finding("fraud.messenger", facts={"words": host}) for host in [*hosts][:1])
        if phone := find_phone(view.folded_text):
            yield Finding("fraud.phone-number", facts={"number": phone[:40]})
        if account := _ACCOUNT.search(view.folded_text):
            yield Finding("fraud.account-number", facts={"number": account.group()[:40]})
        yield from limit_each_kind(_accounts(view))
        if address := find_bitcoin_address(view.text):
            yield Finding("fraud.bitcoin-address", facts={"address": address})


def _accounts(view: View) -> Iterator[Finding]:
    """Yield each bank account of the message and of its PDF files, for the history of the sender."""
    texts = [(text, THE_TEXT) for text in view.folded_texts]
    texts += [(fold(scan.reading.text), file.part.place) for file, scan in view.pdfs if scan.reading.text]
    found = {account: place for text, place in reversed(texts) for account in find_accounts(text)}
    yield from (Finding("fraud.bank-account", place, {"account": account}) for account, place in found.items())


def _warnings(texts: tuple[str, ...]) -> frozenset[str]:
    """Return the families that occur only in warnings and denials, such as legal notices below a mail."""
    each = zip(texts, match_books(texts), strict=True)
    return WARNED_OF - {family for text, matches in each for family in _found_beyond_warnings(text, matches)}


def _found_beyond_warnings(text: str, matches: Matches) -> Iterable[str]:
    if not _WARNING.search(text):
        return matches.keys()
    rest, at = [], 0
    for found in _WARNING.finditer(text):
        begin = max(at, found.start() - AROUND, *(text.rfind(end, at, found.start()) + 1 for end in SENTENCE_ENDS))
        rest.append(text[at:begin])
        ends = (text.find(end, found.end(), found.end() + AROUND) for end in SENTENCE_ENDS)
        at = max(at, min((end for end in ends if end >= 0), default=found.end() + AROUND))
    return load_books().find(" . ".join((*rest, text[at:]))).keys()
