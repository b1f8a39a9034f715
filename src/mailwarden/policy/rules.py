"""Reads the policy: rules, tags and profiles, checked together, every mistake reported with its place."""

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile
from mailwarden.policy.compiled import read_compiled
from mailwarden.policy.profiles import ProfileFile, VerdictRow
from mailwarden.policy.rule import Rule, RuleFile
from mailwarden.settings.reader import Mistake, Mistakes, read

FOLDER = Path(__file__).parent


class Policy(Struct, frozen=True):
    """Everything that turns evidence into a verdict and a verdict into a decision."""

    rules: tuple[Rule, ...]
    tags: dict[str, str]
    verdicts: dict[Verdict, VerdictRow]
    rules_by_finding: dict[str, tuple[Rule, ...]]  # under the first finding that each rule needs

    def decision_for(self, verdict: Verdict, profile: Profile) -> Decision:
        return self.verdicts[verdict].decision(profile)


def load_policy(folder: Path = FOLDER) -> Policy:
    """Read `rules/*.yml`, `tags.yml` and `profiles.yml`, or raise Mistakes with all that is wrong with them.

    A folder without one of the last two has those that are shipped. What is shipped is read once a process.
    """
    return _shipped() if folder == FOLDER else read_policy(folder)


@functools.cache
def _shipped() -> Policy:
    pieces = read_compiled()
    return make_policy(pieces.rules, pieces.tags, pieces.verdicts) if pieces else read_policy(FOLDER)


def read_policy(folder: Path) -> Policy:
    """Read the files of the folder themselves, whatever is known of them."""
    mistakes: list[Mistake] = []
    files: dict[Path, RuleFile] = {}
    found_rules = sorted((folder / "rules").glob("*.yml"))
    if not found_rules:
        raise Mistakes([Mistake(str(folder), 1, "", "holds no rules: they stand in rules/*.yml")])
    for path in [*found_rules, _own_or_shipped(folder, "tags.yml")]:
        try:
            files[path] = read(path, RuleFile)
        except Mistakes as found:
            mistakes.extend(found.mistakes)
    try:
        profiles = read(_own_or_shipped(folder, "profiles.yml"), ProfileFile)
    except Mistakes as found:
        mistakes.extend(found.mistakes)
    if not mistakes:
        mistakes.extend(_mistakes_between(files))
    if mistakes:
        raise Mistakes(mistakes)
    rules = tuple(rule for file in files.values() for rule in file.rules)
    tags = {tag: text for file in files.values() for tag, text in file.tags.items()}
    return make_policy(rules, tags, {verdict: profiles.verdicts[verdict] for verdict in Verdict})


def _own_or_shipped(folder: Path, name: str) -> Path:
    return folder / name if (folder / name).exists() else FOLDER / name


def make_policy(rules: Iterable[Rule], tags: Mapping[str, str], verdicts: Mapping[Verdict, VerdictRow]) -> Policy:
    """Put a policy together from its checked pieces."""
    ordered = tuple(sorted(rules, key=lambda rule: rule.id))
    index: dict[str, list[Rule]] = defaultdict(list)
    for rule in ordered:
        index[rule.needs[0]].append(rule)
    return Policy(
        rules=ordered,
        tags=dict(sorted(tags.items())),
        verdicts=dict(verdicts),
        rules_by_finding={name: tuple(found) for name, found in index.items()},
    )


def _mistakes_between(files: Mapping[Path, RuleFile]) -> Iterable[Mistake]:
    """Find what is wrong only when the files are read beside each other."""
    ids: dict[str, Path] = {}
    declared: dict[str, Path] = {}
    for path, file in files.items():
        for tag in file.tags:
            if tag in declared:
                yield _mistake(path, tag, f"`{tag}` is already described in {declared[tag].name}")
            declared[tag] = path
    for path, file in files.items():
        for rule in file.rules:
            if rule.id in ids:
                yield _mistake(path, rule.id, f"the id `{rule.id}` is already taken in {ids[rule.id].name}")
            ids[rule.id] = path
            if rule.id.partition(".")[0] != path.stem:
                yield _mistake(path, rule.id, f"the id `{rule.id}` must begin with `{path.stem}.`, as its file does")
            if rule.tag and rule.tag not in declared:
                yield _mistake(path, rule.tag, f"the tag `{rule.tag}` of `{rule.id}` is described nowhere")
    yield from _restraining_nobody(files, {*ids, *declared, *(identity.partition(".")[0] for identity in ids)})
    used = {rule.tag for file in files.values() for rule in file.rules}
    for tag, path in declared.items():
        if tag not in used and path.name != "tags.yml":
            yield _mistake(path, tag, f"no rule carries the tag `{tag}`; tags that code adds are in tags.yml")


def _restraining_nobody(files: Mapping[Path, RuleFile], known: Collection[str]) -> Iterable[Mistake]:
    for path, file in files.items():
        for rule in file.rules:
            for name in rule.restrains:
                if name not in known:
                    yield _mistake(path, name, f"`{rule.id}` restrains `{name}`, which is no rule, tag or analyzer")


def _mistake(path: Path, text: str, problem: str) -> Mistake:
    """Place a mistake on the last line that has the text: the later of two is the one to change."""
    lines = path.read_text(encoding="utf-8").splitlines()
    line = max((number for number, content in enumerate(lines, 1) if text in content), default=1)
    return Mistake(str(path), line, "", problem)
