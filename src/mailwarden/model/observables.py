"""What a message shows that list entries can meet, besides its envelope and its summary; only what is wanted."""

from enum import StrEnum

from msgspec import Struct

from mailwarden.model.place import Place


class Observable(StrEnum):
    """A kind of sighting. Each costs time, so a worker looks only for what some list in use can meet."""

    SENDERS = "senders"
    URLS = "urls"
    FILES = "files"
    INSIDE = "inside"  # what archives hold
    DIGESTS = "digests"  # SHA-1 and MD5; SHA-256 is there anyway
    RELAYS = "relays"
    SUBJECTS = "subjects"
    CONTENTS = "contents"  # the decoded parts themselves, for engines


class InnerFile(Struct, frozen=True, array_like=True):
    """One file of an archive, under its bare name."""

    name: str
    sha256: str = ""
    sha1: str = ""
    md5: str = ""


class ObservedFile(Struct, frozen=True, array_like=True):
    """One part of the message; a body is what a reader sees as the text, not as an attachment."""

    place: Place
    name: str
    media_type: str
    sha256: str
    sha1: str = ""
    md5: str = ""
    inside: tuple[InnerFile, ...] = ()
    is_body: bool = False


class Observables(Struct, frozen=True, array_like=True):
    senders: tuple[str, ...] = ()  # every address of every From
    urls: tuple[str, ...] = ()
    files: tuple[ObservedFile, ...] = ()
    relays: tuple[str, ...] = ()  # the address each Received hop took the message from, the latest first
    subjects: tuple[str, ...] = ()  # every Subject
