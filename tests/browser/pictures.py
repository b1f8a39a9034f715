"""`make pictures`: the twelve pictures of the docs, cut and reduced from what the browser tests keep."""

import argparse
import sys
from pathlib import Path

from PIL import Image

# The pictures of the tests, by their names in the docs.
CHOSEN = {
    "dashboard": "job-dashboard-1280-light",
    "messages": "job-list-1280-light",
    "message": "job-message-1280-light",
    "message-phone": "message-390-dark",
    "campaign": "job-campaign-1280-light",
    "block": "job-block-1280-light",
    "tune": "job-tune-1280-light",
    "quarantine": "quarantine-1280-dark",
    "report": "report-1280-light",
    "first-steps": "job-samples-1280-light",
    "health": "health-1280-light",
    "palette": "palette-1280-light",
}
WIDE, TALL = 1280, 900
WIDTH = 960
COLOURS = 128


def reduce(source: Path, target: Path) -> None:
    """Write the upper part of a picture with few colours; a phone's is narrower."""
    with Image.open(source) as picture:
        cut = picture.convert("RGB").crop((0, 0, picture.width, min(picture.height, TALL)))
    width = WIDTH * cut.width // WIDE
    small = cut.resize((width, cut.height * width // cut.width), Image.Resampling.LANCZOS)
    small.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m tests.browser.pictures run/screenshots docs/pictures"
    )
    parser.add_argument("screenshots", type=Path, help="folder that the browser tests filled")
    parser.add_argument("target", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    arguments.target.mkdir(parents=True, exist_ok=True)
    for name, kept in CHOSEN.items():
        reduce(arguments.screenshots / f"{kept}.png", arguments.target / f"{name}.png")
    sys.stdout.write(f"{len(CHOSEN)} pictures in {arguments.target}\n")


if __name__ == "__main__":
    main()
