"""The key `reports` of `guard/core/guard.yml`: report addresses, and report mailboxes that guard polls over IMAP."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mailwarden.settings.shared import PLAIN_ADDRESS, is_loopback, network_mistakes
from mailwarden.user_reports.mailbox.report_mail import MAX_REPORT

_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:-]{0,252}")
_WORD = re.compile(r"[ !#-\[\]-~]{1,200}")  # printable ASCII without `"` and `\`: an IMAP quoted string

ReportKind = Literal["phishing", "spam", "good"]
FolderName = Annotated[str, Meta(max_length=200)]


class ReportImap(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A report mailbox that guard polls over IMAP; see docs/user-reports.md."""

    address: Annotated[
        str, Meta(max_length=320, description="The mailbox's address. Its tenant is the tenant of the reports.")
    ]
    host: Annotated[str, Meta(description="The IMAP server.")]
    user: Annotated[str, Meta(description="User name of the login.")]
    password: Annotated[str, Meta(description="File with the password in its first line; read at each poll.")]
    kind: Annotated[ReportKind, Meta(description="The kind of a report that names none.")] = "phishing"
    port: Annotated[int, Meta(ge=1, le=65_535, description="Port of the IMAP server.")] = 993
    tls: Annotated[
        Literal["implicit", "startTls", "off"],
        Meta(description="TLS from the start, after STARTTLS, or none: `off` is allowed on loopback only."),
    ] = "implicit"
    ca: Annotated[
        str, Meta(description="File with the CA of the server's certificate; the CAs of the system if empty.")
    ] = ""
    folder: Annotated[FolderName, Meta(description="Folder with new reports.")] = "INBOX"
    processed_folder: Annotated[
        FolderName, Meta(description="Folder for stored reports; created if it is missing.")
    ] = "Processed"
    failed_folder: Annotated[
        FolderName, Meta(description="Folder for mails that guard cannot read or store; created if it is missing.")
    ] = "Failed"
    interval: Annotated[int, Meta(ge=1_000, le=86_400_000, description="Time between two polls, in milliseconds.")] = (
        60_000
    )
    timeout: Annotated[
        int, Meta(ge=100, le=300_000, description="Longest wait for an answer of the server, in milliseconds.")
    ] = 30_000
    max_messages: Annotated[int, Meta(ge=1, le=1_000, description="Mails of one poll; the next poll goes on.")] = 50
    max_size: Annotated[
        int, Meta(ge=1_024, le=MAX_REPORT, description="Largest mail, in bytes; larger ones go to `failedFolder`.")
    ] = 26_214_400
    authenticated_senders: Annotated[
        bool,
        Meta(
            description="The mailbox accepts mail of authenticated users of your organization alone, each under their "
            "own address. guard then trusts From without DKIM."
        ),
    ] = False

    @property
    def name(self) -> str:
        """The mailbox in logs, in the database and in `mailwarden doctor`."""
        return f"{self.user}@{self.host}:{self.port}/{self.folder}"

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not PLAIN_ADDRESS.fullmatch(self.address):
            yield "address", f"`{self.address}` is not a plain address"
        if not _HOST.fullmatch(self.host):
            yield "host", f"`{self.host}` is not a host name or an address"
        if self.tls == "off" and self.host != "localhost" and not is_loopback(self.host):
            yield "tls", f"is `off`, but `{self.host}` is not a loopback address: the password would be readable"
        words = {
            "user": self.user,
            "folder": self.folder,
            "processedFolder": self.processed_folder,
            "failedFolder": self.failed_folder,
        }
        for key, word in words.items():
            if not _WORD.fullmatch(word):
                yield key, f'`{word}` must be 1 to 200 printable ASCII characters without `"` and `\\`'
        if len({self.folder, self.processed_folder, self.failed_folder}) < 3:
            yield "folder", "must differ from processedFolder and failedFolder, and these from each other"


class ReportMailboxes(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The report mailboxes of users; see docs/user-reports.md."""

    sender: Annotated[str, Meta(max_length=320, description="Sender address of the answers to reporters.")]
    addresses: Annotated[
        dict[str, ReportKind],
        Meta(
            max_length=10_000,
            description="Report addresses, each with the kind of a report that names none. guard stores mail to them "
            "and does not deliver it.",
        ),
    ] = {}
    mailboxes: Annotated[
        tuple[ReportImap, ...],
        Meta(max_length=20, description="Report mailboxes of other mail servers, which guard polls over IMAP."),
    ] = ()
    trusted_networks: Annotated[
        tuple[str, ...],
        Meta(
            max_length=100,
            description="Clients of Postfix whose envelope sender is trusted without SPF and DKIM, such as your own "
            "mail server.",
        ),
    ] = ()
    per_reporter: Annotated[
        int, Meta(ge=1, le=1_000, description="Reports of one reporter a day; further ones are not stored.")
    ] = 50

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not self.addresses and not self.mailboxes:
            yield "addresses", "needs a report address, or `mailboxes` a mailbox"
        for address in self.addresses:
            if not PLAIN_ADDRESS.fullmatch(address):
                yield "addresses", f"`{address}` is not a plain address"
        if not PLAIN_ADDRESS.fullmatch(self.sender):
            yield "sender", f"`{self.sender}` is not a plain address"
        if self.sender.lower() in {
            each.lower() for each in (*self.addresses, *(box.address for box in self.mailboxes))
        }:
            yield "sender", f"`{self.sender}` is a report address: answers to answers would become reports"
        for name, count in Counter(mailbox.name for mailbox in self.mailboxes).items():
            if count > 1:
                yield "mailboxes", f"names `{name}` {count} times"
        yield from network_mistakes("trustedNetworks", self.trusted_networks)


class OutlookConfig(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The Outlook add-in for user reports; see docs/outlook.md."""

    report_address: Annotated[
        str,
        Meta(max_length=320, description="Report address to which the add-in sends; unset: no add-in is served."),
    ] = ""
    provider: Annotated[
        str, Meta(min_length=1, max_length=60, description="Your organization's name, as Outlook shows it.")
    ] = "Mailwarden"

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.report_address and not PLAIN_ADDRESS.fullmatch(self.report_address):
            yield "reportAddress", f"`{self.report_address}` is not a plain address"
        if not self.provider.isprintable():
            yield "provider", "has characters that cannot be shown"
