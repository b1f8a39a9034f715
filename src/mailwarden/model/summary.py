"""What is remembered of a message besides its evidence: never its body."""

from msgspec import Struct


class PartSummary(Struct, frozen=True):
    """One part as people see it: an attachment or a body."""

    path: str
    media_type: str
    name: str
    size: int
    sha256: str
    listed_name: str = ""  # the name that lists compare, if clients give the file an ending that `name` lacks


class LinkSummary(Struct, frozen=True):
    """One link: the text that a reader sees, where it leads, and the host of that; a bare URL is its own text."""

    text: str
    target: str
    host: str = ""


class HopSummary(Struct, frozen=True):
    """One Received line, as far as it could be read; what it says is the word of whoever wrote it."""

    from_host: str = ""
    by_host: str = ""
    address: str = ""  # which `by_host` saw the message come from
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
    links: tuple[LinkSummary, ...] = ()  # the first to each host, then the others, within a bound
    hops: tuple[HopSummary, ...] = ()  # the latest first, as they stand in the message
