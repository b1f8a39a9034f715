"""The texts of the policy in other languages."""

import pytest
from babel.messages.catalog import Catalog
from msgspec.structs import replace

from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.place import Place, PlaceKind, place_text
from mailwarden.policy.judge import in_other_words, judge
from mailwarden.policy.languages import FOLDER, Translation, key, languages, load_translation, problem_of, read_texts
from mailwarden.policy.rules import load_policy
from mailwarden.policy.sentences import Wording, fact_names
from tests.samples.finished import finished_request
from workshop.rig.translations import extract_policy, read_catalogue, updated

POLICY = load_policy()
RULES = {rule.id: rule for rule in POLICY.rules}


def test_german_is_shipped_and_english_needs_no_translation():
    assert "de" in languages()
    assert load_translation("en") is None
    assert load_translation("xx") is None


@pytest.mark.slow
@pytest.mark.parametrize("language", languages())
def test_every_text_of_a_translation_can_be_used(language):
    file = [message for message in read_catalogue(FOLDER / f"{language}.po") if message.id]
    places = {message.context for message in extract_policy()}
    assert {message.context for message in file} - places == set(), "of no rule, tag or sentence"
    texts = [message for message in file if message.string and not message.fuzzy]
    assert {message.context: problem for message in texts if (problem := problem_of(message))} == {}
    translation = load_translation(language)
    assert translation
    assert translation.texts == read_texts(language)


def test_a_text_is_shown_in_english_if_its_english_words_changed_or_it_has_other_facts(tmp_path, monkeypatch):
    rule = RULES["attachments.executable"]
    file = (
        'msgid ""\nmsgstr "Language: xx\\n"\n\n'
        f'msgctxt "{rule.id} name"\nmsgid "{rule.name}"\nmsgstr "Programm"\n\n'
        f'msgctxt "{rule.id} summary"\nmsgid "{rule.summary}"\nmsgstr "der Anhang {{file}} ist ein Programm"\n\n'
        f'msgctxt "{rule.id} description"\nmsgid "before"\nmsgstr "vorher"\n\n'
        f'#, fuzzy\nmsgctxt "{rule.id} falsePositives"\nmsgid "{rule.false_positives}"\nmsgstr "unsicher"\n\n'
        'msgctxt "oneMore"\nmsgid "{body} (1 more reason)"\nmsgstr "(1 weiterer Grund) {body}"\n'
    )
    (tmp_path / "de.po").write_text(file, "utf-8")
    monkeypatch.setattr("mailwarden.policy.languages.FOLDER", tmp_path)
    translation = Translation(read_texts("de"))
    assert translation.rule(rule) == replace(rule, name="Programm")
    assert translation.words == Wording(one_more="(1 weiterer Grund) {body}")
    assert translation.tags(POLICY.tags) == POLICY.tags


def test_a_summary_with_the_same_words_in_both_languages_is_translated():
    rule = RULES["attachments.executable"]
    request = finished_request(evidence=evidence(PROGRAM), judgement=judge(evidence(PROGRAM), POLICY))
    words = {key(f"verdicts.{verdict}", Wording().verdicts[verdict]): f"<{verdict}>" for verdict in Verdict}
    same = Translation(words | {key(f"{each} summary", RULES[each].summary): RULES[each].summary for each in RULES})
    assert rule.id in {reason.rule for reason in request.judgement.reasons}
    assert same.message(request, POLICY).judgement.summary.startswith(f"<{request.judgement.verdict}>: ")


def test_a_broken_file_leaves_every_text_in_english(tmp_path, monkeypatch):
    (tmp_path / "fr.po").write_bytes(b'msgid "a\nmsgstr \xff')
    monkeypatch.setattr("mailwarden.policy.languages.FOLDER", tmp_path)
    assert load_translation("fr") is None


def test_a_changed_text_keeps_its_translation_as_fuzzy(tmp_path):
    path, template = tmp_path / "de.po", Catalog()
    template.add("new words", context="a name")
    template.add("same words", context="b name")
    template.add("moved words", context="d name")
    path.write_text(
        'msgid ""\nmsgstr "Language: de\\n"\n\nmsgctxt "a name"\nmsgid "old words"\nmsgstr "alte Worte"\n\n'
        'msgctxt "b name"\nmsgid "same words"\nmsgstr "gleiche Worte"\n\n'
        'msgctxt "c name"\nmsgid "moved words"\nmsgstr "bewegte Worte"\n'
    )
    texts = [(each.context, each.string, each.fuzzy) for each in updated(path, template) if each.id]
    assert texts == [
        ("a name", "alte Worte", True),
        ("b name", "gleiche Worte", False),
        ("d name", "bewegte Worte", True),
    ]


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
    assert shown.summary == "Unauffällig: keine Punkte dagegen."


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
