"""Decodes images as mail clients show them: every frame in grey, within bounds.

A large image is reduced while it is decoded if its format allows that (JPEG), else right afterwards, so that memory and
time stay bounded.

Security: image decoders are native code on hostile bytes: only inside a killable worker. Sides and pixels are checked
before anything is decoded; content that is not decoded is recorded as missed.
"""

import io
import time
import warnings
from collections.abc import Iterator

from PIL import Image, ImageChops, ImageFile

from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import LIMITS
from mailwarden.model.place import Place

ImageFile.LOAD_TRUNCATED_IMAGES = True  # mail clients show a truncated picture, so we read it too
Image.MAX_IMAGE_PIXELS = LIMITS.jpeg_pixels // 2  # Pillow warns from here, and raises from twice as many

MIN_SIDE = 10  # the smallest code, one pixel a module
WORKING_PIXELS = 4_000_000  # larger images are reduced: a code that people can scan stays readable
_SMALLEST_FILE = 200  # bytes; a damaged picture that is smaller shows no code
_GRID = 32  # frames are compared by a picture of so many fields a side
LIGHT = 128  # the darkest shade of a picture that is made for dark pages
_CHANGED = 24  # shades by which a field of a new frame differs

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "DIB", "TIFF", "AVIF", "JPEG2000", "ICO", "CUR")
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),
    (b"MM\x00+", "tiff"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg 2000"),
    (b"\xff\x4f\xff\x51", "jpeg 2000"),
    (b"\0\0\x01\0", "icon"),
    (b"\0\0\x02\0", "icon"),
    (b"\xff\x0a", "jpeg xl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jpeg xl"),
    (b"\xd7\xcd\xc6\x9a", "wmf"),
)
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1")
_AVIF_BRANDS = (b"avif", b"avis")
UNSUPPORTED = frozenset({"jpeg xl", "wmf"})


class PictureClock:
    """The processor time that looking for codes in one message may take."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        self._until = time.process_time() + coverage.limits.picture_seconds

    def is_over(self, place: Place) -> bool:
        if time.process_time() <= self._until:
            return False
        self.coverage.beyond("picture_seconds", place)
        return True


def picture_kind(content: bytes) -> str:
    """Return the format of a picture by its first bytes, or "" where it is none that mail clients show."""
    head = content[:64]
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[4:8] == b"ftyp":
        if head[8:12] in _AVIF_BRANDS or b"avif" in head[16:64]:
            return "avif"
        return "heic" if head[8:12] in _HEIF_BRANDS else ""
    return "emf" if head[:4] == b"\1\0\0\0" and head[40:44] == b" EMF" else ""


def read_frames(content: bytes, kind: str, clock: PictureClock, place: Place) -> Iterator[Image.Image]:
    """Yield the frames of a picture in grey that differ from each other; record frames that are not decoded."""
    coverage = clock.coverage
    formats: tuple[str, ...] = _FORMATS
    if kind == "heic":
        import pi_heif  # noqa: PLC0415 - slow to import, and few messages need it

        pi_heif.register_heif_opener(thumbnails=False)
        formats = ("HEIF",)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about many pixels; they are counted here
            with Image.open(io.BytesIO(content), formats=formats) as picture:
                if min(picture.size) < MIN_SIDE:
                    return
                if _is_too_large(picture, coverage, place):
                    return
                yield from _frames(picture, clock, place)
    except (MemoryError, Image.DecompressionBombError):
        coverage.beyond("picture_pixels", place)
    except Exception:  # a hostile picture may break its decoder in any way
        if len(content) >= _SMALLEST_FILE:
            coverage.damaged(place, "the picture cannot be decoded to its end")


def _is_too_large(picture: ImageFile.ImageFile, coverage: Coverage, place: Place) -> bool:
    """Ask a JPEG decoder for a smaller picture; return whether there are still more pixels than may be decoded."""
    width, height = picture.size
    if picture.format == "JPEG":
        if width * height > coverage.limits.jpeg_pixels:
            coverage.beyond("jpeg_pixels", place)
            return True
        factor = (width * height / WORKING_PIXELS) ** 0.5
        picture.draft("L", (int(width / factor), int(height / factor)) if factor > 1 else (width, height))
        if picture.info.get("progressive") and width * height > coverage.limits.picture_pixels:
            coverage.beyond("picture_pixels", place)  # its decoder holds all of it at once
            return True
    if picture.width * picture.height > coverage.limits.picture_pixels:
        coverage.beyond("picture_pixels", place)
        return True
    return False


def _frames(picture: ImageFile.ImageFile, clock: PictureClock, place: Place) -> Iterator[Image.Image]:
    if not getattr(picture, "is_animated", False):
        yield from flatten(picture)
        return
    limits = clock.coverage.limits
    seen: Image.Image | None = None
    number = 0
    while _has_frame(picture, number):
        if number >= limits.picture_frames:
            clock.coverage.beyond("picture_frames", place)
            return
        if picture.width * picture.height > limits.picture_pixels:  # pages of a TIFF differ in size
            clock.coverage.beyond("picture_pixels", place)
            return
        if number and clock.is_over(place):
            return
        for grey in flatten(picture):
            outline = grey.resize((_GRID, _GRID), Image.Resampling.BOX, reducing_gap=2.0)
            if seen is None or _differs(outline, seen):
                seen = outline
                yield grey
        number += 1


def _has_frame(picture: ImageFile.ImageFile, number: int) -> bool:
    try:
        picture.seek(number)
    except (EOFError, ValueError, AttributeError):
        return False
    return True


def _differs(outline: Image.Image, seen: Image.Image) -> bool:
    """Return whether a frame shows something new; each is compared with the last one that was looked at."""
    _, most = ImageChops.difference(outline, seen).getextrema()
    return isinstance(most, (int, float)) and most >= _CHANGED


def flatten(picture: Image.Image) -> Iterator[Image.Image]:
    """Yield a picture in grey on white; one that is light and transparent on black too, as dark pages show it."""
    if "transparency" in picture.info and picture.mode not in {"RGBA", "LA"}:
        picture = picture.convert("RGBA")
    if picture.mode in {"RGBA", "LA", "PA", "La", "RGBa"}:
        picture = picture if picture.mode in {"RGBA", "LA"} else picture.convert("RGBA")
        shown, opaque = picture.convert("L"), picture.getchannel("A")
        grey = Image.new("L", picture.size, 255)
        grey.paste(shown, mask=opaque)
        yield grey
        darkest, _ = grey.getextrema()
        if isinstance(darkest, (int, float)) and darkest > LIGHT:
            grey = Image.new("L", picture.size, 0)
            grey.paste(shown, mask=opaque)
            yield grey
        return
    if picture.mode.startswith(("I", "F")):  # sixteen bits a pixel and more, which are cut by a plain conversion
        yield _scaled(picture)
        return
    yield picture.convert("L")


def _scaled(picture: Image.Image) -> Image.Image:
    wide = picture.convert("F")
    low, high = wide.getextrema()
    assert isinstance(low, (int, float))
    assert isinstance(high, (int, float))
    span = (high - low) or 1
    return wide.point(lambda value: value * (255 / span) - low * 255 / span).convert("L")


def shrink(picture: Image.Image) -> Image.Image:
    """Return a picture with at most as many pixels as are looked at together."""
    pixels = picture.width * picture.height
    if pixels <= WORKING_PIXELS:
        return picture
    factor = (WORKING_PIXELS / pixels) ** 0.5
    whole = int(1 / factor)
    if whole > 1:  # averages of whole fields are cheap, and leave little to resample
        picture = picture.reduce(whole)
        factor = min((WORKING_PIXELS / (picture.width * picture.height)) ** 0.5, 1.0)
    return picture.resize((max(1, int(picture.width * factor)), max(1, int(picture.height * factor))))
