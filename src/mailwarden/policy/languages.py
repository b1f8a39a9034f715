"""The texts of the policy in other languages: `translations/CODE.po`, in the format of gettext.

A text is found by its place, such as the rule and the field, and by its English words. So a text that is missing, or
whose English words have changed since, or that has other facts, is shown in English.
"""

import functools
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from babel.messages.catalog import Message
from babel.messages.pofile import PoFileError, read_po
from msgspec.structs import replace

from mailwarden.model.record import FinishedRequest
from mailwarden.policy.judge import in_other_words
from mailwarden.policy.rules import Policy, Rule
from mailwarden.policy.sentences import ENGLISH, Wording, fact_names, template_problems
from mailwarden.settings.compiled import CompiledFile
from mailwarden.telemetry.logs import get_logger

FOLDER = Path(__file__).parent / "translations"
AREA = "places.areas"  # the place of the names of areas, such as `the text`

_log = get_logger("policy.languages")


class Translation:
    """All texts of the policy in one language, by `key`."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        wording = _with_texts(msgspec.to_builtins(ENGLISH), "", self.text)
        words = msgspec.convert(wording, Wording)
        prefix = key(AREA, "")
        areas = {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)}
        self.words = replace(words, places=replace(words.places, areas=areas))

    def text(self, place: str, english: str) -> str:
        """Return a text in this language, or in English."""
        return self.texts.get(key(place, english), english)

    def rule(self, rule: Rule) -> Rule:
        """Return the rule with its texts in this language."""
        return replace(rule, **{field: self.text(place, english) for field, place, english in rule_texts(rule)})

    def tags(self, tags: Mapping[str, str]) -> Mapping[str, str]:
        """Return the meanings of tags in this language."""
        return {tag: self.text(f"tag {tag}", english) for tag, english in tags.items()}

    def message(self, request: FinishedRequest, policy: Policy) -> FinishedRequest:
        """Return a finished request with the sentences of its judgement in this language."""
        used = {reason.rule for reason in request.judgement.reasons}
        rules = {rule.id: rule for rule in policy.rules if rule.id in used}
        summaries = {
            name: summary
            for name, rule in rules.items()
            if (summary := self.texts.get(key(f"{name} summary", rule.summary)))
        }
        judgement = in_other_words(request.judgement, request.evidence, rules, summaries, self.words)
        return replace(request, judgement=judgement)


def key(place: str, english: str) -> str:
    """Return the name of a text, in the form of gettext's own files."""
    return f"{place}\x04{english}"


def rule_texts(rule: Rule) -> Sequence[tuple[str, str, str]]:
    """Return the field, the place and the English words of each text of a rule."""
    return (
        ("name", f"{rule.id} name", rule.name),
        ("summary", f"{rule.id} summary", rule.summary),
        ("description", f"{rule.id} description", rule.description),
        ("false_positives", f"{rule.id} falsePositives", rule.false_positives),
    )


def policy_texts(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield the place and the English words of every text but the names of areas."""
    for rule in policy.rules:
        yield from ((place, english) for _, place, english in rule_texts(rule))
    yield from ((f"tag {tag}", english) for tag, english in policy.tags.items())
    wording: list[tuple[str, str]] = []

    def note(place: str, english: str) -> str:
        wording.append((place, english))
        return english

    _with_texts(msgspec.to_builtins(ENGLISH), "", note)
    yield from wording


def languages() -> tuple[str, ...]:
    """Return the languages with a file."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.po")))


def read_texts(language: str) -> dict[str, str]:
    """Return the texts of one language that can be used, by `key`."""
    catalogue = read_po(io.BytesIO(_file(language).read_bytes()), locale=language.replace("-", "_"), abort_invalid=True)
    return {
        key(message.context or "", str(message.id)): str(message.string)
        for message in catalogue
        if message.id and message.string and not message.fuzzy and not problem_of(message)
    }


def problem_of(message: Message) -> str:
    """Return why a translation cannot be used, or an empty string."""
    english, other = str(message.id), str(message.string)
    if fact_names(english) != fact_names(other):
        return f"it has the facts {sorted(fact_names(other))}, the English text has {sorted(fact_names(english))}"
    if (message.context or "").endswith(" summary"):
        return next(template_problems(other), "")
    return ""


@functools.cache
def load_translation(language: str) -> Translation | None:
    """Return the texts of one language, or None for English and for a language without texts; read once per process."""
    if language not in languages():
        return None
    try:
        return Translation(compiled(language).read() or read_texts(language))
    except (PoFileError, ValueError) as error:
        _log.warning("language_skipped", file=_file(language).name, error=str(error))
        return None


def compiled(language: str) -> CompiledFile[dict[str, str]]:
    """Return the file that `mailwarden compile` writes for a language."""
    place = FOLDER.parent / "__pycache__" / f"translation-{language}.msgpack"
    return CompiledFile(place, dict[str, str], lambda: (_file(language), Path(__file__)))


def _file(language: str) -> Path:
    return FOLDER / f"{language}.po"


def _with_texts(value: object, place: str, change: Callable[[str, str], str]) -> object:
    """Return nested mappings of texts with each text changed; the place is the path of its names."""
    if isinstance(value, dict):
        return {name: _with_texts(inner, f"{place}.{name}" if place else name, change) for name, inner in value.items()}
    return change(place, str(value))
