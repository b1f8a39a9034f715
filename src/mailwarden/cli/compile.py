"""`mailwarden compile`: stores the shipped rules, translations, phrases and tables in a form that is read quickly."""

import argparse

from mailwarden.analysis import shipped_data
from mailwarden.analysis.text import phrases
from mailwarden.cli.command import Command
from mailwarden.errors import CommandError
from mailwarden.policy import languages, rules


def _arguments(_: argparse.ArgumentParser) -> None:
    """The command has no arguments."""


def _run(_: argparse.Namespace) -> int:
    policy = rules.read_policy(rules.FOLDER)
    books = phrases.compile_books()
    try:
        rules.COMPILED.write(rules.Pieces(policy.rules, policy.tags, policy.verdicts))
        phrases.COMPILED.write(books)
        shipped_data.COMPILED.write(shipped_data.read_files())
        for language in languages.languages():
            languages.compiled(language).write(languages.read_texts(language))
    except OSError as error:
        raise CommandError(f"Cannot write {error.filename}: {error.strerror}. Run this as the owner of it.") from None
    print(f"compiled: {len(policy.rules)} rules, {len(books.phrases)} phrases")
    return 0


COMMAND = Command("mailwarden compile", _arguments, _run)
