"""Every text of the console is marked for translation, and German is complete."""

import ast
import builtins
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from jinja2 import nodes
from jinja2.visitor import NodeVisitor

from mailwarden import errors
from mailwarden.console.language import FOLDER, Languages, problem_of, used_messages
from mailwarden.console.services import StatusView
from mailwarden.console.templating import TEMPLATE_FOLDER, Assets, Templates
from mailwarden.console.texts import SHOWN_WORDS
from mailwarden.errors import MailwardenError
from tests.tables import every
from workshop.rig.translations import (
    extract_texts,
    missing_texts,
    read_catalogue,
    sentences_of_errors,
    updated,
    written,
)

CONSOLE = FOLDER.parent
TEMPLATES = sorted(TEMPLATE_FOLDER.rglob("*.html"))
MODULES = sorted(CONSOLE.rglob("*.py"))
TRANSLATORS = frozenset(["_", "N_", "gettext", "ngettext", "pgettext", "npgettext", "counted"])
ATTRIBUTES = frozenset(["title", "aria-label", "placeholder", "alt", "data-label", "data-confirm"])
# Names, units, and words of protocols and interfaces, which no language changes.
SAME_EVERYWHERE = {
    *("Mailwarden", "UTC", "ggrid", "tenantUid", "SHA-256", "Message-ID", "Reply-To", "ms", "s"),
    *("Esc", "Enter", "x", "j", "k"),
    *("mailwarden lists import FILE", "nordlicht invoice -verdict:clean", "alice action:lists sender-block"),
}
# Literals in expressions of templates that no user reads, or that are examples.
UNSEEN = frozenset(["tenantUid ", "soar", "evil.example, 192.0.2.7, https://…"])
# Sentences of modules that no page shows: documents, exports for programs, messages that are sent.
UNSHOWN = frozenset(["permissions.py", "samples.py", "message_export.py", "language.py", "templating.py"])
_JINJA = re.compile(r"\{#.*?#\}|\{%-? *trans\b.*?endtrans *-?%\}|\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
_LITERAL = re.compile(r"[A-Z]?[a-z'’(].* .*|[A-Z][a-z]{2,}", re.DOTALL)
_SENTENCE = re.compile(r"[A-Z][^/]* .*[.?…]", re.DOTALL)


def has_letters(text: str) -> bool:
    return bool(re.search(r"[A-Za-z]{2}|\b[a-z]\b", text))


class Texts(HTMLParser):
    """Collects the visible texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "code")
        self.found += [value for name, value in attrs if name in ATTRIBUTES and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "code")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.found.append(data)


def unmarked_in_page(source: str) -> list[str]:
    """Return the texts of a template that are not inside a translation."""
    page = Texts()
    page.feed(_JINJA.sub("", source))
    texts = [" ".join(text.split()).strip("·:,. ") for text in page.found]
    return [text for text in texts if has_letters(text) and text not in SAME_EVERYWHERE]


class Literals(NodeVisitor):
    """Collects the literals of expressions that look like a text, and calls that translate something else."""

    def __init__(self) -> None:
        self.unmarked: list[str] = []
        self.dynamic: list[int] = []

    def visit_Call(self, node: nodes.Call) -> None:  # noqa: N802 -- the visitor's name for a kind of node
        if isinstance(node.node, nodes.Name) and node.node.name in TRANSLATORS:
            texts = node.args[1:] if node.node.name == "counted" else node.args[:1]
            self.dynamic += [node.lineno for each in texts if not isinstance(each, nodes.Const)]
            for each in node.kwargs:
                self.visit(each)
        else:
            self.generic_visit(node)

    def visit_Const(self, node: nodes.Const) -> None:  # noqa: N802
        text = node.value
        if (
            isinstance(text, str)
            and re.fullmatch(r"[A-Z]?[a-z'’(].* .*|[A-Z][a-z]{2,}", text)
            and text not in UNSEEN | SHOWN_WORDS
        ):
            self.unmarked.append(text)


@pytest.fixture(scope="module")
def templates() -> Templates:
    return Templates(Assets(), lambda: StatusView("GREEN"), Languages())


def test_every_text_of_a_template_is_marked(templates: Templates) -> None:
    def check(path: Path) -> None:
        source = path.read_text("utf-8")
        assert unmarked_in_page(source) == []
        literals = Literals()
        literals.visit(templates.parse(source))
        assert literals.unmarked == []
        assert literals.dynamic == [], "a translation is inserted without escaping, so its text must be a literal"

    every(TEMPLATES, check, lambda path: str(path.relative_to(TEMPLATE_FOLDER)))


def test_an_unmarked_text_is_found() -> None:
    page = '<p title="A title">{{ _("Marked") }} {% trans %}Marked{% endtrans %} not marked</p>'
    assert unmarked_in_page(page) == ["A title", "not marked"]


def test_every_sentence_of_a_module_is_marked() -> None:
    def check(path: Path) -> None:
        if path.name not in UNSHOWN:
            assert list(unmarked_in_module(path.read_text("utf-8"))) == []

    every(MODULES, check, lambda path: str(path.relative_to(CONSOLE)))


def unmarked_in_module(source: str) -> Iterator[str]:
    """Yield the sentences of a module that are neither marked nor the message of an error."""
    tree = ast.parse(source)
    known = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (is_translator(node.func) or is_error(node.func)):
            known |= {id(part) for each in node.args for part in ast.walk(each)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in known and _SENTENCE.fullmatch(text):
            yield text


def test_an_unmarked_sentence_is_found() -> None:
    source = 'a = "This is shown."\nb = _("This is marked.")\nraise NotFound("This is an error.")\n'
    assert list(unmarked_in_module(source)) == ["This is shown."]


def is_translator(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in TRANSLATORS


def is_error(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else ""
    known = getattr(errors, name, None) or getattr(builtins, name, None)
    return isinstance(known, type) and issubclass(known, MailwardenError | ConnectionError)


@pytest.fixture(scope="module")
def source_texts() -> Catalog:
    return extract_texts()


@pytest.mark.slow
def test_german_is_complete(source_texts: Catalog) -> None:
    template, path = source_texts, FOLDER / "de.po"
    assert missing_texts(updated(path, template)) == []
    assert [problem for message in read_catalogue(path) if message.id and (problem := problem_of(message))] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.po")), ids=lambda path: path.name)
def test_the_files_have_the_texts_of_the_source_and_no_others(path: Path, source_texts: Catalog) -> None:
    assert path.read_bytes() == written(updated(path, source_texts)), "run `make translations`"


def test_no_translation_is_fuzzy() -> None:
    catalogue = read_catalogue(FOLDER / "de.po")
    assert len([message for message in catalogue if message.id]) == len(list(used_messages(catalogue)))


def test_the_sentence_of_an_error_has_numbered_places() -> None:
    source = 'raise NotFound(f"There is no list `{name}` in {scope}.")'
    assert list(sentences_of_errors(source)) == ["There is no list `{1}` in {2}."]
