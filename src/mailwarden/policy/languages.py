"""The texts of the policy in other languages: one folder of `translations` per language.

A text that a language lacks is shown in English.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.record import FinishedRequest
from mailwarden.policy.judge import in_other_words
from mailwarden.policy.rules import Policy, Rule, Text
from mailwarden.policy.sentences import Wording, template_problems
from mailwarden.settings.compiled import CompiledFile
from mailwarden.settings.reader import read

FOLDER = Path(__file__).parent / "translations"
SENTENCES = "sentences.yml"


class RuleTexts(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The texts of one rule."""

    name: Text
    summary: Text
    description: Text
    false_positives: Text

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from (("summary", problem) for problem in template_problems(self.summary))


class TranslatedFile(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The texts of one file of rules: rules by id, and tags."""

    rules: dict[str, RuleTexts] = {}
    tags: dict[str, Text] = {}


class Translation(Struct, frozen=True):
    """All texts of the policy in one language."""

    rules: dict[str, RuleTexts]
    tags: dict[str, str]
    words: Wording

    def rule(self, rule: Rule) -> Rule:
        """Return the rule with its texts in this language."""
        if (texts := self.rules.get(rule.id)) is None:
            return rule
        return replace(
            rule,
            name=texts.name,
            summary=texts.summary,
            description=texts.description,
            false_positives=texts.false_positives,
        )

    def message(self, request: FinishedRequest, policy: Policy) -> FinishedRequest:
        """Return a finished request with the sentences of its judgement in this language."""
        used = {reason.rule for reason in request.judgement.reasons}
        rules = {rule.id: rule for rule in policy.rules if rule.id in used}
        summaries = {name: self.rules[name].summary for name in rules.keys() & self.rules.keys()}
        judgement = in_other_words(request.judgement, request.evidence, rules, summaries, self.words)
        return replace(request, judgement=judgement)


def languages() -> tuple[str, ...]:
    """Return the languages with a folder."""
    return tuple(sorted(path.name for path in FOLDER.iterdir() if (path / SENTENCES).exists()))


def read_translation(language: str) -> Translation:
    """Read the files of one language, or raise Mistakes with the errors of the first wrong file."""
    rules: dict[str, RuleTexts] = {}
    tags: dict[str, str] = {}
    for path in _files(language):
        if path.name != SENTENCES:
            file = read(path, TranslatedFile)
            rules.update(file.rules)
            tags.update(file.tags)
    return Translation(rules, tags, read(FOLDER / language / SENTENCES, Wording))


@functools.cache
def load_translation(language: str) -> Translation | None:
    """Return the texts of one language, or None for English and for a language without texts; read once per process."""
    if language not in languages():
        return None
    return compiled(language).read() or read_translation(language)


def compiled(language: str) -> CompiledFile[Translation]:
    """Return the file that `mailwarden compile` writes for a language."""
    place = FOLDER.parent / "__pycache__" / f"translation-{language}.msgpack"
    return CompiledFile(place, Translation, lambda: (*_files(language), Path(__file__)))


def _files(language: str) -> list[Path]:
    return sorted((FOLDER / language).glob("*.yml"))
