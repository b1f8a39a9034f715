"""The Office documents of a message, each read once; encrypted ones were opened with the other containers.

Security: works on hostile documents inside a killable worker; a document that no password opened is recorded as missed.
"""

from collections.abc import Sequence

from msgspec import Struct

from mailwarden.analysis.file_types import HEAD, kind_by_content
from mailwarden.analysis.office_documents import read_document
from mailwarden.analysis.office_facts import OfficeDocument
from mailwarden.analysis.unpacking import SeenFile
from mailwarden.message.coverage import Coverage


class SeenDocument(Struct, frozen=True):
    """One document; `password` is what opened it, where it was encrypted."""

    file: SeenFile
    document: OfficeDocument
    kind: str
    password: str = ""


def read_office_files(files: Sequence[SeenFile], coverage: Coverage) -> tuple[SeenDocument, ...]:
    """Read every Office document, and record the encrypted ones that no password opened."""
    found: list[SeenDocument] = []
    opened: set[bytes] = set()
    encrypted: list[SeenFile] = []
    for file in files:
        kind = kind_by_content(file.content[:HEAD])
        document = read_document(file.content, kind, coverage, file.place)
        if document is None:
            continue
        found.append(SeenDocument(file, document, kind, file.password))
        if file.plain_of:
            opened.add(file.plain_of)
        if document.encrypted:
            encrypted.append(file)
    for file in encrypted:
        if file.content not in opened:
            coverage.encrypted(file.place, "the document is encrypted, and the message does not give the password")
    return tuple(found)
