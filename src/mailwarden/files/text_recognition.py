"""Recognizes the text in pictures by Tesseract, through the C interface of the system's library.

The library and its languages are optional packages (`libtesseract5`, `tesseract-ocr-eng`, `tesseract-ocr-jpn`). The
English model reads the letters of all languages in Latin script, which is enough for phrases that are compared without
accents; the Japanese one is used beside Japanese text. See decision 76.

Security: native code on hostile pixels: only inside a killable worker. It starts no thread and no process, reads only
its models, and pixels and time are bounded by the caller.
"""

import atexit
import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from PIL import Image

LIBRARY = "libtesseract.so.5"
MODELS = tuple(Path(folder) for folder in ("/usr/share/tesseract-ocr/5/tessdata", "/usr/share/tessdata"))
LATIN, JAPANESE = "eng", "jpn"
_RESOLUTION = 96  # pixels in an inch of a picture for screens
_TEXT = ctypes.c_void_p  # freed by the library, so it is kept as an address


def languages() -> tuple[str, ...]:
    """Return the languages of ours that are installed, or none without the library."""
    folder = _folder()
    return tuple(each for each in (LATIN, JAPANESE) if (folder / f"{each}.traineddata").is_file()) if _library() else ()


def version() -> str:
    library = _library()
    return library.TessVersion().decode("ascii", "replace") if library else ""


def recognize(grey: Image.Image, language: str, milliseconds: int) -> tuple[str, bool]:
    """Return the text of a grey picture, and whether it was read to its end in this time."""
    library, reader = _library(), _reader(language)
    if library is None or reader is None:
        return "", True
    monitor = ctypes.c_void_p(library.TessMonitorCreate())
    try:
        library.TessBaseAPISetImage(reader, grey.tobytes(), grey.width, grey.height, 1, grey.width)
        library.TessBaseAPISetSourceResolution(reader, _RESOLUTION)
        library.TessMonitorSetDeadlineMSecs(monitor, max(1, milliseconds))
        with _silenced():
            finished = library.TessBaseAPIRecognize(reader, monitor) == 0
        text = _TEXT(library.TessBaseAPIGetUTF8Text(reader))
        read = ctypes.string_at(text).decode("utf-8", "replace") if text else ""
        library.TessDeleteText(text)
    finally:
        library.TessMonitorDelete(monitor)
        library.TessBaseAPIClear(reader)
    return read, finished


@contextmanager
def _silenced() -> Iterator[None]:
    """Close standard error for a while: the library writes remarks there, as many as a hostile picture has."""
    kept = os.dup(2)
    os.close(2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def choose_language(texts: Iterable[str]) -> str:
    """Return the model for pictures beside these texts, or "" if none is installed."""
    installed = languages()
    if JAPANESE in installed and any("\u3040" <= character <= "\u30ff" for text in texts for character in text):
        return JAPANESE
    return LATIN if LATIN in installed else next(iter(installed), "")


@cache
def _library() -> ctypes.CDLL | None:
    # The library would start a thread for each core; it reads this variable when it is loaded.
    os.environ["OMP_THREAD_LIMIT"] = "1"
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    for name in ("TessBaseAPICreate", "TessMonitorCreate", "TessBaseAPIGetUTF8Text"):
        getattr(library, name).restype = ctypes.c_void_p
    library.TessVersion.restype = ctypes.c_char_p
    return library


def _folder() -> Path:
    return next((folder for folder in MODELS if folder.is_dir()), MODELS[0])


@cache
def _reader(language: str) -> ctypes.c_void_p | None:
    """Return an open reader, which is kept for the next message; None if its model cannot be loaded."""
    library = _library()
    if library is None or language not in languages():
        return None
    reader = ctypes.c_void_p(library.TessBaseAPICreate())
    if library.TessBaseAPIInit3(reader, os.fsencode(_folder()), language.encode("ascii")) != 0:
        library.TessBaseAPIDelete(reader)
        return None
    atexit.register(library.TessBaseAPIDelete, reader)
    return reader
