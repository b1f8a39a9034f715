"""Draws what an EMF file shows: its shapes, and the pictures inside it (MS-EMF).

Security: hostile bytes; records, points and pixels are bounded, and skipped content is recorded as missed.
"""

import io
import struct
from collections.abc import Iterator

from PIL import Image, ImageDraw

from mailwarden.files.images import LIGHT, WORKING_PIXELS, flatten
from mailwarden.message.coverage import Coverage
from mailwarden.model.place import Place

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
        elif shade < LIGHT:
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
