"""Where a call comes from is found out in one place, so that no other can be talked into something else."""

import ast
import re
from collections.abc import Callable
from functools import cache

from tests.conventions.project_files import name_of, parsed, python_files

HTTP_APP = "src/mailwarden/serving/http_app.py"
ROOMS = tuple(f"src/mailwarden/{room}/" for room in ("abby", "access", "console", "serving"))
FINDER = "src/mailwarden/serving/http_app.py"
# aiohttp's ways to the other end of a connection, and to what proxies write.
WAYS = {"remote", "forwarded", "_transport_peername", "peername"}
# The scheme and the host that a proxy, or anybody, writes beside the request are believed nowhere.
FIELDS = re.compile(r"(x[-_])?forwarded([-_]\w+)?|(x[-_])?(real|client)[-_]ip|cf-connecting-ip", re.IGNORECASE)


def text_of(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def words_of(node: ast.AST) -> str:
    """Return what is asked for by a dot, or by a name in quotes."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return text_of(node)


@cache
def words(read: Callable[[ast.AST], str] = words_of) -> dict[str, set[str]]:
    return {
        name_of(file): {read(node) for node in ast.walk(parsed(file))}
        for file in python_files("src")
        if name_of(file).endswith("/api.py") or name_of(file).startswith(ROOMS)
    }


def test_only_http_app_reads_the_peer_address() -> None:
    assert [name for name, found in words().items() if found & WAYS] == [HTTP_APP]


def test_only_http_app_names_the_forwarded_field() -> None:
    assert [name for name, found in words(text_of).items() if any(map(FIELDS.fullmatch, found))] == [FINDER]
