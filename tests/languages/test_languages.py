"""Lures and honest messages in ten languages, judged by the worker steps and the shipped policy."""

from email import message_from_bytes
from email.policy import default

import pytest

from workshop.evaluate.languages import (
    BAD,
    KINDS,
    LANGUAGES,
    LURES,
    last_line,
    message,
    origin,
    outcomes,
    report,
    share,
    texts,
)

# The share of lures that must be noticed in every language, of wording that phrases are tuned on and of the other.
LEAST = {"lure": 90, "other": 70}


@pytest.fixture(scope="module")
def judged():
    return list(outcomes())


@pytest.mark.parametrize("language", LANGUAGES)
def test_lures_are_noticed_in_every_language(judged, language):
    these = [each for each in judged if each.language == language]
    for kind, least in LEAST.items():
        noticed, of = share(these, kind, lambda each: each.noticed)
        clean = [each.lure for each in these if each.kind == kind and not each.noticed]
        assert 100 * noticed >= least * of, f"{kind} that is clean: {clean}"


def test_honest_messages_with_the_same_words_are_delivered(judged):
    held = [f"{each.language} {each.lure}: {each.summary}" for each in judged if each.kind == "honest" and each.held]
    assert held == []


def test_every_message_has_its_own_text_and_a_place_for_its_links():
    seen = set()
    for language in LANGUAGES:
        for lure in LURES:
            for kind in KINDS:
                text = getattr(getattr(texts(language), lure), kind)
                assert text.text not in seen, f"{language} {lure} {kind} repeats another text"
                assert ("[[" in text.text) <= bool(origin(lure, kind).site), f"{language} {lure} {kind} has links"
                seen.add(text.text)
    assert len(seen) == len(LANGUAGES) * len(LURES) * len(KINDS)


def test_a_message_is_html_with_links_to_the_site_of_its_sender():
    mail = message_from_bytes(message(texts("en").mailbox.lure, BAD["mailbox"]), policy=default)
    assert '<a href="https://kestrel-web.example/r/4b71">Keep my password</a>' in mail.get_content()
    assert b"text/plain" in message(texts("en").boss.lure, BAD["boss"])


def test_the_table_has_every_language_and_every_lure(judged):
    rows = [line.split()[0] for line in report(judged) if line and not line.startswith(" ")]
    assert rows == [*LANGUAGES, *LURES, "all", "evaluate"]
    assert last_line(judged).startswith("evaluate languages: lures not clean ")
