"""Draws a QR code as the path of an SVG, so that a page needs no picture and no markup from elsewhere."""

import segno
from msgspec import Struct

BORDER = 4


class QrCode(Struct, frozen=True):
    """`path` is drawn in a square of `size` units."""

    size: int
    path: str


def draw_qr_code(text: str) -> QrCode:
    """Return the code of a text: one stroke for every run of dark modules."""
    rows = [bytes(row) for row in segno.make(text, micro=False, error="m").matrix_iter(border=BORDER)]
    strokes = []
    for y, row in enumerate(rows):
        x = 0
        while x < len(row):
            run = 1
            while x + run < len(row) and row[x + run] == row[x]:
                run += 1
            if row[x]:
                strokes.append(f"M{x} {y}h{run}v1h-{run}z")
            x += run
    return QrCode(len(rows), "".join(strokes))
