"""The test lines of scanners and filters, as they stand in files of other writings."""

import base64

import pytest

from mailwarden.analysis.analyzers import attachments
from mailwarden.analysis.analyzers.attachments import has_test_line, is_test_file

# Put together by the product, so that no file of ours holds them.
VIRUS = attachments._EICAR
SPAM = attachments._GTUBE


@pytest.mark.parametrize(
    "content",
    [
        VIRUS,
        b"Hello\n" + VIRUS + b"\n",
        VIRUS.decode().encode("utf-16"),
        VIRUS.hex().encode(),
        *(base64.b64encode(b"x" * before + VIRUS) for before in range(3)),
    ],
)
def test_the_test_file_is_known_in_every_writing(content):
    assert is_test_file(content)


def test_text_about_the_test_file_is_none():
    assert not is_test_file(VIRUS[:30] + b" is how it begins; the rest is left out here. " + VIRUS[40:])


def test_the_test_line_is_known_in_wide_characters_too():
    assert has_test_line(b"x" + SPAM)
    assert has_test_line(SPAM.decode().encode("utf-16-le"))
    assert not has_test_line(SPAM[:-1])
