"""The operators of a search, one function each: a value as typed becomes a condition on the terms of a row.

Security: reads text that a person typed; defanged values are made whole, and what an operator cannot mean is refused
with a sentence.
"""

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from uuid import UUID

from msgspec import Struct

from mailwarden.errors import InvalidQuery
from mailwarden.history import terms
from mailwarden.message.urls import normalize_host
from mailwarden.model.ggrid import day_of
from mailwarden.model.outcome import Decision, Verdict

Tenants = Mapping[str, UUID] | None

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_TAG = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_OTHER_HASH = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{96}|[0-9a-fA-F]{128}")
_DEFANGED = re.compile(r"[\[({](\.|dot|@|at|:|://|/)[\])}]", re.IGNORECASE)
_DEFANGED_SCHEME = re.compile(r"^(h[xX*]{2}p|fxp)(?=s?://)", re.IGNORECASE)


class Condition(Struct, frozen=True):
    """One thing that must hold: of each group of terms the row has one; and what terms cannot tell is looked at.

    `network` and `phrase` narrow what the terms found; `negated` turns the whole round.
    """

    operator: str
    value: str  # as it was understood
    groups: tuple[tuple[str, ...], ...] = ()
    network: str = ""
    phrase: str = ""
    ggrid: UUID | None = None
    negated: bool = False


def read_value(operator: str, value: str, tenants: Tenants = None) -> Condition:
    """Return the condition of `operator:value`, or raise InvalidQuery."""
    reader = OPERATORS.get(operator)
    if reader is None:
        known = " ".join(f"{name}:" for name in OPERATORS)
        raise InvalidQuery(f"There is no operator `{operator}:`. There are {known} and words without one.")
    value = refang(value.strip())
    if not value:
        raise InvalidQuery(f"`{operator}:` needs a value behind the colon, without a space.")
    return reader(value, tenants)


def read_bare(value: str, *, quoted: bool = False) -> Condition:
    """Return the condition of a word without an operator: what it looks like decides, else it is of the subject."""
    whole = refang(value.strip())
    if not quoted and whole:
        if "@" in whole.strip("@"):
            return _from_or_to(whole)
        if _SHA256.fullmatch(whole):
            return _hash(whole, None)
        if _uuid(whole):
            return _ggrid(whole, None)
        if _network(whole):
            return _ip(whole, None)
        if "://" in whole or (_is_domain(whole.partition("/")[0]) and "/" in whole):
            return _url(whole, None)
        if _is_domain(whole):
            return _domain(whole, None)
    return _subject(value, None)


def refang(text: str) -> str:
    """Make a defanged value whole: hxxp, and a dot, `@`, `:` or `/` in brackets."""
    text = _DEFANGED.sub(lambda found: {"dot": ".", "at": "@"}.get(found[1].lower(), found[1]), text)
    return _DEFANGED_SCHEME.sub(lambda found: "ftp" if found[1].lower() == "fxp" else "http", text)


def _sender(value: str, _: Tenants) -> Condition:
    if value == terms.NULL_SENDER:
        return Condition("from", value, ((f"from:{value}",),))
    value = _unbracketed(value)
    if "@" in value.lstrip("@"):
        term = terms.address_term("from", value)
    elif "." in value or value.startswith("@"):
        term = terms.domain_term("from", _checked_domain("from", value.removeprefix("@")))
    else:
        return _words("from", "name", value)
    return Condition("from", term.partition(":")[2], ((term,),))


def _recipient(value: str, _: Tenants) -> Condition:
    value = _unbracketed(value)
    if "@" in value.lstrip("@"):
        term = terms.address_term("to", value)
    else:
        term = terms.domain_term("to", _checked_domain("to", value.removeprefix("@")))
    return Condition("to", term.partition(":")[2], ((term,),))


def _from_or_to(value: str) -> Condition:
    value = _unbracketed(value)
    found = tuple(terms.address_term(operator, value) for operator in ("from", "to"))
    return Condition("address", found[0].partition(":")[2], (found,))


def _unbracketed(value: str) -> str:
    """Return an address as it stands in a header, `<alice@sender.example>`, without its brackets."""
    return value[1:-1] if value.startswith("<") and value.endswith(">") else value


def _subject(value: str, _: Tenants) -> Condition:
    return _words("subject", "subject", value)


def _words(operator: str, kept_as: str, value: str) -> Condition:
    """Match whole words; of several, side by side as they were written."""
    if "*" in value or "?" in value.rstrip("?"):
        raise InvalidQuery("Words are found whole: `*` and `?` stand for nothing here.")
    found = list(dict.fromkeys(terms.word_terms(kept_as, value)))
    if not found:
        raise InvalidQuery("There is no letter or digit to look for.")
    folded = " ".join(terms.fold(value).split())
    phrase = folded if f"{kept_as}:{folded}" not in found else ""
    return Condition(operator, folded, tuple((term,) for term in found), phrase=phrase)


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


def _one_of(operator: str, value: str, fits: Callable[[str], bool], wanted: str) -> Condition:
    values = list(dict.fromkeys(value.lower().split(",")))
    if not all(map(fits, values)):
        raise InvalidQuery(f"`{operator}:` needs {wanted}; several are separated by commas, without spaces.")
    return Condition(operator, ",".join(values), (tuple(f"{operator}:{each}" for each in values),))


def _tenant(value: str, tenants: Tenants) -> Condition:
    uid = _uuid(value)
    if tenants is not None:
        named = {terms.fold(name): each for name, each in tenants.items()}
        uid = uid if uid in named.values() else named.get(terms.fold(value))
        if uid is None:
            raise InvalidQuery("There is no such tenant among those you may see.")
    if uid is None:
        raise InvalidQuery("`tenant:` needs the tenant's uid.")
    return Condition("tenant", str(uid), ((f"tenant:{uid}",),))


def _ggrid(value: str, _: Tenants) -> Condition:
    ggrid = _uuid(value)
    if ggrid is None or day_of(ggrid) is None:
        raise InvalidQuery("`ggrid:` needs the id of a guard request, a UUID of version 7.")
    return Condition("ggrid", str(ggrid), ggrid=ggrid)


def _url(value: str, _: Tenants) -> Condition:
    host, path = terms.link_of(value)
    if not _is_domain(host) and not host.startswith("[") and _network(host) is None:
        raise InvalidQuery("`url:` needs a host or a URL, such as evil.example or https://evil.example/login.")
    return Condition("url", host + path, ((f"url:{host}{path}",),))


def _hash(value: str, _: Tenants) -> Condition:
    if _SHA256.fullmatch(value):
        return Condition("hash", value.lower(), ((terms.hash_term(value),),))
    if _OTHER_HASH.fullmatch(value):
        raise InvalidQuery("History keeps SHA-256 alone: `hash:` needs 64 hexadecimal digits.")
    raise InvalidQuery("`hash:` needs a SHA-256, 64 hexadecimal digits, of a message or of a part of one.")


def _checked_domain(operator: str, value: str) -> str:
    domain = normalize_host(value.removeprefix("*."))
    if not _is_domain(domain):
        raise InvalidQuery(f"`{operator}:` needs an address or a domain with at least two labels.")
    return domain


def _is_domain(text: str) -> bool:
    labels = normalize_host(text).split(".") if text else []
    return 2 <= len(labels) <= 127 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()


def _network(text: str) -> IPv4Network | IPv6Network | None:
    """Return the network of an address or of a CIDR, whose host bits are let go, or None."""
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
    "tenant": _tenant,
    "ggrid": _ggrid,
    "url": _url,
    "hash": _hash,
}
