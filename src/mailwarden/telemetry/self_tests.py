"""Known-answer self-tests: a process runs them at its start and stops if a library gives a wrong answer.

A wrong answer is silent otherwise. Python 3.11.2 of Debian 12 before deb12u9 never matches some patterns: a scan that
misses a link for that reason looks like a scan of a message without links.
"""

import base64
import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

import re2

from mailwarden.errors import CommandError

PLAIN = b"Known answer. " * 20

PYTHON = "install your distribution's current python3.11 (on Debian 12: `apt install python3.11`, deb12u9 or later)"
_PACKAGES = "install Mailwarden's packages again, in the versions of requirements/"

# Constructs of the product's patterns: flags, pattern, text, and the expected match and groups.
_PATTERNS: tuple[tuple[int, str, str, tuple[str | None, ...]], ...] = (
    (re.IGNORECASE, r"((?:[a-z0-9-]{1,63}\.){1,20}([a-z]{2,24}))(?:[/:?#]\S{0,500})?$", "Bank.Example/login",
     ("Bank.Example/login", "Bank.Example", "Example")),
    (0, r"(?<![\w@.-])((?:[a-z0-9-]{1,63}\.){1,8}(?![a-z0-9-]{1,63}\.)[a-z]{2,24})(?![\w@-])", "at north.mail.example",
     ("north.mail.example", "north.mail.example")),
    (re.DOTALL, r'(?<=[;\s])([^\s=;"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)', 'text/plain; name = "a\\"b" ; x',
     ('name = "a\\"b"', "name", '"a\\"b"')),
    (0, r"""[^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>""", """ href="a>b" x='c'>text""", (""" href="a>b" x='c'>""",)),
    (re.MULTILINE | re.IGNORECASE, r"^x-a: ?([^\r\n]*(?:\r\n[ \t][^\r\n]*)*)\r\n(?![ \t])", "b:c\r\nX-A: 1\r\n\t2\r\nd",
     ("X-A: 1\r\n\t2\r\n", "1\r\n\t2")),
    (0, r"\b(\w+)\s\1\b", "the the", ("the the", "the")),
    (re.IGNORECASE, r"[^\W\d_]{2,60}", "1_ÄÖß2", ("ÄÖß",)),
    (0, r"(a|ab)(c|bcd)(d*)$", "abcd", ("abcd", "a", "bcd", "")),
    (0, r"(?:x{1,3}?y|x+z)", "xxxxz", ("xxxxz",)),
)  # fmt: skip

# The same text in charsets of mail, by codec: each uses another part of Python's codecs.
_CHARSETS = {
    "utf-8": b"\xc3\xa9", "utf-16": b"\xff\xfe\xe9\x00", "utf-7": b"+AOk-", "cp1252": b"\xe9", "gb18030": b"\xa8\xa6",
    "cp037": b"Q", "mac-roman": b"\x8e",
}  # fmt: skip
_JAPANESE = {"iso-2022-jp": b"\x1b$B9%\x1b(B", "shift_jis": b"\x8dD", "euc-kr": b"\xfb\xbf", "hz": b"~{:C~}"}


@dataclass(frozen=True, slots=True)
class SelfTest:
    """One library with a known answer: `run` returns whether the answer is right; an exception counts as wrong."""

    name: str
    run: Callable[[], bool]
    remedy: str = _PACKAGES


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    name: str
    remedy: str
    why: str


def wrong_answers(tests: Iterable[SelfTest]) -> tuple[WrongAnswer, ...]:
    """Run the tests and return those that fail."""
    failed = []
    for test in tests:
        try:
            why = "" if test.run() else "wrong answer"
        except Exception as error:  # a library may fail in any way; each is a reason not to start
            why = f"{type(error).__name__}: {error}"
        if why:
            failed.append(WrongAnswer(test.name, test.remedy, why))
    return tuple(failed)


def require_known_answers(process: str, *tables: Iterable[SelfTest]) -> None:
    """Raise CommandError with each library that fails its test and the remedy."""
    failed = wrong_answers(chain(*tables))
    if failed:
        lines = "; ".join(f"{each.name} ({each.why}): {each.remedy}" for each in failed)
        raise CommandError(f"{process} does not start, because a self-test failed: {lines}.")


def _matches_patterns() -> bool:
    found = ((re.compile(pattern, flags).search(text), groups) for flags, pattern, text, groups in _PATTERNS)
    return all(match is not None and (match[0], *match.groups()) == groups for match, groups in found)


def _matches_by_re2() -> bool:
    pattern = re2.compile(r"(?i)(?:pass|код)\w{0,3}[^\n]{0,9}?(\d{4,8})")
    match = pattern.search("Ваш Код: 123456")
    return match is not None and match[1] == "123456" and pattern.search("passed: none") is None


def _decompresses() -> bool:
    packed = base64.b64decode("eNrzzssvz1NIzCsuTy3SU/Ae5UF5AIhFZN0=")
    bounded = zlib.decompressobj()
    return (
        zlib.decompress(packed) == PLAIN
        and bounded.decompress(packed, 10) + bounded.decompress(bounded.unconsumed_tail) == PLAIN
        and zlib.crc32(PLAIN) == 0xC1888409
        and bz2.decompress(
            base64.b64decode("QlpoOTFBWSZTWYznC8AAACeVgEABAAgiAZiAIABQgBgFKkPU000TCbJ2JwTCekwmyaJwnCfi7kinChIRnOF4AA==")
        ) == PLAIN
        and lzma.decompress(
            base64.b64decode("XQAAgAD//////////wAlm4nnquc0wM1dt1CgqG6tZ1QivV///twoAA==")
        ) == PLAIN
        and lzma.decompress(
            base64.b64decode(
                "/Td6WFoAAATm1rRGAgAhARYAAAB0L+Wj4AEXABVdACWbieeq5zTAzV23UKCobq1nUbYAAAAAAABQ7Jp3ZM5QtQABMZgCAAAAj6QMR7HE"
                "Z/sCAAAAAARZWg=="
            )
        ) == PLAIN
    )  # fmt: skip


def _decodes_charsets() -> bool:
    latin = all(content.decode(codec) == "é" for codec, content in _CHARSETS.items())
    return latin and all(content.decode(codec) == "好" for codec, content in _JAPANESE.items())


def _hashes_passwords() -> bool:
    from argon2.low_level import Type, hash_secret_raw  # noqa: PLC0415 - abby alone needs it

    found = hash_secret_raw(b"password", b"somesalt", time_cost=2, memory_cost=256, parallelism=1, hash_len=32,
                            type=Type.ID)  # fmt: skip
    return found.hex() == "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe"


# For every process.
BASIC: tuple[SelfTest, ...] = (
    SelfTest("regular expressions", _matches_patterns, PYTHON),
    SelfTest("RE2", _matches_by_re2),
    SelfTest("decompression", _decompresses, PYTHON),
    SelfTest("charsets", _decodes_charsets, PYTHON),
)
# For processes that check passwords.
PASSWORDS: tuple[SelfTest, ...] = (SelfTest("argon2id", _hashes_passwords),)
