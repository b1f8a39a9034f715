"""`python -m workshop.rig.embedded_clickhouse FOLDER PORT`: chdb behind ClickHouse's HTTP interface.

It serves one statement at a time. It is a server for tests of SQL and sizes, without users and without replication.
"""

import argparse
import contextlib
import re
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

HOST = "127.0.0.1"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_INSERT = re.compile(r"(INSERT INTO .*) FORMAT RowBinary", re.DOTALL)
_CODE = re.compile(r"Code: (\d+)")
# Parameters of the HTTP interface that are no settings.
_INTERFACE = ("database", "query", "wait_end_of_query")
_DATABASE = "database"


class Statements:
    """Runs statements in the one session of this process."""

    def __init__(self, folder: Path) -> None:
        self._session = Session(str(folder))
        self._lock = threading.Lock()
        self._current: dict[str, str] = {}  # the settings of the session, which lasts from statement to statement

    def run(self, statement: str, rows: bytes, parameters: dict[str, str]) -> bytes:
        """Return the answer; raise RuntimeError with ClickHouse's text."""
        settings = {key: value for key, value in parameters.items() if key not in _INTERFACE}
        with self._lock, contextlib.ExitStack() as stack:
            self._configure(parameters.get("database", "default"), settings)
            if (insert := _INSERT.fullmatch(statement)) is not None:
                file = stack.enter_context(tempfile.NamedTemporaryFile())
                file.write(rows)
                file.flush()
                statement = f"{insert[1]} FROM INFILE '{file.name}' FORMAT RowBinary"
            return bytes(self._session.query(statement, "TabSeparated").bytes() or b"")

    def _configure(self, database: str, settings: dict[str, str]) -> None:
        """Set what differs from the last statement: each change is a statement of its own here, but not over HTTP."""
        if self._current.get(_DATABASE) != database:
            self._current.pop(_DATABASE, None)
            self._session.query(f"USE {_checked(_NAME, database)}")
            self._current[_DATABASE] = database
        for key in [each for each in self._current if each != _DATABASE and each not in settings]:
            self._session.query(f"SET {key} = DEFAULT")
            del self._current[key]
        for key, value in settings.items():
            if self._current.get(key) != value:
                self._session.query(f"SET {_checked(_NAME, key)} = {_checked(_NUMBER, value)}")
                self._current[key] = value


class Handler(BaseHTTPRequestHandler):
    statements: ClassVar[Statements]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b"Ok.\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parameters = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        statement, rows = (parameters["query"], body) if "query" in parameters else (body.decode(), b"")
        try:
            self._answer(200, self.statements.run(statement, rows, parameters))
        except Exception as error:
            text = str(error)
            found = _CODE.search(text)
            self._answer(404 if found and found[1] in ("60", "81") else 500, text.encode())

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 -- the name in the base class
        """Log nothing: tests make thousands of requests."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-ClickHouse-Server-Display-Name", "embedded")
        self.end_headers()
        self.wfile.write(body)


def _checked(form: re.Pattern[str], text: str) -> str:
    if not form.fullmatch(text):
        raise RuntimeError("Code: 36. DB::Exception: the rig does not accept this name or value")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.rig.embedded_clickhouse data 8123"
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    Handler.statements = Statements(arguments.folder)
    ThreadingHTTPServer((HOST, arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
