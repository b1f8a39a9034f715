"""What the operator's own YARA rules match: every decoded part, and the files inside of archives.

Security: scans hostile bytes inside a killable worker; contents, matches and time are bounded, and a scan that does
not end in time is a failure of this analyzer, never a message without findings.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mailwarden.analysis.view import View
from mailwarden.analysis.yara_rules import Problem, compile_rules
from mailwarden.message.limits import SHOWN
from mailwarden.message.message import Part
from mailwarden.model.evidence import Fact, Finding

if TYPE_CHECKING:
    import yara_x

SCAN_SECONDS = 1  # for one content; the deadline of the worker stands behind it
MESSAGE_SECONDS = 3.0
_META_TOLD = ("description", "author", "reference", "severity", "verdict")
# What a rule may say in its meta `verdict`; each has a finding of its own, because weights are policy.
VERDICTS = frozenset({"malware", "phishing", "fraud", "spam"})
_MILD = frozenset({"info", "low", "medium"})


class YaraAnalyzer:
    """Matches nothing until rules are loaded; a worker loads them before its first message."""

    name: ClassVar[str] = "yara"

    def __init__(self) -> None:
        self._scanner: yara_x.Scanner | None = None

    def load(self, folder: Path) -> tuple[Problem, ...]:
        """Compile the rules of a folder; return what is wrong with them."""
        rules, problems = compile_rules(folder)
        self._scanner = _scanner(rules) if rules is not None else None
        return problems

    def unload(self) -> None:
        self._scanner = None

    def examine(self, view: View) -> Iterator[Finding]:
        if self._scanner is None:
            return
        deadline = time.monotonic() + MESSAGE_SECONDS
        seen: set[tuple[str, str]] = set()
        for name, part, content in _contents(view):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the rules took longer than {MESSAGE_SECONDS:g} s")
            for rule in self._scanner.scan(content).matching_rules:
                key = (rule.namespace, rule.identifier)
                if key in seen:
                    continue
                if len(seen) >= view.limits.yara_matches:
                    view.coverage.beyond("yara_matches", part.place)
                    return
                seen.add(key)
                yield from _findings(rule, name, part)


def _scanner(rules: "yara_x.Rules") -> "yara_x.Scanner":
    import yara_x  # noqa: PLC0415 - dear to import, and most have no rules of their own

    scanner = yara_x.Scanner(rules)
    scanner.set_timeout(SCAN_SECONDS)
    return scanner


def _contents(view: View) -> Iterator[tuple[str, Part, bytes]]:
    for part in view.message.parts:
        yield part.name, part, part.content
    for file in view.opened_files:
        if file.inside:
            yield file.name, file.part, file.content


def _findings(rule: "yara_x.Rule", name: str, part: Part) -> Iterator[Finding]:
    """Tell the match, and once more under the verdict for which the rule argues."""
    meta = {str(key): str(value) for key, value in rule.metadata}
    facts: dict[str, Fact] = {"rule": rule.identifier[: SHOWN.fact], "namespace": rule.namespace[: SHOWN.fact]}
    facts |= {key: meta[key][: SHOWN.fact] for key in _META_TOLD if meta.get(key)}
    facts |= {"name": name[: SHOWN.fact] or "without a name", "path": part.path}
    yield Finding("yara.match", part.place, facts)
    verdict = meta.get("verdict", "").lower()
    if verdict in VERDICTS and meta.get("severity", "").lower() not in _MILD:
        yield Finding(f"yara.{verdict}", part.place, facts)
