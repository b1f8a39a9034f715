"""Counts names that say nothing of their value (`found`, `each`, ...) where the source binds them, by package.

Example: python -m workshop.measure.identifiers --show scan
"""

import argparse
import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/mailwarden")
LEFT = Path(__file__).with_suffix(".toml")
NAMELESS = frozenset({"found", "each", "given", "wanted", "known", "seen", "rest", "torn", "oddity", "put_aside"})
HEAD = """\
# Names of values that say nothing, as they are left in each package. The numbers only fall; a package that is not here
# has none. `python -m workshop.measure.identifiers` writes the table again, `--show scan` prints the places in `scan`.
"""


def main() -> None:
    """Write the table, or print the places of one package."""
    parser = argparse.ArgumentParser(prog="python -m workshop.measure.identifiers", description=__doc__)
    parser.add_argument("--show", metavar="PACKAGE", help="print the places in this package instead")
    arguments = parser.parse_args()
    if arguments.show:
        for place, name in bindings(Path()):
            if package_of(place) == arguments.show:
                print(f"{place}: {name}")
        return
    counts = count(Path())
    LEFT.write_text(HEAD + "".join(f"{package} = {number}\n" for package, number in sorted(counts.items())))
    print(f"identifiers {sum(counts.values())} left in {len(counts)} packages")


def count(root: Path) -> dict[str, int]:
    """Return how many such names each package binds."""
    return dict(Counter(package_of(place) for place, _ in bindings(root)))


def allowed() -> dict[str, int]:
    """Return how many may be left in each package."""
    return {package: int(number) for package, number in tomllib.loads(LEFT.read_text("utf-8")).items()}


def package_of(place: str) -> str:
    return re.split("[/.]", place, maxsplit=1)[0]


def bindings(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the name of every variable, parameter and field with such a name."""
    for file in sorted((root / SOURCE).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = ""
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            if name.strip("_") in NAMELESS:
                yield f"{file.relative_to(root / SOURCE)}:{getattr(node, 'lineno', 0)}", name


if __name__ == "__main__":
    main()
