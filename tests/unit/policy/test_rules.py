"""The shipped policy loads, and a policy with mistakes does not, naming every one."""

import shutil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.errors import ConfigurationError
from mailwarden.policy.catalogue import catalogue
from mailwarden.policy.rules import FOLDER, NAMESPACES, TAG_FORM, load_policy
from mailwarden.policy.sentences import FACT_LENGTH, fill, sentence, show
from workshop.pages.verdicts import verdicts_and_tags

SHIPPED = load_policy()

RULE = """
  - id: odd.{id}
    name: Odd
    description: Something odd.
    when: odd.thing
    verdict: {verdict}
    weight: {weight}
    summary: {summary}
    severity: low
    falsePositives: Many.
    {more}
"""


def write(folder, *rules: str, tags: str = "{}") -> None:
    shutil.copy(FOLDER / "profiles.yml", folder)
    shutil.copy(FOLDER / "tags.yml", folder)
    (folder / "rules").mkdir()
    (folder / "rules" / "odd.yml").write_text(f"topic: text.odd\ntags: {tags}\nrules:\n" + "".join(rules))


def odd(**changes: object) -> str:
    fields = {"id": "thing", "verdict": "spam", "weight": 10, "summary": "the thing {name} is odd", "more": ""}
    return RULE.format(**{**fields, **changes})


def test_a_good_rule_is_read(tmp_path):
    write(tmp_path, odd(more="tag: content.odd"), tags="{content.odd: Odd.}")
    assert [rule.id for rule in load_policy(tmp_path).rules] == ["odd.thing"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"more": "wieght: 3"}, "unknown key; did you mean `weight`?"),
        (
            {"more": "tag: content.odd"},
            "no file describes the tag `content.odd` of `odd.thing`: add it with one sentence to `tags`",
        ),
        ({"more": "tag: weird.odd"}, "`weird.odd` has an unknown namespace"),
        ({"more": "tag: Content.odd"}, "must look like namespace.name"),
        ({"more": "topic: odd"}, "`odd` must look like about.name; about is one of sender, links, text"),
        ({"more": "technique: phishing"}, "must be a MITRE ATT&CK technique"),
        ({"more": "unless: [nothing]"}, "`nothing` must look like analyzer.what"),
        ({"more": "forcesQuarantine: true"}, "belongs to rules that argue for `suspicious`"),
        ({"more": "counts: sometimes"}, "counts"),
        ({"id": "Thing"}, "must look like analyzer.what"),
        ({"verdict": "clean"}, "no rule can argue for `clean`"),
        ({"verdict": "unknown"}, "no rule can argue for `unknown`"),
        ({"verdict": "naughty"}, "verdict"),
        ({"verdict": "malware", "weight": -1}, "nothing eases malware"),
        ({"weight": 101}, "weight"),
        ({"summary": "it is {0.__class__}"}, "has a brace that is not part of a {fact}"),
        ({"summary": "it is {name!r}"}, "has a brace that is not part of a {fact}"),
        ({"summary": "it is {name"}, "has a brace that is not part of a {fact}"),
        ({"summary": "'{name} is odd'"}, "must begin with a word"),
        ({"summary": "it is odd."}, "must not end with a full stop"),
    ],
)
def test_a_bad_rule_stops_the_start_with_its_line(tmp_path, changes, said):
    write(tmp_path, odd(**changes))
    with pytest.raises(ConfigurationError) as caught:
        load_policy(tmp_path)
    assert said in caught.value.message
    assert "odd.yml:" in caught.value.message


def test_all_mistakes_are_reported_at_once(tmp_path):
    write(tmp_path, odd(id="First", weight=900), odd(verdict="clean", summary="odd."))
    with pytest.raises(ConfigurationError) as caught:
        load_policy(tmp_path)
    assert len(caught.value.message.splitlines()) == 4


def test_an_id_is_taken_once_and_begins_with_its_file(tmp_path):
    write(tmp_path, odd(), odd(), odd().replace("odd.thing", "even.thing"))
    with pytest.raises(ConfigurationError) as caught:
        load_policy(tmp_path)
    assert "the id `odd.thing` is already taken in odd.yml" in caught.value.message
    assert "the id `even.thing` must begin with `odd.`" in caught.value.message


def test_a_tag_described_twice_or_carried_by_no_rule_is_a_mistake(tmp_path):
    write(tmp_path, odd(), tags="{policy.warn: Twice., content.unused: Unused.}")
    with pytest.raises(ConfigurationError) as caught:
        load_policy(tmp_path)
    assert "`policy.warn` is already described in odd.yml" in caught.value.message
    assert "no rule carries the tag `content.unused`" in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("balanced: undecided", "balanced: deliver", "`undecided` and `unknown` belong together"),
        ("strict: deliver", "strict: drop", "drop is never a default"),
        ("  bulk:", "  bulky:", "bulky"),
        ("Unsolicited.\n    balanced: quarantine", "Unsolicited.", "is required and missing"),
        ("identified.\n    balanced: quarantine", "identified.\n    balanced: deliver", "malware is never delivered"),
    ],
)
def test_a_profile_that_is_unsafe_or_incomplete_stops_the_start(tmp_path, old, new, said):
    write(tmp_path, odd())
    table = (FOLDER / "profiles.yml").read_text()
    assert old in table
    (tmp_path / "profiles.yml").write_text(table.replace(old, new))
    with pytest.raises(ConfigurationError, match=said):
        load_policy(tmp_path)


def test_every_tag_of_the_catalogue_has_the_public_form_and_a_sentence(policy):
    shown = catalogue(policy)
    assert [entry.tag for entry in shown.tags] == sorted({entry.tag for entry in shown.tags})
    for entry in shown.tags:
        assert TAG_FORM.match(entry.tag)
        assert entry.tag.partition(".")[0] in NAMESPACES
        assert entry.description.endswith(".")
        assert entry.rules or entry.tag.startswith(("policy.", "analysis.", "list."))
    assert {rule.tag for rule in policy.rules if rule.tag} <= {entry.tag for entry in shown.tags}
    assert msgspec.json.encode(shown)


def test_the_page_names_every_verdict_tag_and_rule(policy):
    page = verdicts_and_tags()
    names = [*policy.verdicts, *policy.tags, *(rule.id for rule in policy.rules)]
    assert [name for name in names if f"`{name}`" not in page] == []


hostile = st.one_of(st.text(max_size=2000), st.integers(), st.floats(), st.booleans())


@given(st.dictionaries(st.sampled_from(["name", "signature", "host", "type", "sentence"]), hostile))
def test_templates_are_safe_with_hostile_facts(facts):
    for rule in SHIPPED.rules:
        text = fill(rule.summary, facts)
        assert text.isprintable()
        assert len(text) < len(rule.summary) + 6 * FACT_LENGTH


def test_a_fact_is_never_read_as_a_template():
    assert fill("it is {name}", {"name": "{signature}", "signature": "secret"}) == "it is {signature}"
    assert fill("it is {name}", {}) == "it is (unknown)"


def test_control_and_direction_characters_are_stripped():
    assert show("in\u202evoice\x00\r\nBcc: \x1b[31m\ud800") == "invoice  Bcc: [31m"
    assert show("x" * 500) == "x" * (FACT_LENGTH - 1) + "…"
    assert show(15.0) == "15"
    assert show("\u200b") == "(unknown)"


def test_a_fact_that_is_a_sentence_ends_with_one_full_stop():
    body = fill("mail programs may read it differently: {sentence}", {"sentence": "A multipart is never closed."})
    assert sentence(body) == "Mail programs may read it differently: A multipart is never closed."
    assert fill("{sentence} That is so", {"sentence": "It is."}) == "It is. That is so"
