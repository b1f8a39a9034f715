"""The expected cost of a message, by which it waits among the quick or the heavy ones.

Weighing is cheap and does not trust declared media types: it reads sizes and first bytes.

Security: weighing reads hostile bytes; image headers are read only in a worker process.
"""

import io
import warnings
from collections.abc import Iterable

from msgspec import Struct
from PIL import Image

from mailwarden.message.message import Message

HEAVY_BYTES = 1024 * 1024  # a message above this is heavy with any content
HEAVY_PACKED_BYTES = 256 * 1024  # of archives, documents and programs in a message
HEAVY_PIXELS = 6_000_000  # of all pictures of a message
HEAVY_PICTURES = 40
LIGHT_SECONDS = 0.25  # of processor time for one message on a worker for light ones; then it is handed over
QUICK_BYTES = 65_536
QUICK_SECONDS = 0.1  # the same for a message that looks quick

# Without these no part of a message is a file; a file in another form is found by the parse, and handed over.
_FILE_MARKS = (b"base64", b"application/", b"image/", b"audio/", b"video/", b"message/", b"begin ", b"=ybegin", b"\0")

_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")


class Weight(Struct, frozen=True, array_like=True):
    """The expected cost of a message: heavy, or not known before its files are unpacked."""

    heavy: bool = False
    has_files: bool = False


def is_quick(size: int, chunks: Iterable[bytes]) -> bool:
    """Return whether a message is short text by its raw bytes."""
    if size > QUICK_BYTES:
        return False
    text = b"".join(chunks)
    if b"base64" in text:  # as most programs write it; a copy in lower case takes longer
        return False
    lowered = text.lower()
    return not any(mark in lowered for mark in _FILE_MARKS)


def weigh(message: Message) -> Weight:
    """Return what a message may cost, by its decoded parts."""
    packed = pixels = pictures = 0
    for part in message.parts:
        if part.content.startswith(_PICTURES):
            pictures += 1
            pixels += _pixels(part.content)
        elif (
            not part.media_type.startswith("text/") or b"\0" in part.content[:4096]
        ):  # not inspection: chooses a worker
            packed += len(part.content)
    heavy = packed > HEAVY_PACKED_BYTES or pixels > HEAVY_PIXELS or pictures > HEAVY_PICTURES
    return Weight(heavy, has_files=packed > 0 or pictures > 0)


def has_heavy_pictures(files: Iterable[bytes]) -> bool:
    """Return whether unpacked files are pictures of many pixels: an engine that unpacks them takes long."""
    return sum(_pixels(file) for file in files if file.startswith(_PICTURES)) > HEAVY_PIXELS


def _pixels(content: bytes) -> int:
    """Return the pixels that a picture's header declares, of all its frames where it may have several."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
                width, height = picture.size
                return width * height * (8 if picture.format in {"GIF", "WEBP", "TIFF"} else 1)
    except Exception:  # a picture that cannot be opened costs nothing
        return 0
