"""Makes the attachments of stories. None does harm: the macro is empty, the malware is the EICAR test file."""

import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from html import escape

import segno
from PIL import Image, ImageDraw, ImageFont

from mailwarden.demo.stories import Attachment
from mailwarden.engines.samples import EICAR

_ESCAPES_PDF = bytes.maketrans(b"()\\", b"[]/")
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_MACRO_TYPE = "application/vnd.ms-office.vbaProject"
_MACRO_RELATION = "http://schemas.microsoft.com/office/2006/relationships/vbaProject"


def content_of(attachment: Attachment) -> tuple[str, bytes]:
    """Return the media type and the bytes of an attachment."""
    media_type, make = _MADE[attachment.made]
    return media_type, make(attachment)


def _text(attachment: Attachment) -> bytes:
    return attachment.text.replace("\r\n", "\n").replace("\n", "\r\n").encode()


def _pdf(attachment: Attachment) -> bytes:
    """Return a page with the lines of the text in Helvetica."""
    lines = (line.encode("cp1252", "replace") for line in attachment.text.splitlines())
    shown = b" T* ".join(b"(%s) Tj" % line.translate(_ESCAPES_PDF) for line in lines)
    content = b"BT /F1 11 Tf 60 780 Td 16 TL %s ET" % shown
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
            b"/Resources << /Font << /F1 5 0 R >> >> >>"
        ),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    )
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def _docx(attachment: Attachment) -> bytes:
    lines = attachment.text.splitlines()
    paragraphs = "".join(f"<w:p><w:r><w:t>{escape(line)}</w:t></w:r></w:p>" for line in lines)
    macro = attachment.made == "docx-macro"
    kind = "application/vnd.ms-word.document.macroEnabled" if macro else _DOCX
    files = {"word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{paragraphs}</w:body></w:document>'.encode()}
    relations: tuple[tuple[str, str], ...] = ()
    if macro:
        files["word/vbaProject.bin"] = _macro_project()
        relations = ((_MACRO_RELATION, "vbaProject.bin"),)
    return _office("word/document.xml", f"{kind}.main+xml", files, relations)


def _macro_project() -> bytes:
    """Return the beginning of a compound file with the names of a macro project, and a macro without a statement."""
    head = bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 16 + struct.pack("<HHHH", 0x3E, 3, 0xFFFE, 9)
    names = (name.encode("utf-16-le").ljust(128, b"\0") for name in ("Root Entry", "VBA", "dir", "_VBA_PROJECT"))
    macro = b'Attribute VB_Name = "ThisDocument"\r\nSub AutoOpen()\r\nEnd Sub\r\n'
    return head.ljust(512, b"\0") + b"".join(names) + macro


def _xlsx(attachment: Attachment) -> bytes:
    rows = "".join(
        f'<row r="{number}">'
        + "".join(f'<c t="inlineStr"><is><t>{escape(cell)}</t></is></c>' for cell in line.split(","))
        + "</row>"
        for number, line in enumerate(attachment.text.splitlines(), 1)
    )
    book = (
        f'<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}/relationships">'
        '<sheets><sheet name="1" sheetId="1" r:id="r1"/></sheets></workbook>'
    )
    sheet = f'<worksheet xmlns="{_SHEET}"><sheetData>{rows}</sheetData></worksheet>'
    files = {"xl/workbook.xml": book.encode(), "xl/worksheets/sheet1.xml": sheet.encode()}
    relations = ((f"{_OFFICE}/relationships/worksheet", "worksheets/sheet1.xml"),)
    return _office("xl/workbook.xml", f"{_XLSX}.main+xml", files, relations)


def _office(main: str, kind: str, files: Mapping[str, bytes], relations: tuple[tuple[str, str], ...]) -> bytes:
    # A declared macro is one for our analyzer, even without the file.
    has_macro = any(relation == _MACRO_RELATION for relation, _ in relations)
    macro = f'<Default Extension="bin" ContentType="{_MACRO_TYPE}"/>' if has_macro else ""
    types = (
        f'<?xml version="1.0"?><Types xmlns="{_PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>'
        f'{macro}<Override PartName="/{main}" ContentType="{kind}"/></Types>'
    )
    folder, _, name = main.partition("/")
    root = ((f"{_OFFICE}/relationships/officeDocument", main),)
    members = {
        "[Content_Types].xml": types.encode(),
        "_rels/.rels": _relations(root),
        f"{folder}/_rels/{name}.rels": _relations(relations),
        **files,
    }
    return _zipped(members)


def _relations(relations: tuple[tuple[str, str], ...]) -> bytes:
    rows = "".join(
        f'<Relationship Id="r{number}" Type="{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(relations, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{rows}</Relationships>'.encode()


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 5, 10, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _zip(attachment: Attachment) -> bytes:
    """Return an archive with the text as its file; the name of the file is in the first line, `name: text`."""
    name, separator, text = attachment.text.partition(": ")
    if not separator or "\n" in name:
        name, text = attachment.name.rpartition(".")[0] + ".txt", attachment.text
    return _zipped({name: text.encode()})


def _eicar(attachment: Attachment) -> bytes:
    """Return the test file of antivirus programs, in an archive if the name says so."""
    name = attachment.name.rpartition(".")[0]
    return _zipped({f"{name}.exe": EICAR}) if attachment.name.lower().endswith(".zip") else EICAR


def _png(attachment: Attachment) -> bytes:
    lines = attachment.text.splitlines() or [""]
    font = ImageFont.load_default(20)
    width = max(int(font.getlength(line)) for line in lines)
    picture = Image.new("RGB", (width + 40, 28 * len(lines) + 40), "white")
    ImageDraw.Draw(picture).multiline_text((20, 20), "\n".join(lines), fill="black", font=font, spacing=8)
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def _qr(attachment: Attachment) -> bytes:
    out = io.BytesIO()
    segno.make(attachment.text.strip(), micro=False).save(out, kind="png", scale=6)
    return out.getvalue()


_MADE: Mapping[str, tuple[str, Callable[[Attachment], bytes]]] = {
    "pdf": ("application/pdf", _pdf),
    "docx": (_DOCX, _docx),
    "docx-macro": ("application/vnd.ms-word.document.macroEnabled.12", _docx),
    "xlsx": (_XLSX, _xlsx),
    "png": ("image/png", _png),
    "qr": ("image/png", _qr),
    "zip": ("application/zip", _zip),
    "eicar": ("application/octet-stream", _eicar),
    "html": ("text/html; charset=utf-8", _text),
    "ics": ("text/calendar; charset=utf-8; method=REQUEST", _text),
    "eml": ("message/rfc822", _text),
    "text": ("text/plain; charset=utf-8", _text),
}
