"""Files inside of documents, for the readers of files: attachments of a PDF, packages of Office documents and RTF.

What the documents themselves do is read elsewhere, and recorded there where it cannot be read.

Security: works on hostile documents inside a killable worker; files and bytes are bounded by the message's limits.
"""

from collections.abc import Iterator
from functools import partial

from mailwarden.analysis.files.container import Entry, Opening, SeenFile
from mailwarden.analysis.files.office.compound import SIGNATURE, decrypt, read_compound
from mailwarden.analysis.files.office.onenote import ONENOTE, onenote_files
from mailwarden.analysis.files.office.rtf import read_rtf
from mailwarden.analysis.files.pdf.document import attached_files, is_pdf
from mailwarden.message.coverage import Coverage

# A PDF without any of these holds no files; names may be escaped, and objects packed or encrypted.
_PDF_MARKS = (b"EmbeddedFile", b"FileAttachment", b"ObjStm", b"/Encrypt", b"#")


def holds_files(content: bytes) -> bool:
    """Tell a document that may have files inside, by its content."""
    if content.startswith((SIGNATURE, ONENOTE)) or b"{\\rt" in content[:64]:
        return True
    return is_pdf(content) and any(mark in content for mark in _PDF_MARKS)


def embedded_files(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield each file inside of a document, "" as the name of one without, and the plain form of an encrypted one."""
    content = file.content
    coverage = Coverage(opening.limits)  # damage is recorded by the reader of the document itself
    if content.startswith(SIGNATURE):
        found = read_compound(content, coverage)
        yield from (Entry(*package) for package in found.packages)
        if found.encrypted:
            yield from _decrypted(file, opening)
    elif content.startswith(ONENOTE):
        yield from (Entry("", stored) for stored in onenote_files(content))
    elif is_pdf(content):
        few = partial(_few_passwords, opening)
        yield from (Entry(*attached) for attached in attached_files(content, few, coverage))
    else:
        document = read_rtf(content, coverage)
        yield from (Entry(*package) for package in (*document.packages, *document.media))
    for missed in coverage.missed:
        if missed.limit:
            opening.coverage.beyond(missed.limit, missed.place)


def _decrypted(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    for password in opening.office_passwords(file.place):
        if plain := decrypt(file.content, password):
            yield Entry(file.name, plain, unlocked=True, password=password)
            return


def _few_passwords(opening: Opening) -> tuple[str, ...]:
    """Return the passwords to try on a PDF; each trial costs a tenth of a second, so few are tried."""
    return opening.passwords[: opening.limits.office_trials]
