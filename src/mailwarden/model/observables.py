"""The observables of a message: values that list entries can match, besides its envelope and its summary."""

from enum import StrEnum

from msgspec import Struct

from mailwarden.model.place import Place


class Observable(StrEnum):
    """A kind of value. Each costs time, so a worker extracts only the kinds that some list in use can match."""

    SENDERS = "senders"
    URLS = "urls"
    FILES = "files"
    INSIDE = "inside"  # files in archives
    DIGESTS = "digests"  # SHA-1 and MD5; SHA-256 is always computed
    RELAYS = "relays"
    SUBJECTS = "subjects"
    CONTENTS = "contents"  # the decoded parts, for engines


class InnerFile(Struct, frozen=True, array_like=True):
    """One file of an archive, by its name without folders."""

    name: str
    sha256: str = ""
    sha1: str = ""
    md5: str = ""


class ObservedFile(Struct, frozen=True, array_like=True):
    """One part of the message; a body is shown as the text, not as an attachment."""

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
    relays: tuple[str, ...] = ()  # the client IP of each Received hop, the latest first
    subjects: tuple[str, ...] = ()  # every Subject
