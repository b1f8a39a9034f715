"""The manual pages and the completion have every command, action and option of the program's own help."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mailwarden.cli.main import COMMANDS
from mailwarden.cli.manual import bash_completion, manual_pages


def test_every_command_has_a_page() -> None:
    assert set(manual_pages()) == {"mailwarden.1", *(f"mailwarden-{name}.1" for name in COMMANDS)}


def test_a_page_explains_options_and_actions() -> None:
    page = manual_pages()["mailwarden-lists.1"]
    assert '.SS "import"' in page
    assert "\\-\\-dry\\-run" in page
    assert ".SH EXAMPLES" in page
    assert "%(default)s" not in "".join(manual_pages().values())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_pages_are_valid_roff() -> None:
    for name, text in manual_pages().items():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-k"], input=text, check=True, capture_output=True, text=True
        )
        problems = [
            line for line in done.stderr.splitlines() if "cannot adjust" not in line and "can't break" not in line
        ]
        assert not problems, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mailwarden", "ser"], ["serve"]),
        (["mailwarden", "lists", "imp"], ["import"]),
        (["mailwarden", "lists", "import", "--dry"], ["--dry-run"]),
        (["mailwarden", "serve", "g"], ["guard"]),
    ],
)
def test_bash_completes(words: list[str], expected: list[str], tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(bash_completion())
    typed = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
    call = f'source {script}; {typed}; _mailwarden; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", call], check=True, capture_output=True, text=True)
    assert done.stdout.split() == expected
