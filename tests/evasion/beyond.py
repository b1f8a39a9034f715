"""For every limit a message beyond it: the limit is set low, so that the message is small and the case is quick."""

import base64
from collections.abc import Callable
from dataclasses import dataclass

from workshop.evasion.archives import ARCHIVES, encrypted_zip, nested
from workshop.evasion.documents import Pdf, docx, object_stream, office_documents, pdf, uri
from workshop.evasion.mail import file_part, head, message, mixed, text_part, with_file, with_page
from workshop.evasion.payloads import zip_of
from workshop.evasion.pictures import blank, code, frames, lines_of_text, on_canvas, saved
from workshop.evasion.wrappers import compound


@dataclass(frozen=True, slots=True)
class Beyond:
    """A message that goes beyond one limit once the limits have these values."""

    make: Callable[[], bytes]
    limits: dict[str, int]


def _fields(fields: bytes, body: bytes = b"hello\r\n") -> bytes:
    return head() + fields + b"Content-Type: text/plain\r\n\r\n" + body


def _deep() -> bytes:
    part = text_part()
    for number in range(6):
        part = mixed(part, boundary=f"level{number}")
    return message(part)


def _notes(count: int) -> dict[str, bytes]:
    return {f"note{number}.txt": b"note %d" % number for number in range(count)}


def _mixed_files(count: int) -> bytes:
    return message(mixed(text_part(), *(file_part(name, content) for name, content in _notes(count).items())))


def _pdf(content: bytes) -> bytes:
    return with_file("a.pdf", content, "application/pdf")


def _defined_again(times: int) -> bytes:
    """Return a PDF in which one object is written several times, as appended changes do."""
    document = Pdf()
    document.add(1, b"<< /Type /Catalog /Pages 2 0 R >>")
    document.add(2, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>")
    document.add(3, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Annots [" + uri(b"4 0 R") + b"] >>")
    for number in range(times):
        document.add(4, b"(%d)" % number)
    return document.finish()


def _named_link(pages: int = 1) -> bytes:
    """Return a PDF whose link is a string in an object of its own."""
    return pdf(uri(b"30 0 R"), more={30: b"(https://a.example/)"}, pages=pages)


def _openings(count: int) -> bytes:
    opening = b"/OpenAction << /S /URI /URI (https://a.example/) >> "
    return pdf(root=opening, more={40 + number: b"<< " + opening + b">>" for number in range(count)})


def _scripts(count: int) -> bytes:
    names = b" ".join(b"(a%d) << /S /JavaScript /JS (var a%d = 1;) >>" % (number, number) for number in range(count))
    return pdf(root=b"/Names << /JavaScript << /Names [ " + names + b" ] >> >>")


def _office(**members: bytes) -> bytes:
    return with_file("a.docx", docx({f"word/{name}.xml": content for name, content in members.items()}))


def _relations(count: int) -> bytes:
    one = '<Relationship Id="r%d" Type="http://a/hyperlink" Target="https://a.example/%d" TargetMode="External"/>'
    return with_file("a.docx", docx(relation="".join(one % (number, number) for number in range(count))))


def _rtf(field: str, count: int) -> bytes:
    fields = f'{{\\field{{\\*\\fldinst HYPERLINK "{field}"}}{{\\fldrslt a}}}}' * count
    return with_file("a.rtf", f"{{\\rtf1 {fields}}}".encode(), "application/rtf")


def _macro_source() -> bytes:
    """Return an old document whose macro source is packed as [MS-OVBA] 2.4.1 says, every byte a literal."""
    source = b'Attribute VB_Name = "ThisDocument"\r\nSub AutoOpen()\r\nEnd Sub\r\n'
    tokens = b"".join(b"\0" + source[start : start + 8] for start in range(0, len(source), 8))
    packed = b"\x01" + (0xB000 | len(tokens) - 1).to_bytes(2, "little") + tokens
    return compound(
        {"WordDocument": b"\xec\xa5" + b"\0" * 600, "Macros/VBA/dir": b"\1" * 40, "Macros/VBA/ThisDocument": packed}
    )


def _pieces(count: int) -> bytes:
    whole = code(6)
    width = whole.width // count
    parts = [whole.crop((n * width, 0, (n + 1) * width, whole.height)) for n in range(count)]
    return message(
        mixed(text_part(), *(file_part(f"{n}.png", saved(each), "image/png") for n, each in enumerate(parts)))
    )


def _calendar(count: int) -> bytes:
    fields = "".join(f"COMMENT:note {number}\r\n" for number in range(count))
    return with_page(
        f"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n{fields}END:VEVENT\r\nEND:VCALENDAR\r\n".encode(), "text/calendar"
    )


def _carried(depth: int) -> bytes:
    page = "<p>note</p>"
    for _ in range(depth):
        page = f'<a href="data:text/html;base64,{base64.b64encode(page.encode()).decode()}">a</a>'
    return with_page(page.encode())


def _redirected(count: int) -> bytes:
    url = "https://host0.example/"
    for number in range(1, count):
        url = f"https://host{number}.example/go?u={url}"
    return with_page(f'<a href="{url}">a</a>'.encode())


def _entities(count: int) -> bytes:
    entities = "".join(f'<!ENTITY e{number} "note">' for number in range(count))
    page = f'<?xml version="1.0"?><!DOCTYPE html [{entities}]><html xmlns="http://www.w3.org/1999/xhtml"><body>&e1;</body></html>'
    return message(mixed(text_part(), file_part("a.xhtml", page.encode(), "application/xhtml+xml")))


def _picture(content: bytes, name: str = "a.png") -> bytes:
    return message(mixed(text_part(), file_part(name, content)))


def _shapes(count: int) -> bytes:
    shapes = "".join(f'<rect x="{n}" y="{n}" width="9" height="9" fill="#000"/>' for n in range(count))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="500" height="500">{shapes}</svg>'
    return message(mixed(text_part(), file_part("a.svg", svg.encode(), "image/svg+xml")))


def _path(points: int) -> bytes:
    path = "".join(f"M{n} {n}h1v1h-1z" for n in range(points))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="500" height="500"><path d="{path}"/></svg>'
    return message(mixed(text_part(), file_part("a.svg", svg.encode(), "image/svg+xml")))


def _letters(side: int) -> bytes:
    lines = "\n".join("".join("██" if (row + column) % 3 else "  " for column in range(side)) for row in range(side))
    return with_page(f"<pre>\n{lines}\n</pre>".encode(), "text/html; charset=utf-8")


def _code_pictures(count: int) -> bytes:
    parts = [file_part(f"{n}.png", saved(code(4, f"https://a{n}.example/")), "image/png") for n in range(count)]
    return message(mixed(text_part(), *parts))


def _ambiguous(count: int) -> bytes:
    """Return a message whose multipart is never closed, so that readers may disagree about it."""
    return _mixed_files(count).removesuffix(b"--b0undary--\r\n")


BEYOND: dict[str, Beyond] = {
    "header_block": Beyond(lambda: _fields(b"X-A: " + b"a" * 900 + b"\r\n"), {"header_block": 800}),
    "lines": Beyond(lambda: _fields(b"", b"\r\n" * 300), {"lines": 200}),
    "headers": Beyond(lambda: _fields(b"X-A: b\r\n" * 40), {"headers": 30}),
    "headers_in_all": Beyond(lambda: _fields(b"X-A: b\r\n" * 40), {"headers_in_all": 30}),
    "header": Beyond(lambda: _fields(b"X-A: " + b"a" * 300 + b"\r\n"), {"header": 200}),
    "long_header": Beyond(
        lambda: _fields(b"Cc: " + b"a" * 300 + b"@b.example\r\n"), {"header": 100, "long_header": 200}
    ),
    "depth": Beyond(_deep, {"depth": 4}),
    "parts": Beyond(lambda: _mixed_files(12), {"parts": 10}),
    "boundary": Beyond(lambda: message(mixed(text_part(), boundary="b" * 70)), {"boundary": 60}),
    "boundary_candidates": Beyond(lambda: message(mixed(text_part(b"--x\r\n" * 30))), {"boundary_candidates": 20}),
    "parameters": Beyond(
        lambda: with_page(b"<p>hello", "text/html" + "".join(f"; a{number}=b" for number in range(15))),
        {"parameters": 10},
    ),
    "comment_depth": Beyond(
        lambda: _fields(b"Received: " + b"(" * 6 + b"a" + b")" * 6 + b"\r\n"), {"comment_depth": 4}
    ),
    "addresses": Beyond(lambda: _fields(b"Cc: " + b", ".join([b"a@b.example"] * 20) + b"\r\n"), {"addresses": 10}),
    "text": Beyond(lambda: with_page(b"The minutes were read. " * 100, "text/plain"), {"text": 500}),
    "html": Beyond(lambda: with_page(b"<p>The minutes were read.</p>" * 100), {"html": 500}),
    "html_text": Beyond(lambda: with_page(b"<p>The minutes were read.</p>" * 100), {"html_text": 500}),
    "html_scripts": Beyond(
        lambda: with_page(b"<p>a</p><script>" + b"a = 1;" * 200 + b"</script>"), {"html_scripts": 500}
    ),
    "html_nodes": Beyond(lambda: with_page(b"<p style='color:red'>a</p>" * 100), {"html_nodes": 50}),
    "pages": Beyond(
        lambda: message(mixed(text_part(), *(file_part(f"{n}.htm", b"<p>note %d" % n, "text/html") for n in range(8)))),
        {"pages": 5},
    ),
    "urls": Beyond(
        lambda: with_page(b"".join(b"<a href='https://host%d.example/'>a</a>" % number for number in range(30))),
        {"urls": 20},
    ),
    "url": Beyond(lambda: with_page(b"<a href='https://host.example/" + b"a" * 500 + b"'>a</a>"), {"url": 200}),
    "files": Beyond(lambda: with_file("a.zip", zip_of(_notes(12))), {"files": 10}),
    "file_bytes": Beyond(lambda: with_file("a.zip", zip_of({"a.txt": b"abc" * 500})), {"file_bytes": 1_000}),
    "unpacked_bytes": Beyond(
        lambda: with_file("a.zip", zip_of({f"{n}.txt": b"%d" % n * 400 for n in range(9)})), {"unpacked_bytes": 2_000}
    ),
    "container_depth": Beyond(
        lambda: with_file(*nested(ARCHIVES["zip"], 5)({"a.txt": b"note"})), {"container_depth": 3}
    ),
    "ratio": Beyond(lambda: with_file("a.zip", zip_of({"a.txt": b"a" * 200_000})), {"ratio": 100, "ratio_from": 1_000}),
    "pdf_seconds": Beyond(lambda: _pdf(pdf(uri(b"(https://a.example/)"))), {"pdf_seconds": 0}),
    "pdf_pages": Beyond(lambda: _pdf(pdf(pages=9)), {"pdf_pages": 5}),
    "pdf_objects": Beyond(lambda: _pdf(_named_link(9)), {"pdf_objects": 5}),
    "pdf_definitions": Beyond(lambda: _pdf(_defined_again(6)), {"pdf_definitions": 3}),
    "pdf_unpacked": Beyond(
        lambda: _pdf(object_stream(uri(b"(https://a.example/)"), pad=5_000)), {"pdf_unpacked": 1_000}
    ),
    "pdf_dictionary": Beyond(
        lambda: _pdf(pdf(root=b"/OpenAction << /S /URI /URI (https://a.example/" + b"a" * 3_000 + b") >>")),
        {"pdf_dictionary": 1_000},
    ),
    "pdf_script": Beyond(lambda: _pdf(_scripts(90)), {"pdf_script": 200}),
    "pdf_scripts": Beyond(lambda: _pdf(_scripts(9)), {"pdf_scripts": 3}),
    "pdf_actions": Beyond(lambda: _pdf(_openings(9)), {"pdf_actions": 3}),
    "office_members": Beyond(lambda: _office(**{f"a{n}": b"<a/>" for n in range(20)}), {"office_members": 10}),
    "office_member": Beyond(lambda: _office(a=b"<a>" + bytes(range(32, 127)) * 50), {"office_member": 2_000}),
    "office_bytes": Beyond(lambda: _office(a=b"<a>" + bytes(range(32, 127)) * 50), {"office_bytes": 2_000}),
    "office_relations": Beyond(lambda: _relations(20), {"office_relations": 10}),
    "office_code": Beyond(lambda: with_file("a.doc", _macro_source()), {"office_code": 5}),
    "office_fields": Beyond(lambda: _rtf("https://a.example/", 20), {"office_fields": 10}),
    "office_field": Beyond(lambda: _rtf("https://a.example/" + "a" * 500, 1), {"office_field": 100}),
    "picture_seconds": Beyond(lambda: _picture(saved(code())), {"picture_seconds": 0}),
    "picture_pixels": Beyond(lambda: _picture(saved(blank())), {"picture_pixels": 10_000}),
    "jpeg_pixels": Beyond(lambda: _picture(saved(blank(), "JPEG"), "a.jpg"), {"jpeg_pixels": 10_000}),
    "picture_frames": Beyond(
        lambda: _picture(frames([blank(n * 5) for n in range(8)], "GIF"), "a.gif"), {"picture_frames": 5}
    ),
    "picture_tiles": Beyond(
        lambda: _picture(saved(on_canvas(blank().point(lambda _: 0), 6_000, 6_000, 50, 50))), {"picture_tiles": 1}
    ),
    "recognition_seconds": Beyond(lambda: _picture(saved(lines_of_text())), {"recognition_seconds": 0}),
    "codes": Beyond(lambda: _code_pictures(5), {"codes": 3}),
    "vector_shapes": Beyond(lambda: _shapes(60), {"vector_shapes": 30}),
    "vector_points": Beyond(lambda: _path(300), {"vector_points": 100}),
    "vector_painted": Beyond(lambda: _shapes(60), {"vector_painted": 10}),
    "drawing_side": Beyond(lambda: _letters(60), {"drawing_side": 25}),
    "drawing_line": Beyond(lambda: _letters(40), {"drawing_line": 50}),
    "drawings": Beyond(lambda: _letters(60), {"drawings": 0}),
    "html_depth": Beyond(lambda: with_page(b"<div>" * 60 + b"<p>note</p>"), {"html_depth": 50}),
    "link_text": Beyond(
        lambda: with_page(b"<a href='https://a.example/'>" + b"note " * 50 + b"</a>"), {"link_text": 100}
    ),
    "carried_depth": Beyond(lambda: _carried(4), {"carried_depth": 2}),
    "texts": Beyond(
        lambda: message(
            mixed(
                text_part(b"Quite another text stands here. " * 9),
                text_part(b"<p>Note</p>", "text/html"),
                subtype="alternative",
            )
        ),
        {"texts": 0},
    ),
    "urls_written": Beyond(
        lambda: with_page(b"see https://a.example/ now\r\n" * 30, "text/plain"), {"urls_written": 20}
    ),
    "redirections": Beyond(lambda: _redirected(9), {"redirections": 5}),
    "calendar_fields": Beyond(lambda: _calendar(30), {"calendar_fields": 20}),
    "xml_entities": Beyond(lambda: _entities(30), {"xml_entities": 20}),
    "office_trials": Beyond(
        lambda: with_file("a.docx", office_documents()["encrypted"][1], text=b"The password is Winter-2026.\r\n"),
        {"office_trials": 1},
    ),
    "picture_pieces": Beyond(lambda: _pieces(4), {"picture_pieces": 2}),
    "yara_matches": Beyond(lambda: with_file("a.dat", b"mailwarden-limit-test"), {"yara_matches": 0}),
    "unpack_seconds": Beyond(lambda: with_file("a.zip", zip_of({"a.txt": b"note"})), {"unpack_seconds": 0}),
    "passwords": Beyond(
        lambda: with_file(
            "a.zip", encrypted_zip({"a.txt": b"note"}), text=b"Password: one\r\nPassword: two\r\nPassword: three\r\n"
        ),
        {"passwords": 1},
    ),
    "engine_contents": Beyond(lambda: _ambiguous(9), {"engine_contents": 5}),
    "engine_bytes": Beyond(lambda: _ambiguous(9), {"engine_bytes": 10}),
    "ratio_from": Beyond(
        lambda: with_file("a.zip", zip_of({"a.txt": b"a" * 200_000})), {"ratio": 100, "ratio_from": 1_000}
    ),
}
