"""Where the links of a document lead, looked at as those of the message itself are.

Security: works on hostile addresses inside a killable worker; links, findings and facts are bounded.
"""

from collections.abc import Iterator, Sequence

from mailwarden.analysis.link_target import Ties, look_at_address
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of, registrable_domain
from mailwarden.model.evidence import Finding
from mailwarden.model.place import Place


def look_at_links_of(place: Place, links: Sequence[str], ties: Ties) -> Iterator[Finding]:
    """Yield what is to be noticed of the links to strangers, each kind once."""
    seen: set[str] = set()
    for link in (link for link in links if _is_to_stranger(link, ties)):
        for what, facts in look_at_address(link, ties):
            if what not in seen:
                seen.add(what)
                cut = {name: value[: SHOWN.fact] if isinstance(value, str) else value for name, value in facts.items()}
                yield Finding(f"urls.{what}", place.link(), cut | ({"url": link} if len(link) <= SHOWN.fact else {}))


def lone_stranger(links: Sequence[str], ties: Ties) -> str:
    """Return the host of the one stranger that all links lead to, or ""."""
    hosts = [host for link in links if (host := host_of(link))]
    if len({registrable_domain(host) for host in hosts}) != 1:
        return ""
    return next((host for host in hosts if ties.is_stranger(host)), "")


def _is_to_stranger(link: str, ties: Ties) -> bool:
    host = host_of(link)
    return bool(host) and ties.is_stranger(host)
