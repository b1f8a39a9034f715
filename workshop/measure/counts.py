"""Counts of a whole checkout: lines of source, tests and workshop, words of docs, long functions, opt-outs."""

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

LONG = 60  # lines of a function
WORKSHOP = ("bench", "evaluate", "evasion", "measure", "rig", "simulate", "torture", "workshop")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
GENERATED = "<!-- Made from the code"  # the first words of a page that `make docs` writes
_CAST = re.compile(r"\bcast\(")
_OPT_OUT = re.compile(r"#\s*noqa\b|#\s*type:\s*ignore\b")


class Counts(msgspec.Struct, frozen=True):
    """The counts of one checkout."""

    src_lines: int
    test_lines: int
    workshop_lines: int
    words_by_hand: int
    words_generated: int
    long_functions: int
    casts: int
    opt_outs: int


def count(root: Path) -> Counts:
    source = read_python(root / "src")
    tests, workshop = read_python(root / "tests"), dict[str, str]()
    for folder in WORKSHOP:
        for path, text in read_python(root / folder).items():
            (tests if is_test(Path(path)) else workshop)[f"{folder}/{path}"] = text
    by_hand, generated = _words(root)
    trees = {path: ast.parse(text) for path, text in source.items()}
    return Counts(
        src_lines=_lines(source),
        test_lines=_lines(tests),
        workshop_lines=_lines(workshop),
        words_by_hand=by_hand,
        words_generated=generated,
        long_functions=sum(1 for length, _ in functions(trees) if length > LONG),
        casts=sum(len(_CAST.findall(text)) for text in source.values()),
        opt_outs=sum(len(_OPT_OUT.findall(text)) for text in source.values()),
    )


def read_python(folder: Path) -> dict[str, str]:
    """Return the text of the Python files below a folder, by their path in it; files that git ignores do not count."""
    ignored = _ignored(folder)
    files = (file for file in sorted(folder.rglob("*.py")) if file not in ignored)
    return {str(file.relative_to(folder)): file.read_text("utf-8") for file in files}


def _ignored(folder: Path) -> set[Path]:
    """Return the files that git ignores; none outside a checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", "."],
        cwd=folder if folder.is_dir() else ".",
        check=False,
        capture_output=True,
    )
    return {folder / name.decode() for name in listed.stdout.split(b"\0") if name}


def is_test(path: Path) -> bool:
    """Return whether a file of the workshop belongs to its tests."""
    return "tests" in path.parts[:-1] or path.name.startswith("test_") or path.name == "conftest.py"


def functions(trees: Mapping[str, ast.Module]) -> Iterator[tuple[int, str]]:
    """Yield the length and the place of every function."""
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{name}:{node.name}"


def _lines(texts: Mapping[str, str]) -> int:
    return sum(len(text.splitlines()) for text in texts.values())


def _words(root: Path) -> tuple[int, int]:
    """Return the words of the pages written by hand, and of those made from the code."""
    by_hand = generated = 0
    for page in (*sorted((root / "docs").rglob("*.md")), *(root / name for name in PAGES)):
        text = page.read_text("utf-8") if page.exists() else ""
        if text.startswith(GENERATED):
            generated += len(text.split())
        else:
            by_hand += len(text.split())
    return by_hand, generated
