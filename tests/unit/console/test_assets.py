"""The console's files: what others wrote is as they wrote it, and nothing is fetched from elsewhere."""

import hashlib
import re

import pytest
from ruamel.yaml import YAML

from mailwarden.console.templating import ASSET_FOLDER, Assets

SOURCES = YAML(typ="safe").load(ASSET_FOLDER / "vendor" / "SOURCES.yml")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source["file"])
def test_third_party_files_equal_their_package(source: dict[str, str]) -> None:
    content = (ASSET_FOLDER / "vendor" / source["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == source["sha256"]


def test_every_file_of_others_is_named_with_its_source() -> None:
    there = {path.name for path in (ASSET_FOLDER / "vendor").iterdir() if path.suffix in (".js", ".css")}
    assert there == {source["file"] for source in SOURCES}


def test_drawings_are_taken_out_of_the_style_sheet_and_served_as_files() -> None:
    assets = Assets()
    style = assets.content("tabler.min.css").decode()
    assert "data:" not in style
    assert style.count("/console/static/") >= 20
    for part in style.split('url("')[1:]:
        address = part.partition('"')[0]
        drawing = assets.find(address).content
        assert drawing.startswith(b"<svg"), address
        assert not re.search(rb"%[0-9A-Fa-f]{2}", drawing), address


def test_our_own_files_name_no_other_server() -> None:
    assets = Assets()
    for name in ("console.css", "console.js", "theme.js"):
        assert b"//" not in assets.content(name).replace(b"// ", b"")
