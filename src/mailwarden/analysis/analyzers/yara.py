"""Matches the operator's own YARA rules against every decoded part and the files inside archives.

Security: scans hostile bytes inside a killable worker; contents, matches and time are bounded. A scan that does not end
in time is a failure of this analyzer, never a message without findings. The rules are trusted to be well meant, not to
be correct: includes are off, files are counted and bounded, and a broken file does not disable the others.
"""

import mmap
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.message.message import Part
from mailwarden.model.evidence import Fact, Finding

if TYPE_CHECKING:
    import yara_x

ENDINGS = (".yar", ".yara")
MAX_FILES = 1_000  # not inspection: more are reported as a mistake of the configuration
MAX_FILE = 4 * 1024 * 1024  # not inspection: as above
_MAX_PROBLEMS = 100  # not inspection: problems shown to the operator

SCAN_SECONDS = 1  # for one content; the worker has its own deadline
MESSAGE_SECONDS = 3.0
_META_TOLD = ("description", "author", "reference", "severity", "verdict")
# The values of the meta key `verdict` of a rule; each has a finding of its own, because weights are policy.
VERDICTS = frozenset({"malware", "phishing", "fraud", "spam"})
_MILD = frozenset({"info", "low", "medium"})


class Problem(Struct, frozen=True):
    """One mistake in a file of rules."""

    file: str
    line: int
    sentence: str


def rule_files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in folder.iterdir() if path.suffix in ENDINGS and path.is_file()))


def may_compile() -> bool:
    """Return whether this process may execute memory that it has written: yara-x compiles rules to machine code."""
    try:
        mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    except OSError:
        return False
    return True


def compile_rules(folder: Path) -> tuple["yara_x.Rules | None", tuple[Problem, ...]]:
    """Compile every file under a namespace of its own; return the compiled rules and the problems."""
    import yara_x  # noqa: PLC0415 - slow to import, and most have no rules of their own

    try:
        files = rule_files(folder)
    except OSError as error:
        return None, (Problem(str(folder), 1, f"cannot be read: {error.strerror}"),)
    compiler = yara_x.Compiler(includes_enabled=False)
    problems = [Problem(str(folder), 1, f"holds more than {MAX_FILES:,} files")] if len(files) > MAX_FILES else []
    for path in files[:MAX_FILES]:  # not inspection: rules of the operator, reported above
        compiler.new_namespace(path.stem)
        problems += _add(compiler, path)
    return (compiler.build() if files else None), tuple(problems[:_MAX_PROBLEMS])  # shown: to the operator


def _add(compiler: "yara_x.Compiler", path: Path) -> Iterator[Problem]:
    import yara_x  # noqa: PLC0415 - as above

    before = len(compiler.errors())
    try:
        if path.stat().st_size > MAX_FILE:
            yield Problem(str(path), 1, f"is larger than {MAX_FILE:,} bytes")
            return
        compiler.add_source(path.read_text("utf-8"), origin=path.name)
    except (OSError, UnicodeDecodeError) as error:
        yield Problem(str(path), 1, f"cannot be read: {error}")
    except yara_x.CompileError:
        for mistake in islice(compiler.errors(), before, None):
            yield Problem(str(path), int(mistake.get("line") or 1), _sentence(mistake))


def _sentence(error: dict[str, object]) -> str:
    labels = error.get("labels")
    details = (
        [str(label.get("text", "")) for label in labels if isinstance(label, dict)] if isinstance(labels, list) else []
    )
    return ": ".join(filter(None, [str(error.get("title", "is wrong")), *details[:1]]))[:300]  # shown: to the operator


class YaraAnalyzer:
    """Matches nothing until rules are loaded; a worker loads them before its first message."""

    name: ClassVar[str] = "yara"

    def __init__(self) -> None:
        self._scanner: yara_x.Scanner | None = None

    def load(self, folder: Path) -> tuple[Problem, ...]:
        """Compile the rules of a folder; return the problems."""
        rules, problems = compile_rules(folder)
        self._scanner = _scanner(rules) if rules is not None else None
        return problems

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
    import yara_x  # noqa: PLC0415 - slow to import, and most have no rules of their own

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
    """Yield the match, and a second finding under the verdict that the rule names."""
    meta = {str(key): str(value) for key, value in rule.metadata}
    facts: dict[str, Fact] = {"rule": rule.identifier[: SHOWN.fact], "namespace": rule.namespace[: SHOWN.fact]}
    facts |= {key: meta[key][: SHOWN.fact] for key in _META_TOLD if meta.get(key)}
    facts |= {"name": name[: SHOWN.fact] or "without a name", "path": part.path}
    yield Finding("yara.match", part.place, facts)
    verdict = meta.get("verdict", "").lower()
    if verdict in VERDICTS and meta.get("severity", "").lower() not in _MILD:
        yield Finding(f"yara.{verdict}", part.place, facts)
