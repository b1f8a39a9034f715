"""The summary of a message that history stores: never its body."""

from msgspec import Struct


class PartSummary(Struct, frozen=True):
    """One part: an attachment or a body."""

    path: str
    media_type: str
    name: str
    size: int
    sha256: str
    listed_name: str = ""  # the name that lists match, if clients add an extension that `name` lacks


class LinkSummary(Struct, frozen=True):
    """One link: its visible text, its target, and the host of the target; the text of a bare URL is the URL."""

    text: str
    target: str
    host: str = ""


class HopSummary(Struct, frozen=True):
    """One Received line, as far as it could be parsed; any server or sender may have written it."""

    from_host: str = ""
    by_host: str = ""
    address: str = ""  # the client that `by_host` names
    moment: str = ""  # as written


class MessageSummary(Struct, frozen=True):
    size: int
    sha256: str
    from_address: str = ""
    from_name: str = ""
    reply_to: str = ""
    to: tuple[str, ...] = ()
    subject: str = ""
    message_id: str = ""
    date: str = ""
    parts: tuple[PartSummary, ...] = ()
    url_hosts: tuple[str, ...] = ()
    links: tuple[LinkSummary, ...] = ()  # the first link to each host, then the others, up to a limit
    hops: tuple[HopSummary, ...] = ()  # the latest first, as in the message
