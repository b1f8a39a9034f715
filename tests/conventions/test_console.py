"""The console's templates: every value is escaped, nothing is inline, and no database is asked."""

import re
from pathlib import Path

import pytest

from tests.conventions.project_files import ROOT, name_of

CONSOLE = ROOT / "src" / "mailwarden" / "console"
# Its address is the secret, and no cookie is asked for that another site could make use of.
WITHOUT_SESSION = {"self_service.html"}
TEMPLATES = sorted((CONSOLE / "templates").rglob("*.html"))
# The policy stops what each of these would let a hostile message do as well; neither is enough alone.
FORBIDDEN = {
    "marks a value as safe": re.compile(r"\|\s*safe|Markup\(|autoescape"),
    "has a style of its own": re.compile(r"\sstyle\s*=|<style", re.IGNORECASE),
    "has a script of its own": re.compile(r"<script(?![^>]*\ssrc=)", re.IGNORECASE),
    "reacts to events by itself": re.compile(r"\son[a-z]+\s*=|hx-on|javascript:", re.IGNORECASE),
    "evaluates": re.compile(r"hx-(vals|headers|vars)\s*=\s*['\"]\s*js:|hx-trigger\s*=\s*['\"][^'\"]*\[", re.IGNORECASE),
    "leads to another server": re.compile(r"(src|href|action)\s*=\s*['\"](https?:)?//", re.IGNORECASE),
    "has an attribute without quotes": re.compile(r"\s[\w:-]+=\{\{"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_template(what: str) -> None:
    assert TEMPLATES
    assert [name_of(file) for file in TEMPLATES if FORBIDDEN[what].search(_markup(file))] == []


def test_every_table_that_scrolls_can_be_scrolled_by_keyboard() -> None:
    bare = re.compile(r'class="table-responsive[^"]*"(?![^>]*tabindex)')
    assert [name_of(file) for file in TEMPLATES if bare.search(_markup(file))] == []


def test_the_console_writes_no_sql() -> None:
    statement = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b .*\b(FROM|SET|VALUES|WHERE)\b")
    assert [name_of(file) for file in CONSOLE.rglob("*.py") if statement.search(file.read_text("utf-8"))] == []


def test_every_form_that_changes_something_carries_its_token() -> None:
    form = re.compile(r"<form\b[^>]*method=[\"']post[\"'].*?</form>", re.IGNORECASE | re.DOTALL)
    bare = [
        name_of(file)
        for file in TEMPLATES
        for found in form.findall(file.read_text("utf-8"))
        if "csrf" not in found and file.name not in WITHOUT_SESSION
    ]
    assert bare == []


def _markup(file: Path) -> str:
    """Return a template without its comments."""
    return re.sub(r"\{#.*?#\}", "", file.read_text("utf-8"), flags=re.DOTALL)
