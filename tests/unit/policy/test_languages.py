"""The texts of the policy in other languages."""

from collections.abc import Iterator, Mapping

import msgspec
import pytest

from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.place import Place, PlaceKind, place_text
from mailwarden.policy.judge import in_other_words, judge
from mailwarden.policy.languages import Translation, languages, load_translation, read_translation
from mailwarden.policy.rules import Policy, load_policy
from mailwarden.policy.sentences import Wording, fact_names

POLICY = load_policy()
RULES = {rule.id: rule for rule in POLICY.rules}


def test_german_is_shipped_and_english_needs_no_translation():
    assert "de" in languages()
    assert load_translation("en") is None
    assert load_translation("xx") is None


def differences(policy: Policy, translation: Translation) -> Iterator[str]:
    """Yield what a translation has too much or says otherwise, compared with the policy. It may lack texts."""
    rules = {rule.id: rule for rule in policy.rules}
    yield from (f"{name}: no such rule" for name in translation.rules if name not in rules)
    yield from (f"{tag}: no such tag" for tag in translation.tags if tag not in policy.tags)
    for name in rules.keys() & translation.rules.keys():
        english, other = fact_names(rules[name].summary), fact_names(translation.rules[name].summary)
        if english != other:
            yield f"{name}: the summary has the facts {sorted(other)}, the English one has {sorted(english)}"
    yield from _wording_differences(msgspec.to_builtins(Wording()), msgspec.to_builtins(translation.words), "wording")


def _wording_differences(english: object, other: object, place: str) -> Iterator[str]:
    if isinstance(english, Mapping) and isinstance(other, Mapping):
        for key, text in english.items():
            yield from _wording_differences(text, other.get(key), f"{place}.{key}")
    elif not isinstance(english, str) or not isinstance(other, str) or fact_names(english) != fact_names(other):
        yield f"{place}: has other facts than the English text"


@pytest.mark.slow
@pytest.mark.parametrize("language", languages())
def test_every_translation_has_the_facts_of_the_english_text(language):
    assert list(differences(POLICY, read_translation(language))) == []


@pytest.mark.slow
@pytest.mark.parametrize("language", languages())
def test_the_compiled_translation_is_the_one_of_the_files(language):
    assert load_translation(language) == read_translation(language)


def evidence(*findings: Finding) -> Evidence:
    return Evidence(
        (Report("attachments", required=True, status=Status.FINISHED, milliseconds=1.0, findings=findings),)
    )


PROGRAM = Finding(
    "attachments.executable", Place(part="2", name="a.exe"), {"name": "a.exe", "type": "application/x-dosexec"}
)
SECOND = Finding("attachments.executable", Place(part="3", name="b.exe"), {"name": "b.exe", "type": "{name} {x}"})


def test_reasons_and_summary_are_written_in_the_other_language():
    found = evidence(PROGRAM, SECOND)
    english = judge(found, POLICY)
    summaries = {"attachments.executable": "der Anhang {name} ist ein Programm ({type})"}
    words = Wording(verdicts={verdict.value: f"<{verdict}>" for verdict in Verdict})
    german = in_other_words(english, found, RULES, summaries, words)
    shown = {reason.place.part: reason.summary for reason in german.reasons if reason.rule == "attachments.executable"}
    assert shown == {
        "2": "Der Anhang a.exe ist ein Programm (application/x-dosexec).",
        "3": "Der Anhang b.exe ist ein Programm ({name} {x}).",
    }
    if all(reason.rule == "attachments.executable" for reason in english.reasons):
        assert german.summary == f"<{german.verdict}>: der Anhang a.exe ist ein Programm (application/x-dosexec)."
    assert [reason.weight for reason in german.reasons] == [reason.weight for reason in english.reasons]


def test_a_reason_without_translation_keeps_its_sentence_and_the_summary_too():
    found = evidence(PROGRAM)
    english = judge(found, POLICY)
    assert in_other_words(english, found, RULES, {}, Wording()) == english


def test_a_rule_that_changed_since_keeps_the_sentence_of_its_time():
    found = evidence(PROGRAM)
    english = judge(found, POLICY)
    assert in_other_words(english, evidence(SECOND), RULES, {"attachments.executable": "anders"}, Wording()) == english


def test_a_clean_message_is_summarised_in_the_other_language():
    found = evidence()
    german = load_translation("de")
    assert german
    shown = in_other_words(judge(found, POLICY), found, RULES, {}, german.words)
    assert shown.summary == "Unauffällig: die einzige Analyse ist fertig, ohne einen Befund."


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place(part="3", name="a.zip", inside=("b.pdf",), page=2, kind=PlaceKind.CODE),
         "QR-Code in Seite 2 von Teil 3 (a.zip) > b.pdf"),
        (Place(area="the text"), "der Text"),
        (Place(area="From"), "From"),
        (Place(), ""),
    ],
)  # fmt: skip
def test_a_place_is_written_in_the_other_language(place, text):
    german = load_translation("de")
    assert german
    assert place_text(place, german.words.places) == text


def test_names_of_facts_are_those_in_braces():
    assert fact_names("the file {name} in {place}") == {"name", "place"}
