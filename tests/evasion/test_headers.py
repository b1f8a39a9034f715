"""The cases of `workshop.evasion.headers` and its wrappers, without servers: lists see the payload in each."""

import pytest

from mailwarden.analysis.message_values import find_observables
from mailwarden.analysis.view import View
from mailwarden.message.coverage import Coverage
from mailwarden.message.html import read_html
from mailwarden.message.parser import parse_message
from mailwarden.message.structure import check_structure
from mailwarden.model.observables import Observable
from workshop.evasion.headers import header_cases
from workshop.evasion.mail import with_file
from workshop.evasion.pages import LINKS
from workshop.evasion.payloads import BLOCKED_ENDING, LISTED_FILE, LISTED_HOST
from workshop.evasion.wrappers import WRAPPERS

HEADERS = dict(header_cases())
ODD_WRAPPERS = [name for name in WRAPPERS if name.startswith(("calendar", "signed"))]
UNREAD_WRAPPERS = ["digested", "encrypted data", "openpgp", "openpgp behind text", "signed as another kind"]


def _look(raw: bytes) -> tuple[bool, Coverage]:
    """Return whether the lists see the payload, and what was not inspected."""
    coverage = Coverage()
    report = check_structure(raw)
    for trip in report.tripped:
        coverage.beyond(trip.limit, trip.place)
    view = View(parse_message(raw, report=report, coverage=coverage), coverage=coverage)
    seen = find_observables(view, tuple(Observable))
    has_link = any(LISTED_HOST in url for url in seen.urls)
    return has_link or any(BLOCKED_ENDING in repr(file) for file in seen.files), coverage


@pytest.mark.parametrize("name", HEADERS)
def test_lists_see_the_payload_under_every_header(name: str) -> None:
    seen, coverage = _look(HEADERS[name])
    assert seen or not coverage.complete


@pytest.mark.parametrize("name", sorted({*ODD_WRAPPERS, *UNREAD_WRAPPERS}))
def test_a_file_in_a_calendar_or_signature_is_seen_or_missed(name: str) -> None:
    file, content = WRAPPERS[name]({LISTED_FILE.name: LISTED_FILE.content})
    seen, coverage = _look(with_file(file, content))
    assert seen or not coverage.complete
    assert name not in UNREAD_WRAPPERS or not coverage.complete


@pytest.mark.parametrize("name", [name for name in LINKS if name.startswith(("anchor of", "anchor to", "conditional"))])
def test_a_link_of_another_scheme_names_its_host(name: str) -> None:
    seen, _ = _look(b"Content-Type: text/html\r\n\r\n" + LINKS[name].encode())
    assert seen


def test_tags_inside_of_words_part_no_words() -> None:
    page = read_html("<p>Your pass<b></b>wo<!-- x -->rd exp<span title='>'>ires</span></p><p>today</p>")
    assert page.joined_text == "Your password expires today"
    assert page.joined_text in page.other_texts
