"""How many pages a PDF has and what text is on the first of them, or that it is locked.

Security: pdfium is native code on hostile bytes: only inside a killable worker. Bytes and pages are bounded.
"""

from msgspec import Struct

MAX_BYTES = 20 * 1024 * 1024
READ = 3
MAX_TEXT = 8_000


class PdfPages(Struct, frozen=True):
    number: int = 0
    letters: int = 0
    text: str = ""
    locked: bool = False


def read_pages(content: bytes) -> PdfPages:
    if len(content) > MAX_BYTES:
        return PdfPages()
    import pypdfium2  # noqa: PLC0415 - takes longer to import than most messages take to examine

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        return PdfPages(locked="password" in str(error).lower())
    try:
        number = len(document)
        pages = [document[page].get_textpage() for page in range(min(number, READ))]
        letters = sum(page.count_chars() for page in pages)
        text = "\n".join(page.get_text_range(0, min(page.count_chars(), MAX_TEXT)) for page in pages)
        return PdfPages(number, max(0, letters), text[:MAX_TEXT])
    except Exception:  # pdfium tells broken pages in many ways
        return PdfPages()
    finally:
        document.close()
