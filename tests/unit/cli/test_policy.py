"""What an operator expects of a sample: what is not so is said in words, and a wish without sense is a mistake."""

import pytest

from mailwarden.cli.policy import Expectation
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.settings.reader import Mistakes, read


def expectation(folder, text: str) -> Expectation:
    (folder / "a.yml").write_text(text)
    return read(folder / "a.yml", Expectation)


def test_a_met_expectation_has_no_complaints(tmp_path):
    wish = expectation(tmp_path, "verdict: [spam, bulk]\ndecision: quarantine\nexpect: [url.new]\nrefuse: [url.old]\n")
    assert list(wish.complaints(Verdict.SPAM, Decision.QUARANTINE, ("url.new",))) == []


def test_everything_that_is_not_as_expected_is_said(tmp_path):
    wish = expectation(tmp_path, "verdict: spam\ndecision: quarantine\nexpect: [url.new]\nrefuse: [url.old]\n")
    assert list(wish.complaints(Verdict.CLEAN, Decision.DELIVER, ("url.old",))) == [
        "verdict clean, not spam",
        "decision deliver, not quarantine",
        "without url.new",
        "with url.old",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("profile: strict\n", "nothing is expected"),
        ("verdict: evil\n", "evil"),
        ("expect: [Url]\n", "must look like namespace.name"),
        ("expect: [url.a]\nrefuse: [url.a]\n", "expected and refused"),
        ("verdict: spam\nverdit: spam\n", "verdit"),
    ],
)
def test_a_wish_without_sense_is_a_mistake_with_its_place(tmp_path, text, problem):
    with pytest.raises(Mistakes, match=problem) as found:
        expectation(tmp_path, text)
    assert "a.yml:" in str(found.value)
