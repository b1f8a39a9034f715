"""Domains that imitate protected ones are found, and honest ones are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.lists.impersonation import Lookalikes, candidates_for_shown_name
from mailwarden.message.lookalikes import one_edit, skeleton

PROTECTED = Lookalikes(["example.com", "company.example", "bank.example", "modern.example", "abc.example"])


@pytest.mark.parametrize(
    ("domain", "protected"),
    [
        ("examp1e.com", "example.com"),
        ("exarnple.com", "example.com"),
        ("ехample.com", "example.com"),  # the first two letters are Cyrillic
        ("xn--xample-2of.com", "example.com"),  # and so they are here, as they travel
        ("exämple.com", "example.com"),
        ("exmaple.com", "example.com"),
        ("exampl.com", "example.com"),
        ("examplle.com", "example.com"),
        ("ex-ample.com", "example.com"),
        ("exbmple.com", "example.com"),
        ("MAIL.Companny.Example.", "company.example"),
        ("b4nk.example", "bank.example"),
        ("bɑnk.example", "bank.example"),
        ("ban1k.example", ""),
        ("rnodern.example", "modern.example"),
        ("abd.example", ""),
    ],
)
def test_a_lookalike_of_a_protected_domain_is_found(domain, protected):
    assert PROTECTED.find(domain) == protected


@pytest.mark.parametrize(
    "domain", ["example.com", "mail.example.com", "example.org", "another.example", "", "localhost", "192.0.2.1"]
)
def test_protected_and_unrelated_domains_are_no_lookalikes(domain):
    assert PROTECTED.find(domain) == ""


@given(st.text("abcde", min_size=5, max_size=12), st.data())
def test_every_name_one_edit_away_is_found(label, data):
    at = data.draw(st.integers(0, len(label) - 1))
    letter = data.draw(st.sampled_from("vwxyz"))
    edits = [label[:at] + letter + label[at + 1 :], label[:at] + letter + label[at:], label[:at] + label[at + 1 :]]
    edits.append(label[:at] + label[at : at + 2][::-1] + label[at + 2 :])
    for edited in edits:
        if edited != label:
            assert one_edit(edited, label)
            assert Lookalikes([f"{label}.example"]).find(f"{edited}.example") == f"{label}.example"


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_one_edit_equals_the_slow_comparison(left, right):
    near = {left[:i] + left[i + 1 :] for i in range(len(left))}
    near |= {left[:i] + letter + left[i:] for i in range(len(left) + 1) for letter in "abc"}
    near |= {left[:i] + letter + left[i + 1 :] for i in range(len(left)) for letter in "abc"}
    near |= {left[:i] + left[i : i + 2][::-1] + left[i + 2 :] for i in range(len(left))}
    assert one_edit(left, right) == (right in near and left != right)


def test_names_that_look_alike_share_a_skeleton():
    assert skeleton("paypal") == skeleton("paypa1") == skeleton("раураl")
    assert skeleton("paypal") != skeleton("payroll")


def test_a_name_with_confusable_characters_is_found():
    assert "grace hopper" in candidates_for_shown_name("Grасе Hорреr")
    assert candidates_for_shown_name("Grace Hopper") == ["grace hopper"]


def test_an_address_behind_a_name_hides_it_not():
    assert "grace hopper" in candidates_for_shown_name("Grace Hopper <grace@club.example>")
