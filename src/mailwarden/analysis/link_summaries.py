"""The links of a message as history keeps them and people are shown them: of the analyzers' own set, few of each host.

Security: works on hostile addresses; what is kept of them is cut, and only printable characters are.
"""

from msgspec.structs import replace

from mailwarden.analysis.sightings import listed_name
from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of
from mailwarden.model.summary import LinkSummary, MessageSummary, PartSummary


def with_links(summary: MessageSummary, view: View) -> MessageSummary:
    """Return the summary with the links of the message (the first to each host, then some of the others), and with the
    names that lists compare.
    """
    first: dict[str, LinkSummary] = {}
    others: list[LinkSummary] = []
    known: set[tuple[str, str]] = set()
    for seen in view.links:
        target = _printable(seen.url)[: SHOWN.link]
        text = _printable(seen.text)[: SHOWN.fact] if seen.text else target
        if target[:1] in ("", "#") or (text, target) in known or seen.bare:
            continue
        known |= {(text, target), (target, target)}  # the plain text of a message repeats the links of its page
        link = LinkSummary(text, target, seen.host)
        if first.setdefault(link.host, link) is not link and len(others) < SHOWN.links:
            others.append(link)
    links = (*first.values(), *others)[: SHOWN.links]
    hosts = {link.host for link in (*view.links, *view.loads)}
    hosts |= {host_of(url) for url in (*view.labels, *(url for url, _ in view.document_links))}
    shown = sorted(host for host in hosts if "." in host and host.isprintable())
    return replace(summary, links=links, url_hosts=tuple(shown[: SHOWN.hosts]), parts=_parts(summary, view))


def _parts(summary: MessageSummary, view: View) -> tuple[PartSummary, ...]:
    """Return the parts, each with the name under which lists meet it where that is another than its own."""
    names = (listed_name(part.name, part.media_type, part.content) for part in view.message.parts)
    return tuple(
        replace(part, listed_name=name[: SHOWN.name]) if name != part.name else part
        for part, name in zip(summary.parts, names, strict=False)
    )


def _printable(text: str) -> str:
    """Drop what cannot be seen: control characters, and those that turn the direction of a text."""
    return text if text.isprintable() else "".join(filter(str.isprintable, text))
