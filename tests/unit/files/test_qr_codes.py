"""QR codes are read from pictures, drawings and pages of PDF; what is no picture, or too much of one, holds none."""

import io

import pytest
import segno
import zxingcpp
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image, ImageOps

from mailwarden.files import qr_codes
from mailwarden.files.images import PictureClock, picture_kind
from mailwarden.files.qr_codes import read_drawing, read_pdf, read_pieces
from mailwarden.files.text_drawings import find_page_drawings, find_text_drawings
from mailwarden.message.coverage import Coverage, MissedReason
from mailwarden.message.limits import LIMITS
from mailwarden.model.place import Place

URL = "https://thief.example/verify?x=1"
CODE = segno.make(URL, micro=False)
FIELDS = [[bool(field) for field in row] for row in CODE.matrix_iter(border=2)]


def clock(**limits) -> PictureClock:
    return PictureClock(Coverage(replace(LIMITS, **limits)))


def read_picture(content: bytes, watch: PictureClock | None = None) -> tuple[str, ...]:
    return qr_codes.read_picture(content, picture_kind(content), watch or clock(), Place(part="1"))


def saved(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def image(scale: int = 4, **options) -> Image.Image:
    return Image.open(io.BytesIO(picture(scale=scale, **options))).convert("L")


def missed(watch: PictureClock) -> list[str]:
    return [each.limit or each.reason for each in watch.coverage.missed]


def picture(kind: str = "png", **options) -> bytes:
    buffer = io.BytesIO()
    CODE.save(buffer, kind=kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 1, "border": 0},
        {"scale": 2},
        {"scale": 10},
        {"scale": 4, "dark": "white", "light": "black"},
        {"scale": 4, "light": None},
    ],
    ids=["one pixel a module", "small", "large", "inverted", "transparent"],
)
def test_a_code_is_read_at_any_size_and_in_any_colours(options):
    assert read_picture(picture(**options)) == (URL,)


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
@pytest.mark.parametrize("pixels", [1, 2, 3])
def test_a_small_data_matrix_without_a_margin_is_read(pixels, turned):
    made = zxingcpp.create_barcode(URL, zxingcpp.BarcodeFormat.DataMatrix).to_image(scale=pixels, add_quiet_zones=False)
    view = memoryview(made)  # type: ignore[arg-type]  # its stub does not name the buffer
    height, width = view.shape or (0, 0)
    code = Image.frombytes("L", (width, height), bytes(view)).rotate(turned, expand=True)
    assert read_picture(saved(code, "PNG")) == (URL,)


def test_a_code_in_a_photograph_is_read():
    photograph = Image.new("RGB", (2_400, 3_000), (200, 210, 220))
    photograph.paste(Image.open(io.BytesIO(picture(scale=12))).convert("RGB"), (700, 900))
    buffer = io.BytesIO()
    photograph.save(buffer, "JPEG", quality=60)
    assert read_picture(buffer.getvalue()) == (URL,)


def test_a_page_of_pdf_is_read():
    assert list(read_pdf(picture("pdf", scale=4), clock())) == [(1, URL)]


def test_pages_beyond_the_limit_or_the_time_are_recorded():
    for limits in ({"pdf_pages": 0}, {"picture_seconds": -1}):
        watch = clock(**limits)
        assert list(read_pdf(picture("pdf", scale=4), watch)) == []
        assert missed(watch) == list(limits)


def test_drawings_are_read():
    coverage = Coverage()
    wide = "\n".join("".join("██" if dark else "  " for dark in row) for row in FIELDS)
    rows = "".join(
        "<tr>" + "".join(f"<td bgcolor={'black' if dark else 'white'}>" for dark in row) + "</tr>" for row in FIELDS
    )
    assert [read_drawing(each) for each in find_text_drawings(wide, coverage)] == [(URL,)]
    assert [read_drawing(each) for each in find_page_drawings(f"<table>{rows}</table>", coverage)] == [(URL,)]
    assert coverage.complete


@pytest.mark.parametrize(
    "change",
    [
        ImageOps.mirror,
        ImageOps.invert,
        lambda code: code.rotate(90, expand=True),
        lambda code: code.rotate(33, expand=True, fillcolor=255),
        lambda code: code.point(lambda shade: 180 + shade // 8),
    ],
    ids=["mirrored", "inverted", "turned", "tilted", "faint"],
)
def test_a_rotated_code_is_read(change):
    assert read_picture(saved(change(image(8)), "PNG")) == (URL,)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000", "ICO"])
def test_a_code_is_read_in_every_format(kind):
    content = saved(image(6).resize((256, 256)), kind)
    assert read_picture(content) == (URL,)


def test_a_light_code_for_a_dark_page_is_read():
    code = image(6)
    light = Image.new("LA", code.size, (255, 0))
    light.putalpha(ImageOps.invert(code))
    assert read_picture(saved(light, "PNG")) == (URL,)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_a_code_in_any_frame_is_read(kind):
    code = image(4)
    blanks = [Image.new("L", code.size, shade) for shade in (250, 200, 150, 100)]
    frames = [*blanks[:2], code, *blanks[2:]]
    content = saved(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    assert read_picture(content) == (URL,)
    watch = clock(picture_frames=2)
    assert read_picture(content, watch) == ()
    assert missed(watch) == ["picture_frames"]


def test_a_small_code_on_a_huge_drawing_is_read():
    canvas = Image.new("L", (5_200, 5_000), 255)
    canvas.paste(image(2), (4_100, 3_900))
    canvas.paste(0, (10, 10, 30, 30))
    assert read_picture(saved(canvas, "PNG")) == (URL,)


@pytest.mark.slow
def test_a_huge_jpeg_is_read_within_bounds():
    canvas = Image.new("L", (16_000, 13_000), 230)
    canvas.paste(image(60), (5_000, 4_000))
    assert read_picture(saved(canvas, "JPEG", quality=50)) == (URL,)


@pytest.mark.slow
def test_a_picture_beyond_a_limit_is_recorded_and_not_decoded():
    watch = clock()
    assert read_picture(saved(Image.new("1", (30_000, 30_000)), "PNG"), watch) == ()
    assert missed(watch) == ["picture_pixels"]
    watch = clock(jpeg_pixels=1_000)
    read_picture(saved(Image.new("L", (100, 100)), "JPEG"), watch)
    assert missed(watch) == ["jpeg_pixels"]


def test_a_damaged_picture_is_read_as_far_as_it_goes_or_recorded():
    whole = picture(scale=6)
    assert read_picture(whole[:-12]) == (URL,)
    watch = clock()
    read_picture(b"\x89PNG\r\n\x1a\n" + b"x" * 300, watch)
    assert missed(watch) == [MissedReason.DAMAGED]


def test_pieces_of_a_code_are_put_together():
    code = image(6)
    side = code.width // 4
    pieces = [code.crop((x * side, y * side, (x + 1) * side, (y + 1) * side)) for y in range(4) for x in range(4)]
    code = code.crop((0, 0, 4 * side, 4 * side))
    assert read_pieces(pieces) == qr_codes.read_image(code) == (URL,)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reading(content):
    for head in (b"", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"GIF89a", b"\xff\xd8\xff\xe0", b"BM", b"II*\0"):
        read_picture(head + content)
    list(read_pdf(b"%PDF-1.7\n" + content, clock()))
