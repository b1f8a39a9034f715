"""The kinds of entries: how each is read, normalised and matched."""

from collections.abc import Mapping

from mailwarden.lists.kinds.attachments import ATTACHMENT
from mailwarden.lists.kinds.domains import DOMAIN
from mailwarden.lists.kinds.hashes import HASH, SHA256
from mailwarden.lists.kinds.kind import Entry, Kind
from mailwarden.lists.kinds.networks import DOMAIN_OR_IP, IP
from mailwarden.lists.kinds.people import PERSON
from mailwarden.lists.kinds.senders import RECIPIENT, SENDER
from mailwarden.lists.kinds.subjects import SUBJECT
from mailwarden.lists.kinds.urls import URL

__all__ = ["KINDS", "Entry", "Kind"]

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (SENDER, IP, URL, HASH, SHA256, ATTACHMENT, SUBJECT, RECIPIENT, DOMAIN_OR_IP, PERSON, DOMAIN)
}
