"""What is remembered of a message besides its evidence: never its body."""

from msgspec import Struct


class PartSummary(Struct, frozen=True):
    """One part as people see it: an attachment or a body."""

    path: str
    media_type: str
    name: str
    size: int
    sha256: str


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
