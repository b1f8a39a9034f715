"""The QR code: the path covers the dark modules, all of them and no other."""

import re

import segno

from mailwarden.console.screens.setup import BORDER, draw_qr_code

TEXT = "otpauth://totp/Mailwarden:ada?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=Mailwarden"


def test_the_path_covers_the_dark_modules_and_no_others() -> None:
    drawn = draw_qr_code(TEXT)
    covered = set()
    for x, y, run in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", drawn.path):
        covered |= {(int(x) + step, int(y)) for step in range(int(run))}
    matrix = segno.make(TEXT, micro=False, error="m").matrix
    dark = {(x + BORDER, y + BORDER) for y, row in enumerate(matrix) for x, module in enumerate(row) if module}
    assert covered == dark
    assert drawn.size == len(matrix) + 2 * BORDER
    assert re.fullmatch(r"[Mhvz0-9 -]+", drawn.path)
