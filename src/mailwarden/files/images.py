"""Decodes images as mail clients show them: every frame in grey, within bounds; of EMF also the shapes (MS-EMF).

A large image is reduced while it is decoded if its format allows that (JPEG), else right afterwards, so that memory and
time stay bounded.

Security: image decoders are native code on hostile bytes: only inside a killable worker. Sides and pixels are checked
before anything is decoded; content that is not decoded is recorded as missed.
"""

import io
import struct
import time
import warnings
from collections.abc import Iterator

from PIL import Image, ImageChops, ImageDraw, ImageFile

from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import LIMITS
from mailwarden.model.place import Place

ImageFile.LOAD_TRUNCATED_IMAGES = True  # mail clients show a truncated picture, so we read it too
Image.MAX_IMAGE_PIXELS = LIMITS.jpeg_pixels // 2  # Pillow warns from here, and raises from twice as many

MIN_SIDE = 10  # the smallest code, one pixel a module
WORKING_PIXELS = 4_000_000  # larger images are reduced: a code that people can scan stays readable
_SMALLEST_FILE = 200  # bytes; a damaged picture that is smaller shows no code
_GRID = 32  # frames are compared by a picture of so many fields a side
_LIGHT = 128  # the darkest shade of a picture that is made for dark pages
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
        if isinstance(darkest, (int, float)) and darkest > _LIGHT:
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


Shape = tuple[tuple[int, int], ...]

SIDE = 900  # pixels of the picture that is made of shapes
_MARGIN = 40
_FEW = 10  # shapes that draw no code
# By type of record, the offset of four numbers: offset and size of the bitmap's header, offset and size of its bits.
_BITMAPS = {76: 84, 77: 84, 78: 84, 79: 140, 80: 48, 81: 48, 114: 84, 116: 84}
_RECTANGLE, _POLYGON, _POLYGON_16, _POLY_POLYGON_16 = 43, 3, 86, 91
_SELECT, _CREATE_BRUSH, _COMMENT, _FILL = 37, 39, 70, 76
_STOCK_BRUSHES = {0x80000000: 255, 0x80000001: 192, 0x80000002: 128, 0x80000003: 64, 0x80000004: 0}
_NO_BRUSH = 0x80000005
_INNER = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8")


def read_metafile(content: bytes, coverage: Coverage, place: Place) -> Iterator[Image.Image]:
    """Yield the bitmaps of a metafile and an image of its shapes, in grey."""
    brushes: dict[int, int] = dict(_STOCK_BRUSHES)
    shade = 255
    dark: list[Shape] = []
    for kind, record in coverage.first(_records(content), "vector_shapes", place):
        if kind == _CREATE_BRUSH and len(record) >= 24:
            number, _, red, green, blue = struct.unpack_from("<IIBBB", record, 8)
            brushes[number] = (red + green + blue) // 3
        elif kind == _SELECT and len(record) >= 12:
            (number,) = struct.unpack_from("<I", record, 8)
            shade = 255 if number == _NO_BRUSH else brushes.get(number, shade)
        elif kind == _COMMENT:
            yield from _inner_pictures(record, coverage, place)
        elif kind in _BITMAPS and (bitmap := _bitmap(record, _BITMAPS[kind], coverage, place)):
            yield bitmap
        elif shade < _LIGHT:
            dark += _shapes(kind, record)
    if len(dark) >= _FEW:
        yield _draw(dark)


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, position)
        if size < 8:
            return
        yield kind, content[position : position + size]
        position += size


def _bitmap(record: bytes, place_of: int, coverage: Coverage, place: Place) -> Image.Image | None:
    """Return the bitmap of a record as a picture."""
    if len(record) < place_of + 16:
        return None
    start, size, bits, length = struct.unpack_from("<IIII", record, place_of)
    if not size or not length:
        return None
    header = record[start : start + size]
    head = b"BM" + struct.pack("<IHHI", 14 + size + length, 0, 0, 14 + size)
    return _decoded(head + header + record[bits : bits + length], coverage, place)


def _inner_pictures(record: bytes, coverage: Coverage, place: Place) -> Iterator[Image.Image]:
    """Yield pictures of other formats that EMF+ keeps in comments."""
    for mark in _INNER:
        position = record.find(mark)
        while position >= 0:
            if picture := _decoded(record[position:], coverage, place):
                yield picture
            position = record.find(mark, position + len(mark))


def _decoded(content: bytes, coverage: Coverage, place: Place) -> Image.Image | None:
    try:
        with Image.open(io.BytesIO(content), formats=("BMP", "PNG", "JPEG", "GIF")) as picture:
            if picture.width * picture.height > coverage.limits.picture_pixels:
                coverage.beyond("picture_pixels", place)
                return None
            return next(flatten(picture))
    except Exception:  # a hostile bitmap may break its decoder in any way
        return None


def _shapes(kind: int, record: bytes) -> Iterator[Shape]:
    try:
        if kind == _RECTANGLE:
            left, top, right, bottom = struct.unpack_from("<iiii", record, 8)
            yield (left, top), (right, top), (right, bottom), (left, bottom)
        elif kind == _FILL:  # a fill without a bitmap
            left, top, width, height = struct.unpack_from("<iiii", record, 24)
            yield (left, top), (left + width, top), (left + width, top + height), (left, top + height)
        elif kind in {_POLYGON, _POLYGON_16}:
            (count,) = struct.unpack_from("<I", record, 24)
            yield _points(record, 28, count, "h" if kind == _POLYGON_16 else "i")
        elif kind == _POLY_POLYGON_16:
            polygons, _ = struct.unpack_from("<II", record, 24)
            counts = struct.unpack_from(f"<{min(polygons, len(record) // 4)}I", record, 32)
            position = 32 + 4 * polygons
            for count in counts:
                yield _points(record, position, count, "h")
                position += 4 * count
    except struct.error:
        return


def _points(record: bytes, position: int, count: int, form: str) -> Shape:
    count = min(count, len(record) // 4)
    numbers = struct.unpack_from(f"<{2 * count}{form}", record, position)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _draw(shapes: list[Shape]) -> Image.Image:
    across = [x for shape in shapes for x, _ in shape]
    down = [y for shape in shapes for _, y in shape]
    left, top = min(across, default=0), min(down, default=0)
    scale = SIDE / max(max(across, default=1) - left, max(down, default=1) - top, 1)
    picture = Image.new("L", (SIDE + 2 * _MARGIN, SIDE + 2 * _MARGIN), 255)
    assert picture.width * picture.height <= WORKING_PIXELS
    pen = ImageDraw.Draw(picture)
    for shape in shapes:
        if len(shape) > 2:
            pen.polygon(
                [(_MARGIN + round((x - left) * scale), _MARGIN + round((y - top) * scale)) for x, y in shape], 0
            )
    return picture
