"""Prints the structure of a checkout: files, imports, cycles, duplicated lines, functions, tests and docs.

Definitions:
  files                 Python files under src
  median, largest file  lines of a file, blank lines included
  imported by one       modules that exactly one other module of the package imports; `__init__` files do not count
  import cycles         groups of modules that import each other, directly or through others; imports inside functions
                        count, imports under TYPE_CHECKING do not
  imports upward        imports of a module of a higher package, or of another one on the same line, by the layers in
                        the .importlinter of the same tree
  duplicated lines      lines inside a run of 6 or more lines that occurs at least twice in src; blank lines, comments,
                        docstrings, imports and lines of brackets alone are left out, indentation is ignored
  longest function      lines from `def` to the end, docstring included
  lines of tests        Python files of tests, and of tests beside the workshop
  lines of workshop     Python files of the folders of tools at the root
  words of docs         of docs/**/*.md and the pages at the root; pages that `make docs` writes are counted apart
  casts, opt-outs       `cast(` in src, and `noqa` or `type: ignore` in its comments
"""

import argparse
import ast
import configparser
import hashlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import grimp
import msgspec

from workshop.measure.counts import LONG, Counts, count, functions, read_python

PACKAGE = "mailwarden"
WINDOW = 6


class Structure(msgspec.Struct, frozen=True):
    """The figures of one checkout."""

    files: int
    median_file: int
    largest_file: str
    imported_by_one: int
    import_cycles: int
    cycles: tuple[tuple[str, ...], ...]
    upward: tuple[str, ...]
    duplicated_lines: int
    longest_function: str
    counts: Counts


def main(words: Sequence[str] | None = None) -> int:
    """Print the figures of this checkout, of one commit, or of a commit and this checkout side by side."""
    parser = argparse.ArgumentParser(
        prog="python -m workshop.measure.structure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base", metavar="COMMIT", help="print this commit beside the checkout")
    parser.add_argument("--commit", metavar="COMMIT", help="measure this commit instead of the checkout")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout to measure (default: this one)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(words)
    now = of_commit(arguments.commit) if arguments.commit else measure(arguments.root)
    if arguments.json:
        print(msgspec.json.encode(now).decode())
        return 0
    columns = [("after" if arguments.base else "", now)]
    if arguments.base:
        columns.insert(0, ("before", of_commit(arguments.base)))
    print_table(columns)
    return 0


def print_table(columns: Sequence[tuple[str, Structure]]) -> None:
    """Print one row per figure, one column per tree, and name the modules of each cycle."""
    rows: list[tuple[str, Callable[[Structure], str]]] = [
        ("files", lambda tree: str(tree.files)),
        ("lines of src", lambda tree: str(tree.counts.src_lines)),
        ("lines of tests", lambda tree: str(tree.counts.test_lines)),
        ("lines of workshop", lambda tree: str(tree.counts.workshop_lines)),
        ("words of docs by hand", lambda tree: str(tree.counts.words_by_hand)),
        ("words of docs generated", lambda tree: str(tree.counts.words_generated)),
        ("median file", lambda tree: str(tree.median_file)),
        ("largest file", lambda tree: tree.largest_file),
        ("imported by one", lambda tree: str(tree.imported_by_one)),
        ("import cycles", lambda tree: str(tree.import_cycles)),
        ("imports upward", lambda tree: str(len(tree.upward))),
        ("duplicated lines", lambda tree: str(tree.duplicated_lines)),
        ("longest function", lambda tree: tree.longest_function),
        (f"functions over {LONG} lines", lambda tree: str(tree.counts.long_functions)),
        ("casts in src", lambda tree: str(tree.counts.casts)),
        ("opt-outs in src", lambda tree: str(tree.counts.opt_outs)),
    ]
    cells = [[name, *(read(tree) for _, tree in columns)] for name, read in rows]
    if len(columns) > 1:
        cells.insert(0, ["", *(title for title, _ in columns)])
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for cycle in columns[-1][1].cycles:
        print(f"cycle: {', '.join(cycle)}")
    for each in columns[-1][1].upward:
        print(f"upward: {each}")


def of_commit(commit: str) -> Structure:
    """Return the figures of a commit, measured in a new process on the files that git has for it."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        done = subprocess.run(
            [sys.executable, "-m", "workshop.measure.structure", "--json", "--root", folder],
            env={**os.environ, "PYTHONPATH": str(Path(folder) / "src")},
            check=True,
            stdout=subprocess.PIPE,
        )
        return msgspec.json.decode(done.stdout, type=Structure)


def measure(root: Path) -> Structure:
    """Return the figures of a checkout; its `src` must come first on the import path."""
    source = root / "src"
    texts = read_python(source / PACKAGE)
    lengths = {name: len(text.splitlines()) for name, text in texts.items()}
    largest = max(lengths, key=lambda name: lengths[name])
    trees = {name: ast.parse(text) for name, text in texts.items()}
    length, function = max(functions(trees))
    imports = import_graph()
    importers: dict[str, set[str]] = defaultdict(set)
    for importer, imported in imports.items():
        for module in imported:
            importers[module].add(importer)
    packages = {module for module in imports if (source / Path(*module.split(".")) / "__init__.py").exists()}
    cycles = cycles_of(imports)
    return Structure(
        files=len(texts),
        median_file=round(statistics.median(lengths.values())),
        largest_file=f"{lengths[largest]} {largest}",
        imported_by_one=sum(1 for module in imports if module not in packages and len(importers[module]) == 1),
        import_cycles=len(cycles),
        cycles=cycles,
        upward=tuple(upward_imports(imports, layers_of(root / ".importlinter"))),
        duplicated_lines=duplicated(texts, trees),
        longest_function=f"{length} {function}",
        counts=count(root),
    )


def import_graph() -> dict[str, set[str]]:
    """Return, for every module of the package, the modules that it imports."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def cycles_of(imports: dict[str, set[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the strongly connected groups of two or more modules."""
    reached = {module: _reachable(module, imports) for module in imports}
    groups = {
        tuple(sorted({module} | {other for other in reached[module] if module in reached[other]}))
        for module in imports
        if module in reached[module]
    }
    return tuple(sorted(group for group in groups if len(group) > 1))


def _reachable(start: str, imports: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(imports[start])
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting.extend(imports.get(module, ()))
    return seen


def layers_of(file: Path) -> dict[str, int]:
    """Return the line of each package in the contract of layers; the highest package is on line 0."""
    contracts = configparser.ConfigParser()
    contracts.read(file)
    for name in contracts.sections():
        if contracts.get(name, "type", fallback="") == "layers":
            lines = contracts.get(name, "layers").split("\n")
            rows = [re.findall(r"\w+", line) for line in lines if line.strip()]
            return {package: number for number, row in enumerate(rows) for package in row}
    return {}


def upward_imports(imports: Mapping[str, set[str]], layers: Mapping[str, int]) -> Iterator[str]:
    """Yield the imports of a module of a higher package, or of another package on the same line."""
    for importer in sorted(imports):
        for imported in sorted(imports[importer]):
            above, below = _package(imported), _package(importer)
            if above != below and above in layers and below in layers and layers[above] <= layers[below]:
                yield f"{importer} imports {imported}"


def _package(module: str) -> str:
    """Return the package below the root that a module belongs to, or ""."""
    return module.partition(".")[2].partition(".")[0]


def duplicated(texts: dict[str, str], trees: dict[str, ast.Module]) -> int:
    """Count the lines inside a run of WINDOW or more lines that occurs at least twice."""
    places: dict[bytes, list[tuple[str, int]]] = defaultdict(list)
    lines = {name: list(_compared(text, trees[name])) for name, text in texts.items()}
    for name, kept in lines.items():
        for start in range(len(kept) - WINDOW + 1):
            run = "\n".join(text for _, text in kept[start : start + WINDOW])
            places[hashlib.blake2b(run.encode(), digest_size=16).digest()].append((name, start))
    found: set[tuple[str, int]] = set()
    for at in places.values():
        if len(at) > 1:
            found.update((name, lines[name][start + step][0]) for name, start in at for step in range(WINDOW))
    return len(found)


def _compared(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the number and the stripped text of the lines that are compared."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom):
            continue
        if not isinstance(node, ast.Expr) or isinstance(node.value, ast.Constant):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if number not in left_out and stripped.strip("()[]{},:") and not stripped.startswith("#"):
            yield number, stripped


if __name__ == "__main__":
    raise SystemExit(main())
