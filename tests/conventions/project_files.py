"""The project's own files, for the tests that look at them."""

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mailwarden"


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file that is, or is about to be, in the repository."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return tuple(sorted(path for line in set(done.stdout.splitlines()) if (path := ROOT / line).is_file()))


def python_files(*folders: str) -> list[Path]:
    return [file for file in tracked_files() if file.suffix == ".py" and file.relative_to(ROOT).parts[0] in folders]


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))
