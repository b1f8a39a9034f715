"""The operator's YARA rules: a folder of files, compiled, with every mistake in them.

Security: the rules are the operator's and are trusted to be meant well, not to be right: includes are off, files are
counted and bounded, and one that is wrong does not keep the others from speaking.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import yara_x

ENDINGS = (".yar", ".yara")
MAX_FILES = 1_000  # not inspection: more are reported as a mistake of the configuration
MAX_FILE = 4 * 1024 * 1024  # not inspection: as above
_MAX_PROBLEMS = 100  # not inspection: what the operator is shown


class Problem(Struct, frozen=True):
    """One mistake in a file of rules."""

    file: str
    line: int
    sentence: str


def rule_files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in folder.iterdir() if path.suffix in ENDINGS and path.is_file()))


def compile_rules(folder: Path) -> tuple["yara_x.Rules | None", tuple[Problem, ...]]:
    """Compile every file under a namespace of its own; return what compiles, and what does not."""
    import yara_x  # noqa: PLC0415 - dear to import, and most have no rules of their own

    try:
        files = rule_files(folder)
    except OSError as error:
        return None, (Problem(str(folder), 1, f"cannot be read: {error.strerror}"),)
    compiler = yara_x.Compiler(includes_enabled=False)
    problems = [Problem(str(folder), 1, f"holds more than {MAX_FILES:,} files")] if len(files) > MAX_FILES else []
    for path in files[:MAX_FILES]:  # not inspection: rules of the operator, reported above
        compiler.new_namespace(path.stem)
        problems += _add(compiler, path)
    return (compiler.build() if files else None), tuple(problems[:_MAX_PROBLEMS])  # shown: what the operator is told


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
    return ": ".join(filter(None, [str(error.get("title", "is wrong")), *details[:1]]))[
        :300
    ]  # shown: what the operator is told
