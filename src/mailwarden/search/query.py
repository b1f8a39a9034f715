"""The query language of history: parses a search into conditions on terms, and matches phrases that terms cannot.

`from:alice@sender.example -verdict:clean "gift card"` becomes three conditions that must all match. Words match the
beginnings of words, without accents and case (search/words.py). An invalid query is rejected with its reason and
position; nothing is ignored silently.

Security: parses text from a person or a link, and compares hostile texts; input is bounded and parsing is linear.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.errors import InvalidQuery
from mailwarden.message.urls import normalize_host
from mailwarden.model.ggrid import day_of
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.search import terms, words

MAX_CHARACTERS = 500
MAX_CONDITIONS = 20
# The states of `is:`. A message can have several, or none.
HELD, RELEASED, REPORTED, UNDECIDED = "held", "released", "reported", "undecided"
STATES = (HELD, RELEASED, REPORTED, UNDECIDED)

Tenants = Mapping[str, UUID] | None

_OPENING, _CLOSING = '"“„', '"”“'
_OPERATOR = re.compile(r"([A-Za-z]{1,20}):")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_TAG = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_OTHER_HASH = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{96}|[0-9a-fA-F]{128}")
_DEFANGED = re.compile(r"[\[({](\.|dot|@|at|:|://|/)[\])}]", re.IGNORECASE)
_DEFANGED_SCHEME = re.compile(r"^(h[xX*]{2}p|fxp)(?=s?://)", re.IGNORECASE)


class Condition(Struct, frozen=True):
    """One condition of a query: the row has a term of each group, and a lexeme of each group of `words`.

    With `either` it is sufficient that the terms or the words match. `network`, `phrase` and `ggrid` are checks beyond
    terms; `negated` inverts the whole condition.
    """

    operator: str
    value: str  # in normal form
    groups: tuple[tuple[str, ...], ...] = ()
    words: tuple[tuple[str, ...], ...] = ()  # patterns of lexemes, see search/words.py
    either: bool = False
    network: str = ""
    phrase: str = ""
    ggrid: UUID | None = None
    state: str = ""  # one of STATES that other tables know, see the store
    negated: bool = False


class RawTerm(Struct, frozen=True):
    """A term of a search as it is written, before its operator is known to exist."""

    start: int
    end: int
    operator: str
    value: str
    negated: bool = False
    quoted: bool = False


class Term(Struct, frozen=True):
    """A condition, and where it stands in the text of the search."""

    start: int
    end: int
    condition: Condition


class Query(Struct, frozen=True):
    """Conditions that must all match, and the period in which the guard requests began."""

    conditions: tuple[Condition, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


def parse_query(
    text: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    tenants: Mapping[str, UUID] | None = None,
) -> Query:
    """Return the query, or raise InvalidQuery with the reason; `tenants` are the names that `tenant:` accepts."""
    if since and until and since >= until:
        raise InvalidQuery("The time range ends before it begins.")
    conditions = tuple(dict.fromkeys(term.condition for term in parse_terms(text, tenants)))
    if len(conditions) > MAX_CONDITIONS:
        raise InvalidQuery(f"A search has at most {MAX_CONDITIONS} terms; this one has {len(conditions)}.")
    return Query(conditions, since, until)


def parse_terms(text: str, tenants: Mapping[str, UUID] | None = None) -> list[Term]:
    """Return the terms of a search in their order, or raise InvalidQuery."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidQuery(f"A search has at most {MAX_CHARACTERS} characters; this one has {len(text):,}.")
    return [Term(raw.start, raw.end, _condition(raw, text, tenants)) for raw in split_terms(text)]


def any_of(alternatives: Sequence[str], since: datetime) -> Query:
    """Return the query for requests with one of the terms; without terms, for all requests."""
    condition = Condition("any", "", (tuple(alternatives),))
    return Query((condition,) if alternatives else (), since=since)


def phrases_match(conditions: Iterable[Condition], request: FinishedRequest) -> bool:
    """Return whether every phrase matches; the index finds words, not their order."""
    found = frozenset(terms.terms_of(request))
    return all(condition_matches(condition, found, request) for condition in conditions if condition.phrase)


def subject_may_match(conditions: Iterable[Condition], subject: str) -> bool:
    """Return whether `phrases_match` can be true for this subject, which may be truncated or cleaned."""
    text = _spaced(subject)
    return all(
        condition.phrase in text
        for condition in conditions
        if condition.operator == "subject" and condition.phrase and not condition.negated
    )


def condition_matches(condition: Condition, found: Set[str], request: FinishedRequest) -> bool:
    """Return whether a request with these terms matches the condition."""
    by_terms = all(not found.isdisjoint(group) for group in condition.groups)
    by_words = words.lexemes_match(condition.words, words.lexemes_of(request)) if condition.words else True
    matched = (
        (by_terms or by_words if condition.either else by_terms and by_words)
        and (condition.ggrid is None or condition.ggrid == request.ggrid)
        and (not condition.network or _is_inside(request.envelope.remote_address, condition.network))
        and (not condition.phrase or any(condition.phrase in text for text in _texts_of(condition, request)))
    )
    return matched is not condition.negated


def _texts_of(condition: Condition, request: FinishedRequest) -> list[str]:
    """Return the texts that may contain the phrase of a condition."""
    subject, name = request.summary.subject, request.summary.from_name
    return [_spaced(text) for text in {"subject": (subject,), "from": (name,)}.get(condition.operator, (subject, name))]


def _spaced(text: str) -> str:
    return " ".join(words.plain(text).split())


def _is_inside(address: str | None, network: str) -> bool:
    try:
        return address is not None and terms.plain_address(address) in ip_network(network)
    except ValueError:
        return False


def split_terms(text: str) -> Iterator[RawTerm]:
    """Yield the terms of a text, or raise InvalidQuery if a quotation mark is not closed."""
    position = 0
    while (start := _skip_spaces(text, position)) < len(text):
        negated, operator, position = _parse_operator_name(text, start)
        value, quoted, position = _parse_text(text, position)
        yield RawTerm(start, position, operator, value, negated=negated, quoted=quoted)


def _condition(raw: RawTerm, text: str, tenants: Tenants) -> Condition:
    try:
        if raw.operator:
            condition = parse_operator(raw.operator, raw.value, tenants)
        else:
            condition = parse_bare(raw.value, quoted=raw.quoted)
    except InvalidQuery as error:
        raise misplaced(error, raw, text) from None
    return replace(condition, negated=True) if raw.negated else condition


def misplaced(error: InvalidQuery, raw: RawTerm, text: str) -> InvalidQuery:
    """Return the error of a term with its place in the text."""
    term = text[raw.start : raw.end]
    details = {"pointer": "/q", "problem": error.message, "character": raw.start + 1, "term": term}
    return InvalidQuery(f"{error.message} (at character {raw.start + 1}: `{term}`)", details=[details])


def _parse_operator_name(text: str, start: int) -> tuple[bool, str, int]:
    """Return whether the term that starts here is negated, its operator, and where its value starts."""
    negated = text[start] == "-" and start + 1 < len(text) and not text[start + 1].isspace()
    position = start + negated
    if (found := _OPERATOR.match(text, position)) and not text.startswith("//", found.end()):
        return negated, found[1].lower(), found.end()
    return negated, "", position


def unfinished_term(text: str) -> tuple[int, bool, str, str]:
    """Return the last term of a text that a user is typing: its start, whether it is negated, operator and value."""
    position = 0
    while True:
        start = _skip_spaces(text, position)
        if start == len(text):
            return start, False, "", ""
        negated, operator, position = _parse_operator_name(text, start)
        try:
            value, _, position = _parse_text(text, position)
        except InvalidQuery:  # a quotation mark that is not closed yet
            return start, negated, operator, text[position + 1 :]
        if position >= len(text):
            return start, negated, operator, value


def _parse_text(text: str, start: int) -> tuple[str, bool, int]:
    """Return the value that starts here, whether it is quoted, and where it ends."""
    if start < len(text) and text[start] in _OPENING:
        ends = [end for mark in _CLOSING if (end := text.find(mark, start + 1)) >= 0]
        if not ends:
            raise InvalidQuery(f"The quotation mark at character {start + 1} is not closed.")
        return text[start + 1 : min(ends)], True, min(ends) + 1
    end = start
    while end < len(text) and not text[end].isspace():
        end += 1
    return text[start:end], False, end


def _skip_spaces(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def parse_operator(operator: str, value: str, tenants: Tenants = None) -> Condition:
    """Return the condition of `operator:value`, or raise InvalidQuery."""
    parse = OPERATORS.get(operator)
    if parse is None:
        known = " ".join(f"{name}:" for name in OPERATORS)
        if near := get_close_matches(operator, OPERATORS, 1):
            raise InvalidQuery(
                f"Unknown operator `{operator}:`. Did you mean `{near[0]}:`? Use {known} or words without an operator."
            )
        raise InvalidQuery(f"Unknown operator `{operator}:`. Use {known} or words without an operator.")
    value = refang(value.strip())
    if not value:
        raise InvalidQuery(f"`{operator}:` needs a value after the colon, without a space.")
    return parse(value, tenants)


def parse_bare(value: str, *, quoted: bool = False) -> Condition:
    """Return the condition of a word without an operator: its form decides; by default it is a word of any field."""
    plain = refang(value.strip())
    if not quoted and plain:
        if "@" in plain.strip("@") and _is_domain(_unbracketed(plain).rpartition("@")[2]):
            return _from_or_to(plain)
        if _SHA256.fullmatch(plain):
            return _hash(plain, None)
        if _uuid(plain):
            return _ggrid(plain, None)
        if _network(plain):
            return _ip(plain, None)
        if "://" in plain or (_is_domain(plain.partition("/")[0]) and "/" in plain):
            return _url(plain, None)
        if _is_domain(plain):
            return _domain_or_words(plain)
    return _words("word", words.EVERYWHERE, plain if not quoted else value, quoted=quoted)


def refang(text: str) -> str:
    """Undo defanging: hxxp, and a dot, `@`, `:` or `/` in brackets."""
    text = _DEFANGED.sub(lambda found: {"dot": ".", "at": "@"}.get(found[1].lower(), found[1]), text)
    return _DEFANGED_SCHEME.sub(lambda found: "ftp" if found[1].lower() == "fxp" else "http", text)


def _sender(value: str, _: Tenants) -> Condition:
    if value == terms.NULL_SENDER:
        return Condition("from", value, ((f"from:{value}",),))
    return _party("from", value)


def _recipient(value: str, _: Tenants) -> Condition:
    return _party("to", value)


def _party(operator: str, value: str) -> Condition:
    """Return the condition of an address, of a domain and its subdomains, or of words of the name or the address."""
    value = _unbracketed(value)
    local, _, domain = value.rpartition("@")
    if "." not in domain or any(map(str.isspace, value)):
        is_name = operator == "from" and any(map(str.isspace, value))
        return _words(operator, (words.FIELDS[operator],), value, quoted=is_name)
    if local:
        return _of_term(operator, terms.address_term(operator, value))
    return _of_term(operator, terms.domain_term(operator, _checked_domain(operator, domain)))


def _of_term(operator: str, term: str) -> Condition:
    return Condition(operator, term.partition(":")[2], ((term,),))


def _from_or_to(value: str) -> Condition:
    value = _unbracketed(value)
    found = tuple(terms.address_term(operator, value) for operator in ("from", "to"))
    return Condition("address", found[0].partition(":")[2], (found,))


def _unbracketed(value: str) -> str:
    """Return an address without the angle brackets of a header field."""
    return value[1:-1] if value.startswith("<") and value.endswith(">") else value


def _subject(value: str, _: Tenants) -> Condition:
    return _words("subject", (words.SUBJECT,), value, quoted=True)


def _words(operator: str, fields: tuple[str, ...], value: str, *, quoted: bool = False) -> Condition:
    """Match words by their beginnings; several quoted words must be adjacent and in order."""
    value = value.rstrip("*?") or value
    if "*" in value or "?" in value:
        raise InvalidQuery("`*` and `?` are allowed at the end of a word only. A word also matches without them.")
    found = [words.split_words(spelling) for spelling in words.spellings(value)]
    if not found[0]:
        raise InvalidQuery("A search word needs a letter or a digit.")
    # Both spellings of a word have their words in the same order.
    groups = dict.fromkeys(
        tuple(pattern for word in dict.fromkeys(same) for pattern in words.patterns(word, fields))
        for same in zip(*found, strict=False)
    )
    text = _spaced(value)
    is_phrase = quoted and len(found[0]) > 1
    return Condition(operator, text, words=tuple(groups), phrase=text if is_phrase else "")


def _domain_or_words(value: str) -> Condition:
    """Return the condition of a text that looks like a domain but may also be a name, such as `jane.doe`."""
    named = _words("domain", words.EVERYWHERE, value)
    return replace(_domain(value, None), words=named.words, either=True)


def _domain(value: str, _: Tenants) -> Condition:
    domain = _checked_domain("domain", value.removeprefix("@"))
    return Condition("domain", domain, (tuple(terms.domain_term(each, domain) for each in ("from", "to", "url")),))


def _ip(value: str, _: Tenants) -> Condition:
    network = _network(value)
    if network is None:
        raise InvalidQuery("`ip:` needs an IPv4 or IPv6 address, or a network such as 192.0.2.0/24.")
    shortest = terms.PREFIXES[network.version][0]
    if network.prefixlen < shortest:
        raise InvalidQuery(f"A network in `ip:` is /{shortest} or smaller; this one is /{network.prefixlen}.")
    exact = network.prefixlen in terms.PREFIXES[network.version]
    shown = str(network[0] if network.num_addresses == 1 else network)
    return Condition("ip", shown, ((terms.network_term(network),),), network="" if exact else str(network))


def _tag(value: str, _: Tenants) -> Condition:
    return _one_of("tag", value, lambda tag: bool(_TAG.fullmatch(tag)), "a tag such as url.display-mismatch")


def _verdict(value: str, _: Tenants) -> Condition:
    return _one_of("verdict", value, lambda each: each in list(Verdict), f"one of {', '.join(Verdict)}")


def _decision(value: str, _: Tenants) -> Condition:
    return _one_of("decision", value, lambda each: each in list(Decision), f"one of {', '.join(Decision)}")


def _state(value: str, _: Tenants) -> Condition:
    """Return the condition of a state: held and released come from quarantine, reported from the reports of users."""
    state = value.lower()
    if state not in STATES:
        raise InvalidQuery(f"`is:` needs one of {', '.join(STATES)}.")
    if state == UNDECIDED:
        return Condition("is", state, ((f"decision:{Decision.UNDECIDED}",),))
    # guard holds messages with this decision only, so that the index finds them.
    groups = ((f"decision:{Decision.QUARANTINE}",),) if state == HELD else ()
    return Condition("is", state, groups, state=state)


def _one_of(operator: str, value: str, is_valid: Callable[[str], bool], expected: str) -> Condition:
    values = list(dict.fromkeys(value.lower().split(",")))
    if not all(map(is_valid, values)):
        raise InvalidQuery(f"`{operator}:` needs {expected}; several are separated by commas, without spaces.")
    return Condition(operator, ",".join(values), (tuple(f"{operator}:{each}" for each in values),))


def _tenant(value: str, tenants: Tenants) -> Condition:
    uid = _uuid(value)
    if tenants is not None:
        named = {terms.fold(name): each for name, each in tenants.items()}
        uid = uid if uid in named.values() else named.get(terms.fold(value))
        if uid is None:
            raise InvalidQuery("There is no such tenant, or you may not see it.")
    if uid is None:
        raise InvalidQuery("`tenant:` needs the tenant's uid.")
    return Condition("tenant", str(uid), ((f"tenant:{uid}",),))


def _ggrid(value: str, _: Tenants) -> Condition:
    ggrid = _uuid(value)
    if ggrid is None or day_of(ggrid) is None:
        raise InvalidQuery("`ggrid:` needs the id of a guard request, a UUID of version 7.")
    return Condition("ggrid", str(ggrid), ggrid=ggrid)


def _campaign(value: str, _: Tenants) -> Condition:
    campaign = _uuid(value)
    if campaign is None:
        raise InvalidQuery("`campaign:` needs the id of a campaign, a UUID. A message page links to it.")
    return _of_term("campaign", terms.campaign_term(campaign))


def _url(value: str, _: Tenants) -> Condition:
    host, path = terms.link_of(value)
    if not _is_domain(host) and not host.startswith("[") and _network(host) is None:
        raise InvalidQuery("`url:` needs a host or a URL, such as evil.example or https://evil.example/login.")
    return Condition("url", host + path, ((f"url:{host}{path}",),))


def _hash(value: str, _: Tenants) -> Condition:
    if _SHA256.fullmatch(value):
        return Condition("hash", value.lower(), ((terms.hash_term(value),),))
    if _OTHER_HASH.fullmatch(value):
        raise InvalidQuery("History stores SHA-256 only: `hash:` needs 64 hexadecimal digits.")
    raise InvalidQuery("`hash:` needs the SHA-256 of a message or of one of its parts: 64 hexadecimal digits.")


def _checked_domain(operator: str, value: str) -> str:
    domain = normalize_host(value.removeprefix("*."))
    if not _is_domain(domain):
        raise InvalidQuery(f"`{operator}:` needs an address or a domain with at least two labels.")
    return domain


def _is_domain(text: str) -> bool:
    labels = normalize_host(text).split(".") if text else []
    return 2 <= len(labels) <= 127 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()


def _network(text: str) -> IPv4Network | IPv6Network | None:
    """Return the network of an address or a CIDR, without its host bits; None if it is neither."""
    address, _, length = text.partition("/")
    try:
        plain = terms.plain_address(address.strip("[]"))
        return ip_network((str(plain), int(length) if length else plain.max_prefixlen), strict=False)
    except ValueError:
        return None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if len(text) in (32, 36) else None
    except ValueError:
        return None


OPERATORS: Mapping[str, Callable[[str, Tenants], Condition]] = {
    "from": _sender,
    "to": _recipient,
    "subject": _subject,
    "domain": _domain,
    "ip": _ip,
    "tag": _tag,
    "verdict": _verdict,
    "decision": _decision,
    "is": _state,
    "tenant": _tenant,
    "ggrid": _ggrid,
    "url": _url,
    "hash": _hash,
    "campaign": _campaign,
}
