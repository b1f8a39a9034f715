"""Phrases in texts of different lengths, and text that nobody sees."""

import pytest

from mailwarden.analysis.text.phrase_density import PORTION, match_by_density, unseen
from mailwarden.analysis.view import View
from mailwarden.message.parser import parse_message

OFTEN = {"casino": 2}
PADDING = "the path goes around the pear trees and ends at the well "


def view_of(body, kind="plain"):
    return View(parse_message(f"Content-Type: text/{kind}; charset=utf-8\r\n\r\n{body}\r\n".encode()))


def names(view):
    return {finding.name for finding in match_by_density(view, "offers", OFTEN)}


def padded(characters):
    return PADDING * (characters // len(PADDING) + 1)


def test_one_phrase_of_a_short_text_is_heard():
    assert "offers.casino" in names(view_of("free spins for you"))


@pytest.mark.parametrize("portions", [1, 2, 5])
def test_one_phrase_of_a_long_text_is_chance(portions):
    assert "offers.casino" not in names(view_of(f"free spins for you. {padded(portions * PORTION)}"))


def test_what_is_said_again_and_again_is_heard_in_a_long_text_too():
    text = "casino bonus. free spins. online casino. roulette and blackjack. slot machines. place your bets. jackpot. "
    assert "offers.casino" in names(view_of(text + padded(PORTION)))


def test_text_that_nobody_sees_dilutes_nothing():
    hidden = f'<p>free spins for you</p><div style="display:none">{padded(2 * PORTION)}</div>'
    view = view_of(hidden, "html")
    assert unseen(view) > PORTION
    assert "offers.casino" in names(view)
