"""A QR code with the listed link, in pictures that a person can still scan with a phone."""

import io
import zipfile
from collections.abc import Iterator

import segno
from PIL import Image, ImageDraw, ImageFont, ImageOps

from workshop.evasion.documents import Pdf, docx
from workshop.evasion.mail import Part, file_part, message, mixed, text_part
from workshop.evasion.payloads import LISTED_URL, zip_of

Image.MAX_IMAGE_PIXELS = None  # our own pictures are large on purpose


def code(scale: int = 6, url: str = LISTED_URL) -> Image.Image:
    buffer = io.BytesIO()
    segno.make(url, error="m", micro=False).save(buffer, kind="png", scale=scale, border=4)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("L")


def lines_of_text(text: str = "note") -> Image.Image:
    """Draw lines of text, large enough to carry a message."""
    lines = text.split("\n")
    picture = Image.new("L", (800, max(240, 60 + 36 * len(lines))), 255)
    pen = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        pen.text((24, 24 + 36 * number), line, fill=0, font=ImageFont.load_default(22))
    return picture


def on_canvas(picture: Image.Image, width: int, height: int, left: int = 0, top: int = 0) -> Image.Image:
    canvas = Image.new("L", (width, height), 255)
    canvas.paste(picture, (left, top))
    return canvas


def saved(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def frames(pictures: list[Image.Image], kind: str) -> bytes:
    return saved(pictures[0], kind, save_all=True, append_images=pictures[1:])


def blank(number: int = 0) -> Image.Image:
    return Image.new("L", (300, 300), 200 + number % 50)


def _picture_pdf(picture: Image.Image, pages: int = 1) -> bytes:
    """Return a PDF whose last page shows the picture."""
    data = saved(picture.convert("L"), "JPEG", quality=90)
    document = Pdf()
    kids = b" ".join(b"%d 0 R" % (100 + number) for number in range(pages))
    document.add(1, b"<< /Type /Catalog /Pages 2 0 R >>")
    document.add(2, b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % pages)
    for number in range(pages):
        shown = b"/Resources << /XObject << /I 4 0 R >> >> /Contents 5 0 R" if number == pages - 1 else b""
        document.add(100 + number, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] " + shown + b" >>")
    entries = b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /DCTDecode"
    document.stream(4, data, entries % picture.size)
    document.stream(5, b"q 280 0 0 280 10 10 cm /I Do Q")
    return document.finish()


def _table(url: str) -> bytes:
    rows = segno.make(url, error="l", micro=False).matrix
    cells = "".join(
        "<tr>"
        + "".join(f'<td width=4 height=4 bgcolor="{"#000000" if dark else "#ffffff"}"></td>' for dark in row)
        + "</tr>"
        for row in rows
    )
    return f"<table cellspacing=0 cellpadding=0>{cells}</table>".encode()


def _blocks(url: str) -> bytes:
    rows = segno.make(url, error="l", micro=False).matrix
    return (
        "<pre>\n\n" + "\n".join("    " + "".join("██" if dark else "  " for dark in row) for row in rows) + "\n\n</pre>"
    ).encode()


def pictures() -> dict[str, tuple[str, bytes]]:
    plain = code()
    large = code(40)
    tall = on_canvas(plain, 400, 62_500, 50, 62_000)
    return {
        "plain": ("a.png", saved(plain)),
        "jpeg": ("a.jpg", saved(plain, "JPEG")),
        "bmp": ("a.bmp", saved(plain, "BMP")),
        "webp": ("a.webp", saved(plain, "WEBP", lossless=True)),
        "tiff": ("a.tif", saved(plain, "TIFF")),
        "ico": ("a.ico", saved(code(3).resize((128, 128), Image.Resampling.NEAREST), "ICO")),
        "named .dat": ("a.dat", saved(plain)),
        "inverted": ("a.png", saved(ImageOps.invert(plain))),
        "pale": ("a.png", saved(plain.point(lambda value: 150 + value * 90 // 255))),
        "turned": ("a.png", saved(plain.rotate(37, expand=True, fillcolor=255))),
        "mirrored": ("a.png", saved(ImageOps.mirror(plain))),
        "25 megapixels": ("a.png", saved(on_canvas(large, 5_000, 5_000, 1_500, 1_500))),
        "25 megapixels, jpeg": ("a.jpg", saved(on_canvas(large, 5_000, 5_000, 1_500, 1_500), "JPEG", quality=80)),
        "25 megapixels, small code": ("a.png", saved(on_canvas(code(8), 5_000, 5_000, 2_500, 2_500))),
        "64 megapixels": ("a.png", saved(on_canvas(large, 8_000, 8_000, 3_000, 3_000))),
        "100 megapixels": ("a.png", saved(on_canvas(large, 10_000, 10_000, 3_000, 3_000))),
        "very tall": ("a.png", saved(tall)),
        "gif, middle frame": ("a.gif", frames([blank(n) for n in range(5)] + [on_canvas(plain, 300, 300)] + [blank(n) for n in range(5)], "GIF")),
        "gif, frame 60": ("a.gif", frames([blank(n) for n in range(60)] + [on_canvas(plain, 300, 300)], "GIF")),
        "png, second frame": ("a.png", frames([blank(), on_canvas(plain, 300, 300)], "PNG")),
        "webp, middle frame": ("a.webp", frames([blank(1), on_canvas(plain, 300, 300), blank(2)], "WEBP")),
        "tiff, page 40": ("a.tif", frames([blank(n) for n in range(39)] + [on_canvas(plain, 300, 300)], "TIFF")),
        "pdf": ("a.pdf", _picture_pdf(plain)),
        "pdf, page 20 of 20": ("a.pdf", _picture_pdf(plain, 20)),
        "docx": ("a.docx", docx({"word/media/image1.png": saved(plain)})),
        "zip": ("a.zip", zip_of({"a.png": saved(plain)}, zipfile.ZIP_STORED)),
        "zip behind 20 pictures": ("a.zip", zip_of({**{f"{n}.png": saved(blank(n)) for n in range(20)}, "a.png": saved(plain)})),
    }  # fmt: skip


def picture_cases() -> Iterator[tuple[str, bytes]]:
    for name, (file, content) in pictures().items():
        yield (
            f"qr: {name}",
            message(mixed(text_part(b"Scan the code to read the minutes.\r\n"), file_part(file, content))),
        )
    scan = text_part(b"<p>Scan the code to read the minutes.</p><img src=cid:1>", "text/html")
    inline = Part(("Content-Type: image/png", "Content-ID: <1>", "Content-Disposition: inline"), saved(code()))
    yield "qr: inline", message(mixed(scan, inline, subtype="related"))
    for count in (50, 200):
        decoys = [
            file_part(f"{number}.png", saved(blank(number).resize((60 + number, 60))), "image/png")
            for number in range(count)
        ]
        yield (
            f"qr: behind {count} decoys",
            message(mixed(scan, *decoys, file_part("a.png", saved(code()), "image/png"))),
        )
    heavy = [file_part(f"{n}.png", saved(Image.effect_noise((1_500, 1_500), 90 + n)), "image/png") for n in range(6)]
    yield "qr: behind heavy decoys", message(mixed(scan, *heavy, file_part("a.png", saved(code()), "image/png")))
    yield "qr: table", message(text_part(b"<p>Scan the code.</p>" + _table(LISTED_URL), "text/html"))
    yield "qr: letters", message(text_part(b"<p>Scan the code.</p>" + _blocks(LISTED_URL), "text/html; charset=utf-8"))
    svg = segno.make(LISTED_URL, micro=False).svg_inline(scale=4).encode()
    yield "qr: svg attached", message(mixed(scan, file_part("a.svg", svg, "image/svg+xml")))
    yield "qr: svg in the page", message(text_part(b"<p>Scan the code.</p>" + svg, "text/html"))
