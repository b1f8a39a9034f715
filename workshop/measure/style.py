"""Finds wording that docs, messages, CLI help and comments should not use; the table is `style.toml`."""

import argparse
import ast
import fnmatch
import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from mailwarden.cli.main import COMMANDS, build_parser

TABLE = Path(__file__).with_name("style.toml")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md", "docs/extend/*.md")
CODE = ("src/**/*.py", "workshop/*/*.py")
# Tags of Jinja and markup of a page are not text.
_MARKUP = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<(?:script|style)\b.*?</(?:script|style)>|<[^>]*>", re.DOTALL)
_CODE_SPAN = re.compile(r"``.+?``|`[^`\n]+`|\]\([^)\s]+\)|<!--.*?-->")
_COMMENT = re.compile(r"(?:^\s*|  )# (?P<text>.*)$")
_RULER = re.compile(r"\|\s*:?--")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_RULE_TEXT = re.compile(
    r"\s*(?:- )?(?:#|(?:name|description|summary|falsePositives|[a-z-]+\.[a-z.-]+):)\s+\"?(?P<text>.+)"
)
_NAME_LIKE = re.compile(r"[\w./:@%{}*+-]*")


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table: a pattern, a sentence that matches it, and better wording."""

    pattern: str
    example: str
    better: str
    sentence: bool = False


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table of words, and the scopes without findings."""

    enforced: tuple[str, ...]
    words: tuple[Word, ...]


class Text(msgspec.Struct, frozen=True):
    """One piece of text with its place."""

    kind: str
    path: str
    line: int
    text: str
    is_heading: bool = False


class Finding(msgspec.Struct, frozen=True):
    """A piece of text that matches one row of the table."""

    text: Text
    matched: str
    better: str

    def __str__(self) -> str:
        return f"{self.text.path}:{self.text.line}: {self.matched} -> {self.better}"


def main(words: Sequence[str] | None = None) -> int:
    """Print every finding and the number of findings; the exit code is 1 if an enforced scope has one."""
    parser = argparse.ArgumentParser(prog="python -m workshop.measure.style", description=__doc__)
    parser.add_argument("--kind", action="append", help="only this kind of text; repeatable")
    parser.add_argument("--path", default="*", metavar="GLOB", help="only paths that match, for example docs/*")
    parser.add_argument("--count", action="store_true", help="print the number of findings per kind and file")
    arguments = parser.parse_args(words)
    table = load_table()
    found = [
        finding
        for finding in findings(table, Path())
        if fnmatch.fnmatch(finding.text.path, arguments.path)
        and (not arguments.kind or finding.text.kind in arguments.kind)
    ]
    if arguments.count:
        for (kind, path), number in sorted(Counter((item.text.kind, item.text.path) for item in found).items()):
            print(f"{number:5} {kind} {path}")
    else:
        for finding in found:
            print(f"{finding.text.kind} {finding}")
    kinds = Counter(finding.text.kind for finding in found)
    print(", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items())) or "no findings")
    print(f"style {len(found)} findings")
    return 1 if enforced(table, found) else 0


def load_table() -> Table:
    return msgspec.convert(tomllib.loads(TABLE.read_text("utf-8")), Table)


def enforced(table: Table, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings inside an enforced scope."""
    return [finding for finding in found if any(is_in(scope, finding.text) for scope in table.enforced)]


def is_in(scope: str, text: Text) -> bool:
    kind, _, path = scope.partition(" ")
    return kind in ("*", text.kind) and fnmatch.fnmatch(text.path, path)


def findings(table: Table, root: Path) -> list[Finding]:
    """Return every finding in the project's texts, in the order of the texts."""
    return [finding for text in texts(root) for finding in findings_in(table, text)]


def findings_in(table: Table, text: Text) -> Iterator[Finding]:
    """Yield one finding for every match in one piece of text."""
    for word, pattern in _patterns(table):
        if word.sentence and text.is_heading:
            continue
        for match in pattern.finditer(text.text):
            if word.sentence and text.text[match.end() : match.end() + 1] == "?":
                continue
            yield Finding(text, " ".join(match.group().split())[:80], word.better)


@functools.cache
def _patterns(table: Table) -> tuple[tuple[Word, re.Pattern[str]], ...]:
    return tuple((word, re.compile(word.pattern, 0 if word.sentence else re.IGNORECASE)) for word in table.words)


def texts(root: Path) -> Iterator[Text]:
    """Yield every text that readers of the product or of its source see."""
    for pattern in DOCUMENTS:
        for file in sorted(root.glob(pattern)):
            yield from markdown("docs", root, file)
    for file in sorted(root.glob("docs/decisions/*.md")):
        yield from markdown("decisions", root, file)
    yield from help_texts()
    for pattern in CODE:
        for file in sorted(root.glob(pattern)):
            yield from python(root, file)
    for file in sorted(root.glob("src/**/templates/**/*")):
        if file.is_file() and file.suffix in (".html", ".txt", ".jinja", ".j2", ".yml"):
            yield from template(root, file)
    for file in [*sorted(root.glob("src/**/rules/*.yml")), *sorted(root.glob("src/**/policy/*.yml"))]:
        yield from rules(root, file)


def rules(root: Path, file: Path) -> Iterator[Text]:
    """Yield the sentences, tags and comments of a rule file, without the phrases that its rules look for."""
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if match := _RULE_TEXT.match(line):
            yield Text("rules", _name(root, file), number, match["text"])


def markdown(kind: str, root: Path, file: Path) -> Iterator[Text]:
    """Yield the lines of a page without its code blocks, code spans and link targets."""
    fenced = False
    lines = file.read_text("utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            is_heading = line.startswith("#") or _RULER.match("".join(lines[number : number + 1])) is not None
            plain = _CODE_SPAN.sub("X", line).replace("**", "").lstrip("-*|> ")
            for cell in plain.split(" | "):
                yield Text(kind, _name(root, file), number, cell.strip(), is_heading)


def help_texts() -> Iterator[Text]:
    """Yield the rendered help of the command and of every subcommand."""
    yield from _help_of("mailwarden", build_parser([]))
    for name in COMMANDS:
        for action in build_parser([name])._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from _helps(f"mailwarden {name}", action.choices[name])


def _helps(command: str, parser: argparse.ArgumentParser) -> Iterator[Text]:
    yield from _help_of(command, parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                yield from _helps(f"{command} {name}", subparser)


def _help_of(command: str, parser: argparse.ArgumentParser) -> Iterator[Text]:
    for number, line in enumerate(parser.format_help().splitlines(), 1):
        yield Text("help", f"help/{command}", number, line.strip())


def python(root: Path, file: Path) -> Iterator[Text]:
    """Yield the docstrings, the strings with text, and the comments of a file."""
    source = file.read_text("utf-8")
    name = _name(root, file)
    tree = ast.parse(source)
    documents = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    strings = "errors" if file.name == "errors.py" else "strings"
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _NAME_LIKE.fullmatch(node.value):
            kind = "docstrings" if id(node) in documents else strings
            for step, line in enumerate(_CODE_SPAN.sub("X", node.value).splitlines()):
                yield Text(kind, name, node.lineno + step, line.strip())
    for number, line in enumerate(source.splitlines(), 1):
        if match := _COMMENT.search(line):
            yield Text("comments", name, number, _CODE_SPAN.sub("X", match["text"]))


def template(root: Path, file: Path) -> Iterator[Text]:
    """Yield the lines of a template without its tags."""
    plain = _MARKUP.sub(lambda match: " " + "\n" * match.group().count("\n"), file.read_text("utf-8"))
    for number, line in enumerate(plain.splitlines(), 1):
        yield Text("templates", _name(root, file), number, line.strip())


def _name(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix()


if __name__ == "__main__":
    raise SystemExit(main())
