"""The operator's own YARA rules: their folder, and every error in them."""

from pathlib import Path

from mailwarden.analysis.analyzers.yara import compile_rules, rule_files
from mailwarden.guard.config import GuardConfig
from mailwarden.settings.reader import Mistake, Mistakes


def rules_folder(config: GuardConfig, folder: Path) -> str:
    """Return the folder of rules, or "" if none is configured."""
    return str(folder / config.yara.rules) if config.yara.rules else ""


def rule_mistakes(config: GuardConfig, folder: Path) -> list[Mistake]:
    """Return every error in the rules; an empty folder is an error."""
    if not config.yara.rules:
        return []
    rules = folder / config.yara.rules
    _, problems = compile_rules(rules)
    if not problems and not rule_files(rules):
        return [Mistake(str(rules), 1, "", "holds no rules: put *.yar files there, or leave yara.rules out")]
    return [Mistake(problem.file, problem.line, "", problem.sentence) for problem in problems]


def check_rules(config: GuardConfig, folder: Path) -> None:
    """Raise if the rules have errors: guard does not start without rules that the operator relies on."""
    if mistakes := rule_mistakes(config, folder):
        raise Mistakes(mistakes)
