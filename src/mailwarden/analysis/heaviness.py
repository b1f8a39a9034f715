"""Which messages are heavy: told by their size before they are read, by their parts once they are parsed.

Heavy messages have workers of their own, at a lower priority, so that they cannot keep others waiting. The rule must be
cheap and must not trust declared media types: it looks at sizes, and at the first bytes of parts and pictures.
"""

import io
import warnings

from PIL import Image

from mailwarden.message.message import Message, Part

HEAVY_BYTES = 1024 * 1024  # a message above this is heavy whatever it holds
HEAVY_PACKED_BYTES = 256 * 1024  # of archives, documents and programs in a message
HEAVY_PIXELS = 6_000_000  # of all pictures of a message
HEAVY_PICTURES = 40
LIGHT_SECONDS = 0.25  # of processor time for one message on a worker for light ones; then it is handed over

_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")


def is_heavy(message: Message) -> bool:
    """Tell by the decoded parts of a message whether analyzers may take long."""
    packed = pixels = pictures = 0
    for part in message.parts:
        if part.content.startswith(_PICTURES):
            pictures += 1
            pixels += _pixels(part)
        elif (
            not part.media_type.startswith("text/") or b"\0" in part.content[:4096]
        ):  # not inspection: chooses a worker
            packed += len(part.content)
    return packed > HEAVY_PACKED_BYTES or pixels > HEAVY_PIXELS or pictures > HEAVY_PICTURES


def _pixels(part: Part) -> int:
    """Return the pixels that a picture's header declares, of all its frames where it may have several."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(part.content), formats=_FORMATS) as picture:
                width, height = picture.size
                return width * height * (8 if picture.format in {"GIF", "WEBP", "TIFF"} else 1)
    except Exception:  # a picture that cannot be opened costs nothing
        return 0
