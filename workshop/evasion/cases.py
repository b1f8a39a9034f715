"""Every case: a payload in a wrapper, a link in a spelling, a forged sender; and harmless controls beside them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from workshop.evasion.archives import ARCHIVES, DEEP
from workshop.evasion.documents import document_cases
from workshop.evasion.headers import header_cases
from workshop.evasion.mail import head, with_file
from workshop.evasion.pages import charset_cases, link_cases, page_cases
from workshop.evasion.payloads import HARMLESS, LINK, MACRO, PAGE, PAYLOADS, PROGRAM, Payload
from workshop.evasion.pictures import picture_cases
from workshop.evasion.senders import sender_cases
from workshop.evasion.wrappers import MIXED, WRAPPERS, Wrapper

# These keep no file name, so only a page, which is recognised by its content, is still harmful.
NAMELESS = frozenset({"tnef with a body", "base64 saved"})
ORDINARY = (
    "zip", "zip stored", "zip with folders", "tar", "tar.gz", "gz", "7z", "rar4", "rar5", "eml", "mht", "msg", "tnef",
    "tnef with long names", "uuencode", "calendar", "signed", "zip behind 1,000 files", "zip 3 deep",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    raw: bytes

    @property
    def group(self) -> str:
        return self.name.partition(":")[0]


def _wrapped(group: str, name: str, wrap: Wrapper, payload: Payload) -> Case:
    file, content = wrap({payload.name: payload.content})
    return Case(f"{group}: {payload.kind} in {name}", with_file(file, content))


def _files() -> Iterator[Case]:
    for group, wrappers in (("archive", ARCHIVES | DEEP), ("wrapper", WRAPPERS)):
        for name, wrap in wrappers.items():
            for payload in (PAGE, LINK) if name in NAMELESS else PAYLOADS:
                yield _wrapped(group, name, wrap, payload)
    for name, wrap in MIXED.items():
        for payload in (PAGE, PROGRAM, MACRO):
            yield _wrapped("mixed", name, wrap, payload)


def _bodies() -> Iterator[Case]:
    """Yield files inside the text of a message, as old mail programs sent them."""
    for name in ("uuencode", "uuencode behind 21 files", "uuencode by base64", "yenc", "yenc behind files"):
        for payload in PAYLOADS:
            _, content = WRAPPERS[name]({payload.name: payload.content})
            yield Case(f"body: {payload.kind} as {name}", head() + b"\r\nHello Bob,\r\n\r\n" + content)


def attacks() -> Iterator[Case]:
    """Yield every attack; each is built on demand."""
    yield from (Case(f"plain: {payload.kind}", with_file(payload.name, payload.content)) for payload in PAYLOADS)
    yield from _files()
    yield from _bodies()
    for source in (link_cases, page_cases, charset_cases, document_cases, picture_cases, sender_cases, header_cases):
        yield from (Case(name, raw) for name, raw in source())


def harmless() -> Iterator[Case]:
    """Yield ordinary wrappers around a harmless file: they must stay clean, or the other cases prove nothing."""
    wrappers = ARCHIVES | DEEP | WRAPPERS
    for name in ORDINARY:
        yield _wrapped("harmless", name, wrappers[name], HARMLESS)


def chosen(pattern: str) -> list[Case]:
    return [case for case in attacks() if re.search(pattern, case.name)]
