"""A parsed message: the headers and parts that every local analyzer reads."""

from msgspec import Struct

from mailwarden.model.place import Place


class Header(Struct, frozen=True):
    """One header field: its name in lower case, its unfolded value with encoded words decoded, within limits."""

    name: str
    value: str


class Part(Struct, frozen=True):
    """One leaf of the MIME tree, decoded. Two parsers read a message; `seen_by` names those that found this part."""

    path: str  # "1.2": second child of the first child; "0" where the message is not multipart
    media_type: str  # as declared, lower case, e.g. "text/html"
    name: str  # file name as declared, "" where there is none
    disposition: str  # "attachment", "inline" or ""
    charset: str
    content: bytes
    sha256: str
    seen_by: str = "both"  # "first", "second" or "both"
    other_names: tuple[str, ...] = ()  # where the header gives several, which clients choose from as they like
    other_charsets: tuple[str, ...] = ()
    joins_lines: bool = False  # DelSp of RFC 3676: a line that ends in a space goes on without it
    base: str = ""  # the address that relative ones of the part belong to, where its header gives one

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.other_names)

    @property
    def charsets(self) -> tuple[str, ...]:
        return (self.charset, *self.other_charsets)

    @property
    def place(self) -> Place:
        return Place(part=self.path, name=self.name)


class Message(Struct, frozen=True):
    size: int
    sha256: str
    headers: tuple[Header, ...]
    parts: tuple[Part, ...]
    ambiguities: tuple[str, ...] = ()  # sentences: where readers of this message may disagree

    def header(self, name: str) -> str:
        """Return the first value of a header, or "" if it is absent."""
        return next((header.value for header in self.headers if header.name == name), "")

    def all_headers(self, name: str) -> tuple[str, ...]:
        return tuple(header.value for header in self.headers if header.name == name)
