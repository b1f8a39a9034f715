"""Writes the manual pages and the bash completion from the command's own help: for the Debian package."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mailwarden import __version__
from mailwarden.cli.main import COMMANDS, build_parser

NAME = "mailwarden"
SECTION = 1


class Page(Struct, frozen=True):
    """A command or an action of a command, as `--help` explains it."""

    words: tuple[str, ...]  # mailwarden, the command, the action
    text: str
    parser: argparse.ArgumentParser

    @property
    def title(self) -> str:
        return "-".join(self.words)

    @property
    def actions(self) -> "list[Page]":
        """Return the actions below this command, without aliases."""
        found = _choices(self.parser)
        if found is None:
            return []
        texts = {action.dest: action.help or "" for action in found._choices_actions}  # noqa: SLF001 - has no public name
        return [Page((*self.words, name), text, found.choices[name]) for name, text in texts.items()]


def commands() -> list[Page]:
    """Return every command."""
    pages = []
    for name, text in COMMANDS.items():
        found = _choices(build_parser([name]))
        assert found is not None
        pages.append(Page((NAME, name), text, found.choices[name]))
    return pages


def manual_pages() -> dict[str, str]:
    """Return every manual page by its file name: one of the program, one of each command."""
    found = {f"{NAME}.{SECTION}": _program_page()}
    return found | {f"{page.title}.{SECTION}": _command_page(page) for page in commands()}


def bash_completion() -> str:
    """Return a completion of commands, actions and options; everything else is a file."""
    pages = commands()
    actions = _cases([action for page in pages for action in page.actions])
    return (
        f"# bash completion of {NAME}, made from its help\n"
        f"_{NAME}() {{\n"
        '    local word="${COMP_WORDS[COMP_CWORD]}" words=""\n'
        f'    [ "$COMP_CWORD" = 1 ] && words="{" ".join((*COMMANDS, "--help", "--version"))}"\n'
        f'    [ "$COMP_CWORD" -gt 2 ] && case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in\n{actions}    esac\n'
        f'    [ "$COMP_CWORD" -gt 1 ] && [ -z "$words" ] && case "${{COMP_WORDS[1]}}" in\n{_cases(pages)}    esac\n'
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))\n'
        "}\n"
        f"complete -o default -F _{NAME} {NAME}\n"
    )


def _cases(pages: list[Page]) -> str:
    cases = [f'    "{" ".join(page.words[1:])}") words="{" ".join(_completions(page.parser))}" ;;\n' for page in pages]
    return "".join(cases)


def _choices(parser: argparse.ArgumentParser) -> "argparse._SubParsersAction[argparse.ArgumentParser] | None":
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001 - has no public name
    return next(found, None)


def _program_page() -> str:
    parser = build_parser([])
    lines = [*_head(NAME, "self-hosted email security"), ".SH SYNOPSIS", f".B {NAME}", ".I COMMAND", "[OPTION...]"]
    lines += [".SH DESCRIPTION", _escaped(parser.description or ""), ".SH COMMANDS"]
    for name, text in COMMANDS.items():
        lines += [".TP", f".BR {NAME}\\-{_escaped(name)} ({SECTION})", _escaped(text)]
    lines += [
        *(".SH FILES", ".TP", ".I /etc/mailwarden", "Configuration, certificates and secrets."),
        *(".TP", ".I /var/lib/mailwarden", "Copy of the lists, quarantine."),
        *(".TP", ".I /var/spool/mailwarden", "Messages in processing."),
        *(".SH EXIT STATUS", "0: success. 1: a check failed. 2: the command cannot run; standard error says why."),
    ]
    return "\n".join(lines) + "\n"


def _command_page(page: Page) -> str:
    lines = [*_head(page.title, page.text), ".SH SYNOPSIS", *_usage(page), ".SH DESCRIPTION", _escaped(page.text)]
    if options := list(_options(page.parser)):
        lines += [".SH OPTIONS", *options]
    if page.actions:
        lines += [".SH ACTIONS"]
    for action in page.actions:
        lines += [f'.SS "{_escaped(action.words[-1])}"', f"{_escaped(action.text[:1].upper() + action.text[1:])}."]
        lines += ["", *_usage(action), *_options(action.parser), *_example(action.parser)]
    if example := list(_example(page.parser)):
        lines += [".SH EXAMPLES", *example]
    lines += [".SH SEE ALSO", f".BR {NAME} ({SECTION})"]
    return "\n".join(lines) + "\n"


def _head(title: str, text: str) -> list[str]:
    summary = text[:1].lower() + text[1:].rstrip(".")
    return [
        f'.TH {_escaped(title.upper())} {SECTION} "" "Mailwarden {__version__}" "Mailwarden"',
        *(".SH NAME", f"{_escaped(title)} \\- {_escaped(summary)}"),
    ]


def _usage(page: Page) -> list[str]:
    given = page.parser.format_usage().partition(page.parser.prog)[2].split()
    return [f".B {_escaped(' '.join(page.words))}", _escaped(" ".join(given))]


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the arguments and options with their explanation, as argparse expands it."""
    formatter = parser.formatter_class(prog=parser.prog)
    for action in parser._actions:  # noqa: SLF001 - has no public name
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):  # noqa: SLF001 - as above
            continue
        shown = formatter._format_action_invocation(action)  # noqa: SLF001 - as above
        text = formatter._expand_help(action) if action.help else ""  # noqa: SLF001 - as above
        yield ".TP"
        yield f".B {_escaped(shown)}"
        yield _escaped(text) or "\\&"


def _example(parser: argparse.ArgumentParser) -> Iterator[str]:
    command = (parser.epilog or "").removeprefix("Example:").strip()
    if command:
        yield from (".PP", ".nf", *(_escaped(line.strip()) for line in command.splitlines()), ".fi")


def _escaped(text: str) -> str:
    """Return a text that roff prints as it is: hyphens, backslashes, and no control line."""
    plain = " ".join(text.replace("\\", "\\e").replace("-", "\\-").split())
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _completions(parser: argparse.ArgumentParser) -> list[str]:
    found = _choices(parser)
    words = list(found.choices) if found is not None else []
    for action in parser._actions:  # noqa: SLF001 - has no public name
        words += action.option_strings
        if not action.option_strings and found is None and action.choices is not None:
            words += [str(choice) for choice in action.choices]
    return words


def main() -> None:
    """Write the pages to the first folder and the completion to the second."""
    pages, completion = map(Path, sys.argv[1:3])
    for name, text in manual_pages().items():
        (pages / name).write_text(text, "utf-8")
    (completion / NAME).write_text(bash_completion(), "utf-8")


if __name__ == "__main__":
    main()
