"""A place in a message is a value; its text is made by one function."""

import pytest

from mailwarden.model.place import WHOLE_MESSAGE, Place, area, place_text, shown_place

FILE = Place(part="2", name="a.zip")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (WHOLE_MESSAGE, ""),
        (area("From"), "From"),
        (Place(part="1.2"), "part 1.2"),
        (FILE, "part 2 (a.zip)"),
        (FILE.within("b.rar").within(""), "part 2 (a.zip) > b.rar > without a name"),
        (FILE.link(), "link in part 2 (a.zip)"),
        (FILE.on_page(3).code(), "QR code in page 3 of part 2 (a.zip)"),
        (area("the text").code(), "QR code in the text"),
    ],
)
def test_a_place_is_written_as_analysts_read_it(place, text):
    assert place_text(place) == text
    assert shown_place(place) == text


def test_a_long_place_keeps_its_end():
    place = FILE
    for _ in range(8):
        place = place.within("x" * 300 + ".htm")
    assert len(place.inside[0]) == 255
    assert place_text(place).startswith("… x")
    assert place_text(place).endswith(".htm")


def test_a_shown_place_is_short_and_on_one_line():
    shown = shown_place(Place(part="2", name="a\n\u202eb" + "c" * 500))
    assert len(shown) == 200
    assert shown.startswith("part 2 (a bccc")
