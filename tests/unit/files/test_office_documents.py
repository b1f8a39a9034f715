"""Office documents are read within bounds, and nothing that a file holds breaks their readers."""

import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mailwarden.analysis.analyzers.office import OfficeAnalyzer
from mailwarden.analysis.view import View
from mailwarden.files.file_types import kind_by_content
from mailwarden.files.office.compound import read_compound, unpack_source
from mailwarden.files.office.documents import read_document
from mailwarden.files.office.onenote import ONENOTE, onenote_files, onenote_names
from mailwarden.message.coverage import Coverage, MissedReason
from mailwarden.message.limits import LIMITS
from mailwarden.message.message import Message, Part
from mailwarden.model.place import WHOLE_MESSAGE, Place
from tests.unit.files.compound_maker import compound, macro_file, packed_source

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
    assert found("a.xls", macro_file(CODE)) == {"office.macro", "office.auto-macro", "office.macro-system-access"}


def test_copies_in_packed_source_are_followed():
    # The example of MS-OVBA 3.2.2.
    packed = bytes.fromhex("01 2F B0 00 23 61 61 61 62 63 64 65 82 66 00 70 61 67 68 69 6A 01 38 08 61 6B 6C 00 30 6D"
                           "6E 6F 70 06 71 02 70 04 10 72 73 74 75 76 10 77 78 79 7A 00 3C")  # fmt: skip
    assert unpack_source(packed, 1_000) == b"#aaabcdefaaaaghijaaaaaklaaamnopqaaaaaaaaaaaarstuvwxyzaaa"


def test_source_made_to_fill_the_memory_is_cut():
    bomb = b"\x01" + (struct.pack("<H", 0xB003) + b"\x02a\xff\x0f") * 100_000
    assert len(unpack_source(bomb, LIMITS.office_code)) == LIMITS.office_code


def test_a_broken_file_with_traces_of_macros_counts_as_one_with_macros():
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600
    assert found("a.doc", ole + "_VBA_PROJECT".encode("utf-16-le")) == {"office.macro"}
    assert found("a.doc", ole) == set()


def test_a_workbook_with_a_password_is_encrypted():
    assert read_compound(compound({"Workbook": struct.pack("<HHHH", 0x809, 0, 0x2F, 0)})).encrypted


def missed(content, **limits):
    coverage = Coverage(replace(LIMITS, **limits))
    read_document(content, kind_by_content(content), coverage, Place(part="1"))
    return [each.limit or each.reason for each in coverage.missed]


RELATION = '<Relationship Id="r1" Type="http://x/{kind}" Target="{target}" TargetMode="External"/>'
URL = "https://files.stranger.example/a?b=1"


def related(kind, target=URL, name="word/_rels/document.xml.rels", before=""):
    relation = RELATION.format(kind=kind, target=target)
    return zipped({"[Content_Types].xml": "<Types/>", name: f"<Relationships>{before}{relation}</Relationships>"})


def test_a_document_beyond_a_limit_is_recorded():
    document = zipped({"[Content_Types].xml": "<Types/>", **{f"word/{n}.xml": "<a>" + "x" * 9_000 for n in range(12)}})
    assert missed(document) == []
    assert missed(document, office_bytes=20_000) == ["office_bytes"]
    assert missed(document, office_member=5_000) == ["office_member"]
    assert missed(document, office_members=5) == ["office_members"]
    assert missed(related("hyperlink", before=RELATION), office_relations=1) == ["office_relations"]


@pytest.mark.parametrize(
    "name", ["word/media/vbaProject.bin", "word/media/image1.png", "a/b.xml", "customXml/item.bin"]
)
def test_a_macro_project_is_found_at_any_path(name):
    assert "office.macro" in found("a.docx", zipped({"[Content_Types].xml": "<Types/>", name: macro_file(CODE)}))


@pytest.mark.parametrize(
    "content",
    [
        related("hyperlink"),
        related("hyperlink", name="customXml/_rels/x.rels"),
        related("hyperlink", before="<!--" + " " * 5_000_000 + "-->"),
        related("hyperlink", target="&#104;ttps://files.stranger.example/a?b=1"),
        zipped({"[Content_Types].xml": "<Types/>", "word/a.xml": f"<w:instrText>HYPERLINK \"{URL}\"</w:instrText>"}),
        zipped({"[Content_Types].xml": "<Types/>", "xl/a.xml": f'<f>HYPERLINK("{URL}","x")</f>'}),
        zipped({"[Content_Types].xml": "<Types/>", "a.rels": (f"<?xml version='1.0'?>{RELATION}").format(
            kind="hyperlink", target=URL).encode("utf-16")}),
        zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": f"<text:a xlink:href='{URL}'/>"}),
        zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml":
            f"<text:a xlink:href = '&#104;{URL[1:]}'/>"}),
        zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": f'<v:rect href="{URL}" target="_blank"/>'}),
        zipped({"[Content_Types].xml": "<Types/>", "Documents/1/Pages/1.fpage":
            f'<Path FixedPage.NavigateUri="{URL}"/>'}),
        zipped({"[Content_Types].xml": "<Types/>", "visio/pages/page1.xml": f'<Cell N="Address" V="{URL}"/>'}),
        f"<?xml version='1.0'?><?mso-application progid='Excel.Sheet'?><Cell ss:HRef='{URL}'/>".encode(),
        f"<?xml version='1.0'?><?mso-application progid='Word.Document'?><w:hlink w:dest='{URL}'/>".encode(),
        compound({"WordDocument": b"\0" * 600 + f'\x13 HYPERLINK "{URL}" \x14'.encode()}),
        compound({"Workbook": b"\0" * 600 + URL.encode("utf-16-le")}),
        b'{\\rtf1{\\field{\\*\\fldinst{\\b HYPER\\b0 LINK "' + URL.encode() + b'"}}{\\fldrslt m}}}',
        b"<?xml version='1.0'?><?mso-application progid='Word.Document'?><a>" + RELATION.format(
            kind="hyperlink", target=URL).encode() + b"</a>",
    ],
)  # fmt: skip
def test_links_are_found_in_every_format(content):
    document = read_document(content, kind_by_content(content))
    assert document is not None
    assert URL in document.links


@pytest.mark.parametrize("kind", ["attachedTemplate", "oleObject", "frame", "subDocument", "slideMaster", "aFChunk"])
def test_external_references_are_found(kind):
    document = read_document(related(kind), "zip")
    assert document is not None
    assert document.remote == ((kind.lower(), URL),)


def test_an_encrypted_document_is_recorded_or_opened():
    part = Part("1", "application/octet-stream", "a.docx", "attachment", "", compound({"EncryptedPackage": b"x"}), "")
    view = View(Message(0, "", (), (part,)))
    list(OfficeAnalyzer().examine(view))
    assert [each.reason for each in view.coverage.missed] == [MissedReason.ENCRYPTED]


def test_opendocument_macros_and_encryption_are_found():
    kind = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": "<a/>"}
    assert "office.macro" in found("a.odt", zipped({**kind, "Basic/Standard/Module1.xml": "Sub Main"}))
    assert "office.macro" in found("a.odt", zipped({**kind, "Scripts/python/a.py": "import os"}))
    assert found("a.odt", zipped({**kind, "Basic/script-lc.xml": "<library:libraries/>"})) == set()
    sealed = zipped({**kind, "META-INF/manifest.xml": "<manifest:encryption-data/>"})
    assert missed(sealed) == [MissedReason.ENCRYPTED]


def test_a_packed_file_is_returned_with_its_content():
    name = b"invoice.js\0"
    body = b"\x02\0" + name + b"C:\\" + name + b"\0\0\3\0" + (len(name) + 3).to_bytes(4, "little") + b"C:\\" + name
    body += (7).to_bytes(4, "little") + b"eval(1)"
    native = compound({"\x01Ole10Native": len(body).to_bytes(4, "little") + body})
    assert read_compound(native).packages == (("invoice.js", b"eval(1)"),)
    assert "office.embedded-executable" in found(
        "a.docx", zipped({"[Content_Types].xml": "<Types/>", "word/embeddings/oleObject1.bin": native})
    )


def test_an_object_that_is_linked_from_elsewhere_is_found():
    moniker = bytes.fromhex("e0c9ea79f9bace118c8200aa004ba90b") + (200).to_bytes(4, "little")
    document = read_document(compound({"\x01Ole": moniker + URL.encode("utf-16-le") + b"\0\0"}), "ole")
    assert document is not None
    assert document.remote == (("oleobject", URL),)


def test_a_sheet_of_macros_without_a_container_is_found():
    content = b"\x09\x04\x06\0\0\0\x40\0\0\0" + b"\0" * 40
    assert "office.macro-sheet" in found("a.xls", content)


def test_unreadable_formats_are_recorded():
    assert missed(b"\0\1\0\0Standard ACE DB" + b"\0" * 90) == [MissedReason.UNSUPPORTED]
    assert missed(b"PK\x03\x04 [Content_Types].xml" + b"x" * 90) == [MissedReason.DAMAGED]
    assert missed(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 900) == [MissedReason.DAMAGED]


STARTS = (
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf1{\\object\\objdata ", b"PK\x03\x04[Content_Types].xml", ONENOTE,
    macro_file(CODE)[:3_000], compound({"Workbook": b"\x09\x08"}), b"\x01" + packed_source(b"Attribut"),
)  # fmt: skip


@given(st.sampled_from(STARTS), st.binary(max_size=600), st.integers(0, 4_000))
def test_nothing_breaks_the_readers(start, rest, place):
    for content in (start + rest, start[:place] + rest + start[place:]):
        read_document(content, kind_by_content(content))
        read_compound(content)
        list(onenote_files(content))
        list(onenote_names(content, Coverage(), WHOLE_MESSAGE))
        unpack_source(content, 10_000)
        found("a.docm", content)
