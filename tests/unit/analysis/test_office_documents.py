"""Office documents are read within bounds, and nothing that a file holds breaks their readers."""

import io
import struct
import zipfile

from hypothesis import given, settings
from hypothesis import strategies as st

from mailwarden.analysis.analyzers.office import OfficeAnalyzer
from mailwarden.analysis.compound_files import MAX_CODE, read_compound, unpack_source
from mailwarden.analysis.file_types import kind_by_content
from mailwarden.analysis.office_documents import ONENOTE, onenote_files, read_document
from mailwarden.analysis.view import View
from mailwarden.message.message import Message, Part
from tests.unit.analysis.compound_maker import compound, macro_file, packed_source

CODE = 'Sub Workbook_Open()\r\n  Shell "calc"\r\nEnd Sub\r\n'


def found(name, content):
    part = Part("1", "application/octet-stream", name, "attachment", "", content, "")
    return {finding.name for finding in OfficeAnalyzer().examine(View(Message(0, "", (), (part,))))}


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def test_the_source_of_macros_is_read():
    assert "Workbook_Open" in read_compound(macro_file(CODE)).code
    assert found("a.xls", macro_file(CODE)) == {"office.macro", "office.auto-macro", "office.reaching-macro"}


def test_copies_in_packed_source_are_followed():
    # The example of MS-OVBA 3.2.2.
    packed = bytes.fromhex("01 2F B0 00 23 61 61 61 62 63 64 65 82 66 00 70 61 67 68 69 6A 01 38 08 61 6B 6C 00 30 6D"
                           "6E 6F 70 06 71 02 70 04 10 72 73 74 75 76 10 77 78 79 7A 00 3C")  # fmt: skip
    assert unpack_source(packed, 1_000) == b"#aaabcdefaaaaghijaaaaaklaaamnopqaaaaaaaaaaaarstuvwxyzaaa"


def test_source_made_to_fill_the_memory_is_cut():
    bomb = b"\x01" + (struct.pack("<H", 0xB003) + b"\x02a\xff\x0f") * 100_000
    assert len(unpack_source(bomb, MAX_CODE)) == MAX_CODE


def test_a_broken_file_with_traces_of_macros_counts_as_one_with_macros():
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600
    assert found("a.doc", ole + "_VBA_PROJECT".encode("utf-16-le")) == {"office.macro"}
    assert found("a.doc", ole) == set()


def test_a_project_of_macros_is_found_under_any_name():
    document = zipped({"[Content_Types].xml": "<Types/>", "word/picture.bin": macro_file(CODE)})
    assert "office.macro" in found("a.docx", document)


def test_a_workbook_with_a_password_is_encrypted():
    assert read_compound(compound({"Workbook": struct.pack("<HHHH", 0x809, 0, 0x2F, 0)})).encrypted


def test_a_document_that_unpacks_to_much_is_read_in_part():
    document = zipped({"[Content_Types].xml": "<Types/>", **{f"word/{n}.xml": bytes(8_000_000) for n in range(12)}})
    assert found("a.docx", document) == set()


STARTS = (
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf1{\\object\\objdata ", b"PK\x03\x04[Content_Types].xml", ONENOTE,
    macro_file(CODE)[:3_000], compound({"Workbook": b"\x09\x08"}), b"\x01" + packed_source(b"Attribut"),
)  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(STARTS), st.binary(max_size=600), st.integers(0, 4_000))
def test_nothing_breaks_the_readers(start, rest, place):
    for content in (start + rest, start[:place] + rest + start[place:]):
        read_document(content, kind_by_content(content))
        read_compound(content)
        list(onenote_files(content))
        unpack_source(content, 10_000)
        found("a.docm", content)
