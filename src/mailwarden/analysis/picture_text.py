"""Reads the text in pictures that carry a message: large drawings that are shown beside little text.

Recognition costs a hundred times as much as any other reader, so photographs, small pictures and messages with a text
of their own are left out. Without the library the analysis is complete as well: a picture is then judged by its codes
and by the text beside it.

Security: works on hostile pictures inside a killable worker; pictures, pixels and time are bounded, and a picture that
was not read to its end is recorded as missed.
"""

import io
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from msgspec import Struct
from PIL import Image

from mailwarden.analysis.pictures import OFFICE_MEDIA, PictureSource, find_pictures
from mailwarden.files.images import UNSUPPORTED, PictureClock, read_frames
from mailwarden.files.text_recognition import choose_language, recognize
from mailwarden.message.addresses import Address
from mailwarden.model.place import Place

LITTLE_TEXT = 400  # characters beside a picture that carries the message
NO_TEXT = 100  # characters beside a picture that is a file, and not part of a page
LARGE = 120_000  # pixels of a picture that carries a message; logos are smaller
MIN_HEIGHT = 120
CARRYING = 4  # the largest drawings, which carry the message; smaller ones are its decoration
PIXELS = 3_000_000  # of one picture that is read
ENLARGED = 700_000  # pixels of a picture whose letters may be too small to read, so that it is made twice as large
SHADES = 16  # of 256 that make up most of a drawing
DRAWN = 0.5  # of its pixels
_FEWEST = 3  # letters of a text
_WIDE = re.compile("[\u3040-\u9fff]")  # Japanese and Chinese, of which a character is a word
_UNREAD = UNSUPPORTED | {"emf"}
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")


class PictureAndText(PictureSource, Protocol):
    """A message whose pictures are judged by the text beside them."""

    @property
    def subject(self) -> str: ...

    @property
    def sender(self) -> Address: ...

    @property
    def own_text(self) -> str: ...

    @property
    def unseen(self) -> int: ...


class PictureText(Struct, frozen=True):
    text: str
    place: Place


def read_picture_texts(view: PictureAndText) -> Iterator[PictureText]:
    """Yield the texts in the pictures of a message that they carry."""
    beside = _shown_length(view)
    if beside >= LITTLE_TEXT:
        return
    found = (
        picture for picture in find_pictures(view) if picture[1] not in _UNREAD and _is_shown(view, picture[2], beside)
    )
    sizes = [(_pixels(content), content, kind, place) for content, kind, place in found]
    large = sorted((size for size in sizes if size[0] >= LARGE), key=lambda each: -each[0])
    if large and (language := choose_language((view.subject, view.own_text, view.sender.name))):
        yield from recognize_texts(view, (each[1:] for each in large), language)


def recognize_texts(
    view: PictureAndText, pictures: Iterable[tuple[bytes, str, Place]], language: str
) -> Iterator[PictureText]:
    """Yield the texts of the drawings among pictures, the largest first, within the time for recognition."""
    clock = PictureClock(view.coverage)
    until = time.process_time() + view.coverage.limits.recognition_seconds
    carrying = islice(_drawings(pictures, clock), CARRYING)  # not inspection: which pictures carry the message
    for grey, place in carrying:
        left = int((until - time.process_time()) * 1_000)
        text, finished = recognize(_fitted(grey), language, left) if left > 0 else ("", False)
        text = " ".join(text.split())
        if sum(map(str.isalpha, text)) >= _FEWEST:
            yield PictureText(text, place)
        if not finished:
            view.coverage.beyond("recognition_seconds", place)
            return


def _drawings(pictures: Iterable[tuple[bytes, str, Place]], clock: PictureClock) -> Iterator[tuple[Image.Image, Place]]:
    for content, kind, place in pictures:
        grey = next(read_frames(content, kind, clock, place), None)
        if grey is not None and is_drawn(grey):
            yield grey, place


def is_drawn(grey: Image.Image) -> bool:
    """Return whether few shades make up most of a picture, as in a text and in no photograph."""
    counts = sorted(grey.histogram(), reverse=True)
    return sum(counts[:SHADES]) >= DRAWN * grey.width * grey.height


def _fitted(grey: Image.Image) -> Image.Image:
    pixels = grey.width * grey.height
    if pixels <= ENLARGED:
        return grey.resize((grey.width * 2, grey.height * 2), Image.Resampling.BICUBIC)
    if pixels <= PIXELS:
        return grey
    factor = (PIXELS / pixels) ** 0.5
    return grey.resize((max(1, int(grey.width * factor)), max(1, int(grey.height * factor))), reducing_gap=2.0)


def _shown_length(view: PictureAndText) -> int:
    """Return how much a person reads beside the pictures; hidden text does not count, and could hide the picture."""
    text = ""
    for reach in (4 * LITTLE_TEXT, 20 * LITTLE_TEXT):  # not inspection: a long beginning is a long text
        text = " ".join(view.own_text[:reach].split())
        if len(text) >= LITTLE_TEXT + view.unseen:
            break
    wide = 0 if text.isascii() else len(_WIDE.findall(text[:LITTLE_TEXT]))  # not inspection: as above
    return max(0, len(text) - view.unseen) + 2 * wide


def _is_shown(view: PictureAndText, place: Place, beside: int) -> bool:
    """Return whether clients show a picture with the text: it is no file of its own, or there is next to no text."""
    if beside < NO_TEXT:
        return not (place.inside and OFFICE_MEDIA.search(place.inside[-1]))
    part = next((part for part in view.message.parts if part.path == place.part), None)
    return not place.inside and (part is None or part.disposition != "attachment")


def _pixels(content: bytes) -> int:
    """Return how many pixels a picture has, or 0 for a low one and for one that cannot be opened."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
                return picture.width * picture.height if picture.height >= MIN_HEIGHT else 0
    except Exception:  # its damage is recorded where codes are looked for
        return 0
