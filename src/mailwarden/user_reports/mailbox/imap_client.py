"""One session with the IMAP server of a report mailbox: lists new mails, reads one, and moves it to another folder.

Every call blocks and runs in a thread. Mails are moved by MOVE (RFC 6851), which leaves no moment without a copy, and
are never deleted. Reading sets no flag.

Security: the server may be hostile or broken. Each wait has a timeout, each literal and each answer a limit, and server
texts in errors are cut and printable. The password is not part of any error.
"""

import imaplib
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from mailwarden.errors import ConfigurationError
from mailwarden.serving.tls import client_context
from mailwarden.user_reports.settings import ReportImap

MAX_ANSWER = 2_097_152  # bytes of an answer beside the mail in it
MAX_PASSWORD = 4_096  # bytes of the file
SHOWN = 160  # characters of a server's text in an error

_LISTED = re.compile(rb"^\d{1,10} \((?=.*\bUID (\d{1,10})\b)(?=.*\bRFC822\.SIZE (\d{1,12})\b)")


_Data = Sequence[bytes | tuple[bytes, bytes] | None]

_Keep = Callable[[socket.socket], None]  # gets each socket before anything waits for it


class MailboxFailed(Exception):
    """The IMAP server did not do what was asked; the next poll tries again."""


class UnreadableMail(Exception):
    """The server has the mail, but does not hand it out whole."""


class ListedMail(Struct, frozen=True):
    uid: int
    size: int


class MailboxState(Struct, frozen=True):
    validity: int  # UIDVALIDITY: a UID names the same mail as long as it is the same
    count: int  # mails in the folder


class _Bounded(imaplib.IMAP4):
    """A connection that reads at most `budget` bytes of one answer."""

    budget = MAX_ANSWER

    def __init__(self, settings: ReportImap, tls: "_Tls | None", keep: "_Keep") -> None:
        self._tls = tls if settings.tls == "implicit" else None
        self._keep = keep
        super().__init__(settings.host, settings.port, settings.timeout / 1000)

    def _create_socket(self, timeout: float | None) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), timeout)
        try:
            self._keep(plain)
            return plain if self._tls is None else self._tls.wrap_socket(plain, self.host)
        except BaseException:
            plain.close()
            raise

    def read(self, size: int) -> bytes:
        self._spend(size)
        return super().read(size)

    def readline(self) -> bytes:
        line = super().readline()
        self._spend(len(line))
        return line

    def _spend(self, size: int) -> None:
        self.budget -= size
        if self.budget < 0:
            raise self.abort("an answer beyond the limit")


class _Tls:
    """A TLS context whose handshakes can be aborted; imaplib's STARTTLS calls `wrap_socket` too."""

    def __init__(self, context: ssl.SSLContext, keep: _Keep) -> None:
        self._context = context
        self._keep = keep

    def wrap_socket(self, plain: socket.socket, server_hostname: str) -> ssl.SSLSocket:
        wrapped = self._context.wrap_socket(plain, server_hostname=server_hostname, do_handshake_on_connect=False)
        try:
            self._keep(wrapped)
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


class ImapClient:
    """A session; `open` first, `close` last. `abort` may be called from another thread."""

    def __init__(self, settings: ReportImap, folder: Path) -> None:
        """Paths in the settings are relative to `folder`."""
        self._settings = settings
        self._folder = folder
        self._connection: _Bounded | None = None
        self._socket: socket.socket | None = None
        self._aborted = False

    def open(self) -> MailboxState:
        """Connect, log in and select the folder."""
        settings = self._settings
        password = read_password(self._folder / settings.password)
        context = self._context()
        tls = None if context is None else _Tls(context, self._keep)
        try:
            self._connection = connection = _Bounded(settings, tls, self._keep)
            if settings.tls == "startTls":
                connection.starttls(tls)
        except (OSError, imaplib.IMAP4.error, UnicodeError) as error:  # UnicodeError: capabilities that are not ASCII
            raise MailboxFailed(f"Cannot connect to {settings.host}:{settings.port}: {_shown(error)}.") from None
        self._log_in(connection, password)
        if "MOVE" not in connection.capabilities:
            raise MailboxFailed(f"{settings.host} does not support MOVE (RFC 6851), without which no mail is safe.")
        [count] = self._ask("SELECT", settings.folder)
        _, validity = connection.response("UIDVALIDITY")
        return MailboxState(_number(validity[0] if validity else None), _number(count))

    def prepare_folders(self) -> None:
        """Create the folders for processed and failed mails, if they are missing."""
        for name in (self._settings.processed_folder, self._settings.failed_folder):
            listed = self._ask("LIST", name)
            if not any(listed):
                self._ask("CREATE", name)

    def listed(self, first: int, last: int) -> list[ListedMail]:
        """Return the mails with these positions in the folder, which begin with 1."""
        answer = self._ask("FETCH", f"{first}:{last}", "(UID RFC822.SIZE)")
        lines = [each for each in answer if isinstance(each, bytes)]
        found = [match for line in lines if (match := _LISTED.match(line))]
        return [ListedMail(int(uid), int(size)) for uid, size in (match.groups() for match in found)]

    def read(self, mail: ListedMail) -> bytes:
        """Return the mail; raise UnreadableMail if the server does not hand out all of it."""
        try:
            answer = self._ask("UID FETCH", str(mail.uid), "(BODY.PEEK[])", literal=mail.size)
        except _Refused as error:
            raise UnreadableMail(str(error)) from None
        parts = [each[1] for each in answer if isinstance(each, tuple)]
        if len(parts) != 1 or not parts[0]:
            raise UnreadableMail("the server sent no content")
        return bytes(parts[0])

    def move(self, mail: ListedMail, folder: str) -> None:
        self._ask("UID MOVE", str(mail.uid), folder)

    def close(self) -> None:
        """Log out; a failure does not matter."""
        if self._connection is not None:
            self._connection.budget = MAX_ANSWER
            with suppress(OSError, imaplib.IMAP4.error, ValueError):
                self._connection.logout()
            with suppress(OSError):
                self._connection.shutdown()

    def abort(self) -> None:
        """End a call that waits for the server."""
        self._aborted = True
        if self._socket is not None:
            with suppress(OSError):
                # SSLSocket.shutdown drops TLS first: the other thread could then send in plain text.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _keep(self, connected: socket.socket) -> None:
        """Let `abort` end all waits for this socket."""
        self._socket = connected
        if self._aborted:
            raise MailboxFailed("The connection is closed.")

    def _context(self) -> ssl.SSLContext | None:
        if self._settings.tls == "off":
            return None
        if self._settings.ca:
            return client_context(self._folder / self._settings.ca)
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def _log_in(self, connection: _Bounded, password: str) -> None:
        settings = self._settings
        connection.budget = MAX_ANSWER
        try:
            if "AUTH=PLAIN" in connection.capabilities:
                words = f"\0{settings.user}\0{password}".encode()
                connection.authenticate("PLAIN", lambda _: words)
            else:
                connection.login(settings.user, password)
            connection.capabilities = _capabilities(connection)  # after the login there may be more of them
        except (imaplib.IMAP4.abort, OSError) as error:
            raise MailboxFailed(f"{settings.host} ended the login: {_shown(error)}.") from None
        except (imaplib.IMAP4.error, UnicodeError):
            raise MailboxFailed(f"{settings.host} rejects the login of {settings.user}. Check the password.") from None

    def _ask(self, command: str, *words: str, literal: int = 0) -> _Data:
        connection = self._connection
        if connection is None or self._aborted:
            raise MailboxFailed("The connection is closed.")
        connection.budget = MAX_ANSWER + literal
        try:
            kind, answer = _send(connection, command, words)
        except (imaplib.IMAP4.error, OSError) as error:
            raise MailboxFailed(f"{self._settings.host} did not answer {command}: {_shown(error)}.") from None
        if kind != "OK":
            text = answer[0] if answer and isinstance(answer[0], bytes) else b""
            raise _Refused(f"{self._settings.host} rejects {command}: {_shown(text.decode('ascii', 'replace'))}.")
        return answer


class _Refused(MailboxFailed):
    """The server answered NO or BAD."""


def _send(connection: imaplib.IMAP4, command: str, words: tuple[str, ...]) -> tuple[str, _Data]:
    match command:
        case "SELECT":
            return connection.select(_quoted(words[0]))
        case "LIST":
            return connection.list('""', _quoted(words[0]))
        case "CREATE":
            return connection.create(_quoted(words[0]))
        case "FETCH":
            return connection.fetch(*words)
        case "UID MOVE":
            return connection.uid("MOVE", words[0], _quoted(words[1]))
        case _:
            return connection.uid("FETCH", *words)


def read_password(path: Path) -> str:
    """Return the first line of a file."""
    try:
        with path.open("rb") as file:
            lines = file.read(MAX_PASSWORD).decode("utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"reports.mailboxes.password: cannot read {path}: {error}.") from None
    except UnicodeDecodeError:  # its text has a byte of the password
        raise ConfigurationError(
            f"reports.mailboxes.password: {path} is not UTF-8 text. Write the password in UTF-8 into its first line."
        ) from None
    if not lines or not lines[0]:
        raise ConfigurationError(f"reports.mailboxes.password: {path} has no password in its first line.")
    return lines[0]


def _quoted(name: str) -> str:
    """Return a folder name as a quoted string (RFC 3501, section 4.3); the configuration excludes `"` and `\\`."""
    return f'"{name}"'


def _capabilities(connection: imaplib.IMAP4) -> tuple[str, ...]:
    _, answer = connection.capability()
    text = b" ".join(each for each in answer if isinstance(each, bytes))
    return tuple(text.decode("ascii", "replace").upper().split())


def _number(text: object) -> int:
    digits = text.decode("ascii", "replace") if isinstance(text, bytes) else ""
    if not digits.isdigit() or len(digits) > 10:
        raise MailboxFailed("The server sent no number where one belongs.")
    return int(digits)


def _shown(error: object) -> str:
    text = str(error) or type(error).__name__
    return "".join(each if each.isprintable() else "?" for each in text)[:SHOWN].rstrip(".")
