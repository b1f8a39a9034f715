"""Scope is the first argument of every store method, so that no call can forget whose data it touches."""

import ast
from collections.abc import Iterator

import pytest

from tests.conventions.project_files import name_of, parsed, python_files

WITHOUT_TENANT = {
    "BlobStore",  # bytes by name: the vault derives the names from tenants
    "FilesystemStore",
    "S3BlobStore",
    "IdempotencyStore",  # its rows belong to a token, whatever tenants that may see
    "SessionStore",  # to whoever holds the cookie
    "FactorStore",  # to one person, who was found in a scope before
    "FeedStore",  # to a feed, which was found in a scope before: its scope is that of the transaction
    "LeaseStore",  # to an API key, of one tenant or of none
    "ThrottleStore",  # to nobody: strangers who try to log in
}


def methods() -> Iterator[tuple[str, list[str]]]:
    for file in python_files("src"):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Store") and node.name not in WITHOUT_TENANT:
                for method in node.body:
                    if isinstance(method, ast.AsyncFunctionDef | ast.FunctionDef) and not method.name.startswith("_"):
                        yield f"{name_of(file)} {node.name}.{method.name}", [arg.arg for arg in method.args.args]


@pytest.mark.slow
def test_scope_is_the_first_argument_of_every_store_method() -> None:
    found = dict(methods())
    assert len(found) >= 9
    assert [name for name, arguments in found.items() if arguments[:2] != ["self", "scope"]] == []


@pytest.mark.slow
def test_sql_stands_in_stores_and_migrations_alone() -> None:
    homes = {
        "access",
        "cases",
        "events",
        "event_delivery",
        "feeds",
        "clickhouse",
        "postgresql",
        "mailbox",
        "senders",
        "user_reports",
        "lists",
        "replica",
        "quarantine",
        "weekly_report",
        "database",
        "demo",  # it moves the clock of its own database
    }
    words = ("SELECT ", "INSERT INTO", "DELETE FROM", "UPDATE ")
    strange = [
        name_of(file)
        for file in python_files("src")
        if file.parent.name not in homes
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lstrip().startswith(words)
    ]
    assert strange == []
