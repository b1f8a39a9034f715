"""Files inside of documents, for the readers of files: attachments of a PDF, packages of Office documents and RTF.

What the documents themselves do is read elsewhere, and recorded there where it cannot be read.

Security: works on hostile documents inside a killable worker; files and bytes are bounded by the message's limits.
"""

from collections.abc import Callable, Iterator, Sequence

from mailwarden.analysis.compound_files import SIGNATURE, read_compound
from mailwarden.analysis.office_encryption import DEFAULT_PASSWORD, decrypt
from mailwarden.analysis.onenote_files import ONENOTE, onenote_files
from mailwarden.analysis.pdf_document import attached_files, is_pdf
from mailwarden.analysis.rtf_documents import read_rtf
from mailwarden.message.coverage import Coverage

Passwords = Callable[[], Sequence[str]]

# A PDF without any of these holds no files; names may be escaped, and objects packed or encrypted.
_PDF_MARKS = (b"EmbeddedFile", b"FileAttachment", b"ObjStm", b"/Encrypt", b"#")


def holds_files(content: bytes) -> bool:
    """Tell a document that may have files inside, by its content."""
    if content.startswith((SIGNATURE, ONENOTE)) or b"{\\rt" in content[:64]:
        return True
    return is_pdf(content) and any(mark in content for mark in _PDF_MARKS)


def embedded_files(content: bytes, passwords: Passwords, limits: Coverage) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file inside of a document; "" for a file without a name."""
    coverage = Coverage(limits.limits)  # damage is recorded by the reader of the document itself
    if content.startswith(SIGNATURE):
        found = read_compound(content, coverage)
        yield from found.packages
        if found.encrypted:
            yield from _decrypted(content, passwords)
    elif content.startswith(ONENOTE):
        yield from (("", file) for file in onenote_files(content))
    elif is_pdf(content):
        yield from attached_files(content, passwords, coverage)
    else:
        document = read_rtf(content, coverage)
        yield from document.packages
        yield from document.media
    for missed in coverage.missed:
        if missed.limit:
            limits.beyond(missed.limit, missed.place)


def _decrypted(content: bytes, passwords: Passwords) -> Iterator[tuple[str, bytes]]:
    for password in (DEFAULT_PASSWORD, *passwords()):
        if plain := decrypt(content, password):
            yield "", plain
            return
