"""A place in a message as a value, and the function that writes it as text."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

_NAME = 255  # recorded characters of a file name; the end has the extension
_TEXT = 1_000
_SHOWN = 200


def shorten(text: str, length: int) -> str:
    """Return at most `length` printable characters of a text, on one line."""
    text = text[: 4 * length]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)
    text = text.strip()
    return text if len(text) <= length else text[: length - 1] + "…"


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


class PlaceWords(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The words that name a place, in one language."""

    part: str = "part"
    page: str = "page {number} of {place}"
    link: str = "link in {place}"
    code: str = "QR code in {place}"
    without_name: str = "without a name"
    areas: dict[str, str] = {}  # areas that are no header field, such as `the text`


ENGLISH_PLACES = PlaceWords()


def area(name: str) -> Place:
    """Return the place of a header field or another named area of the message."""
    return Place(area=name)


def place_text(place: Place, words: PlaceWords = ENGLISH_PLACES) -> str:
    """Write a place as an analyst reads it, such as `QR code in page 2 of part 3 (a.zip) > b.pdf`."""
    text = words.areas.get(place.area, place.area)
    if not text and place.part:
        text = f"{words.part} {place.part} ({place.name})" if place.name else f"{words.part} {place.part}"
    if place.inside:
        text = " > ".join((text, *(name or words.without_name for name in place.inside)))
    if len(text) > _TEXT:
        text = f"… {text[-_TEXT:]}"
    if place.page:
        text = words.page.replace("{number}", str(place.page)).replace("{place}", text)
    if place.kind is PlaceKind.FILE:
        return text
    return (words.link if place.kind is PlaceKind.LINK else words.code).replace("{place}", text)


def shown_place(place: Place, words: PlaceWords = ENGLISH_PLACES) -> str:
    """Return the text of a place for API callers and pages: short, on one line, without control characters."""
    return shorten(place_text(place, words), _SHOWN)
