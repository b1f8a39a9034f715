"""Docs: every link leads somewhere, every command parses, every make target and every path exists."""

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from mailwarden.cli.main import COMMANDS, build_parser
from tests.conventions.project_files import ROOT, tracked_files
from tests.tables import every

MADE_OF_RULES = "verdicts-and-tags.md"
PAGES = [file for file in tracked_files() if file.suffix == ".md" and file.relative_to(ROOT).parts[0] != "tests"]
# A decision names the files of its day.
CURRENT = [page for page in PAGES if "decisions" not in page.parts and page.name not in ("CHANGELOG.md", MADE_OF_RULES)]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
# Paths in docs start at the project's root, at the package, at the shipped configuration, or at the tests.
ROOTS = (ROOT, ROOT / "src" / "mailwarden", ROOT / "deploy" / "config", ROOT / "tests")
LABELS = {"result fields 1"}  # the label of a derived key
MEDIA_TYPES = {"message/rfc822", "message/feedback-report"}
TOPS = {path.name for root in ROOTS for path in root.iterdir() if path.is_dir() and path.name[0] not in "._"} - {
    "run",
    "dist",
}

_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# A command in a block begins a line, or a command substitution; words run to the end of the line, quotes included.
_COMMAND = re.compile(
    r"""(?:^|\$\()[ ]*(?:[\w./]*/)?mailwarden[ ](?P<words>[a-z]+(?:'[^']*'|"[^"]*"|[^\n'"])*)""", re.MULTILINE
)
# An argument in brackets may be left out.
_OPTIONAL = re.compile(r"\[[^\]\n.@]*\](?:\.\.\.)?")
ID = "00000000-0000-4000-8000-000000000000"
VALUES = {"UID": ID, "KEY": ID, "ID": ID, "$ACME": ID, "$TENANT": ID, "$UNTIL": "2030-01-31T12:00:00Z"}
_PATH = re.compile(r"(?:[\w.-]+/)+[\w.*{},-]*")
_PLACEHOLDER = re.compile(r"(?:^|/)(?:x|things|name)(?:[./_]|$)|…|\.\.\.")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Markdown renderers make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in plain} | {
        re.sub(r"-+", "-", title.strip().replace(" ", "-")) for title in plain
    }


def test_every_link_leads_somewhere() -> None:
    def check(page: Path) -> None:
        dead = []
        for target in _LINK.findall(prose(page)):
            path, _, anchor = target.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
                dead.append(target)
        assert dead == []

    every(PAGES, check, name_of)


@pytest.mark.slow
def test_every_command_in_a_block_parses() -> None:
    def check(page: Path) -> None:
        assert [f"{words}: {mistake}" for words in block_commands(page) if (mistake := mistake_in(words))] == []

    every(CURRENT, check, name_of)


def block_commands(page: Path) -> Iterator[str]:
    """Yield the words behind `mailwarden` of every command line in a page's blocks."""
    for language, block in _FENCED.findall(page.read_text("utf-8")):
        if language in ("", "sh"):
            for match in _COMMAND.finditer(block.replace("\\\n", " ")):
                yield match["words"]


@cache
def mistake_in(text: str) -> str:
    """Return what the command's own parser has against a command line, or nothing."""
    lexer = shlex.shlex(_OPTIONAL.sub("", text), posix=True, punctuation_chars="();<>|&")
    lexer.wordchars += "$[]{}:@,%"
    given = []
    for word in lexer:
        if word in ("|", ">", "<", ")", "&&", ";", "||"):
            break
        given.append(VALUES.get(word, word))
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            build_parser(given).parse_args(given)
        except SystemExit as end:
            return said.getvalue().splitlines()[-1] if end.code else ""
    return ""


@pytest.mark.slow
def test_every_command_in_a_sentence_exists() -> None:
    def check(page: Path) -> None:
        spans = [
            span.removeprefix("mailwarden ") for span in _SPAN.findall(prose(page)) if span.startswith("mailwarden ")
        ]
        spans = [span for span in spans if re.match("[a-z]", span) and span not in LABELS]
        assert [span for span in spans if not is_known(span)] == []

    every(CURRENT, check, name_of)


@cache
def is_known(command: str) -> bool:
    """Say whether a command, its subcommand and its options exist; arguments may be left out."""
    words = command.split()
    if words[0] not in COMMANDS:
        return False
    parser = subparsers(build_parser([words[0]]))[words[0]]
    rest = words[1:]
    while rest and (choices := subparsers(parser)) and rest[0] in choices:
        parser, rest = choices[rest[0]], rest[1:]
    if subparsers(parser) and rest and re.fullmatch("[a-z]+", rest[0]):
        return False
    options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    return options <= {*parser._option_string_actions}


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def test_every_make_target_exists() -> None:
    def check(page: Path) -> None:
        text = page.read_text("utf-8")
        places = [
            *_SPAN.findall(prose(page)),
            *(line for _, block in _FENCED.findall(text) for line in block.splitlines()),
        ]
        named = {match[1] for place in places if (match := re.match(r"\s*(?:\w+=\S+ )*make ([a-z0-9-]+)", place))}
        assert named - TARGETS == set()

    every(CURRENT, check, name_of)


def test_every_path_exists() -> None:
    def check(page: Path) -> None:
        named = {span.strip("/") for span in _SPAN.findall(prose(page)) if _PATH.fullmatch(span)}
        checked = {
            path
            for path in named
            if path.split("/")[0] in TOPS and path not in MEDIA_TYPES and not _PLACEHOLDER.search(path)
        }
        assert [path for path in sorted(checked) if not any(exists(root, path) for root in ROOTS)] == []

    every(CURRENT, check, name_of)


def exists(root: Path, path: str) -> bool:
    if match := re.search(r"\{(.+?)\}", path):
        return all(exists(root, path.replace(match[0], part.strip())) for part in match[1].split(","))
    return any(True for _ in root.glob(path))


def test_flows_of_the_architecture_name_modules_that_exist() -> None:
    blocks = "\n".join(block for _, block in _FENCED.findall((ROOT / "docs" / "architecture.md").read_text("utf-8")))
    named = re.findall(r"^ *(?:[a-z]+ +)?([a-z]+(?:/[a-z_]+)+)  ", blocks, re.MULTILINE)
    assert len(named) > 30, "the flows are read"
    package = ROOT / "src" / "mailwarden"
    assert [name for name in named if not (package / f"{name}.py").exists() and not (package / name).is_dir()] == []


def test_the_checks_find_what_is_wrong() -> None:
    assert mistake_in("scan") != ""
    assert mistake_in("scan a.eml --no-such-option") != ""
    assert mistake_in("scan a.eml") == ""
    assert not is_known("lists nonsense")
    assert not is_known("scan --no-such-option")
    assert is_known("lists check VALUE")
    assert not exists(ROOT, "src/nothing.py")
