"""The Office documents of a message, each read once, and opened by a password where that is needed.

Security: works on hostile documents inside a killable worker; trials of passwords are bounded by the message's limits,
and a document that no password opens is recorded as missed.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from mailwarden.analysis.file_types import HEAD, ending_of, kind_by_content
from mailwarden.analysis.office_documents import read_document
from mailwarden.analysis.office_encryption import DEFAULT_PASSWORD, decrypt
from mailwarden.analysis.office_facts import OfficeDocument
from mailwarden.analysis.unpacking import SeenFile
from mailwarden.message.coverage import Coverage


class SeenDocument(Struct, frozen=True):
    """One document; `password` is what opened it, where it was encrypted."""

    file: SeenFile
    document: OfficeDocument
    kind: str
    password: str = ""


def read_office_files(
    files: Iterable[SeenFile], passwords: Callable[[], tuple[str, ...]], coverage: Coverage
) -> tuple[SeenDocument, ...]:
    """Read every Office document, and the ones that are encrypted as what they are once opened."""
    found: list[SeenDocument] = []
    trials = coverage.limits.office_trials
    for file in files:
        kind = kind_by_content(file.content[:HEAD])
        document = read_document(file.content, kind, coverage, file.place)
        if document is None:
            continue
        found.append(SeenDocument(file, document, kind))
        if document.encrypted:
            told = (DEFAULT_PASSWORD, *passwords())
            trials -= len(told)
            if trials < 0:
                coverage.beyond("office_trials", file.place)
                continue
            found += _opened(file, told, coverage)
    return tuple(found)


def _opened(file: SeenFile, passwords: tuple[str, ...], coverage: Coverage) -> Iterable[SeenDocument]:
    for password in passwords:
        if password == DEFAULT_PASSWORD and ending_of(file.name) in {"doc", "docx", "ppt", "pptx"}:
            continue
        plain = decrypt(file.content, password)
        if plain:
            kind = kind_by_content(plain[:HEAD])
            if (document := read_document(plain, kind, coverage, file.place)) is not None:
                return (SeenDocument(file, document, kind, password),)
            break
    coverage.encrypted(file.place, "the document is encrypted, and the message does not give the password")
    return ()
