"""A place in a message as a value, and the function that writes it as text."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


def shorten(text: str, length: int) -> str:
    """Return at most `length` printable characters of a text, on one line."""
    text = text[: 4 * length]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)
    text = text.strip()
    return text if len(text) <= length else text[: length - 1] + "…"


_NAME = 255  # recorded characters of a file name; the end has the extension
_TEXT = 1_000
_SHOWN = 200


class PlaceKind(StrEnum):
    """The kind of thing at a place."""

    FILE = "file"  # the file itself, or a named area of the message
    LINK = "link"  # a link in the file
    CODE = "code"  # a QR code in the file


class Place(Struct, frozen=True, omit_defaults=True):
    """A MIME part, a file inside it, or a named area such as `From`.

    Without any field it is the whole message.
    """

    part: str = ""  # the path of the part, such as `1.2`
    name: str = ""  # its file name
    inside: tuple[str, ...] = ()  # names of files, from the outermost to the innermost
    page: int = 0  # of a document, from 1
    kind: PlaceKind = PlaceKind.FILE
    area: str = ""  # of the message: `From`, `envelope`, `the text`

    def within(self, name: str) -> "Place":
        """Return the place of a file inside this one."""
        return replace(self, inside=(*self.inside, name[-_NAME:]))

    def on_page(self, number: int) -> "Place":
        return replace(self, page=number)

    def link(self) -> "Place":
        return replace(self, kind=PlaceKind.LINK)

    def code(self) -> "Place":
        return replace(self, kind=PlaceKind.CODE)


WHOLE_MESSAGE = Place()
THE_TEXT = Place(area="the text")
THE_PAGE = Place(area="the page")
_PREFIXES = {PlaceKind.FILE: "", PlaceKind.LINK: "link in ", PlaceKind.CODE: "QR code in "}


def area(name: str) -> Place:
    """Return the place of a header field or another named area of the message."""
    return Place(area=name)


def place_text(place: Place) -> str:
    """Write a place as an analyst reads it, such as `QR code in page 2 of part 3 (a.zip) > b.pdf`."""
    text = place.area
    if not text and place.part:
        text = f"part {place.part} ({place.name})" if place.name else f"part {place.part}"
    if place.inside:
        text = " > ".join((text, *(name or "without a name" for name in place.inside)))
    if len(text) > _TEXT:
        text = f"… {text[-_TEXT:]}"
    if not place.page and place.kind is PlaceKind.FILE:
        return text
    page = f"page {place.page} of " if place.page else ""
    return f"{_PREFIXES[place.kind]}{page}{text}"


def shown_place(place: Place) -> str:
    """Return the text of a place for API callers and pages: short, on one line, without control characters."""
    return shorten(place_text(place), _SHOWN)
