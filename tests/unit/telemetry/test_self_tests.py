"""Known-answer self-tests: each library that answers wrongly is named, with what to do."""

import re
import subprocess
import sys
from typing import Any

import pytest

from mailwarden.crypto.self_tests import CRYPTOGRAPHY
from mailwarden.errors import CommandError
from mailwarden.pipeline.self_tests import READERS, YARA_ENGINE
from mailwarden.telemetry.self_tests import (
    BASIC,
    PASSWORDS,
    SelfTest,
    require_known_answers,
    wrong_answers,
)

ALL = (*BASIC, *CRYPTOGRAPHY, *PASSWORDS, *READERS, *YARA_ENGINE)
NEVER = re.compile("(?!)")


class Broken:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"no {name}")


BREAKS = {
    "regular expressions": ("re.compile", lambda *_: NEVER),
    "RE2": ("re2.compile", lambda *_: NEVER),
    "decompression": ("lzma.decompress", lambda _: b""),
    "charsets": ("mailwarden.telemetry.self_tests._CHARSETS", {"utf-8": b"e"}),
    "HMAC": ("hmac.digest", lambda *_: bytes(32)),
    "AES-GCM": ("mailwarden.crypto.self_tests.AESGCM", Broken),
    "HKDF": ("mailwarden.crypto.self_tests.HKDF", Broken),
    "argon2id": ("argon2.low_level.hash_secret_raw", lambda *_, **__: bytes(32)),
    "hosts in text": ("mailwarden.pipeline.self_tests.shown_host", lambda _: ""),
    "HTML parser": ("mailwarden.pipeline.self_tests.read_html", Broken),
    "archive readers": ("mailwarden.pipeline.self_tests.files_of", Broken),
    "PDF reader": ("pypdfium2.PdfDocument", Broken),
    "YARA engine": ("yara_x.compile", Broken),
}


def test_this_host_answers_as_known():
    assert wrong_answers(ALL) == ()


def test_every_self_test_is_broken_by_a_case_here():
    assert {test.name for test in ALL} == set(BREAKS)


@pytest.mark.parametrize("name", BREAKS)
def test_a_wrong_answer_is_named_with_a_remedy(name: str, monkeypatch: pytest.MonkeyPatch):
    target, value = BREAKS[name]
    import pypdfium2  # noqa: F401 - patched below
    import yara_x  # noqa: F401

    with monkeypatch.context() as broken:
        broken.setattr(target, value)
        failed = wrong_answers(ALL)
    assert name in [each.name for each in failed]
    assert all(each.remedy for each in failed)


def test_a_failed_self_test_stops_the_start():
    with pytest.raises(CommandError) as caught:
        require_known_answers("guard", [SelfTest("sums", lambda: False, "buy another"), SelfTest("zero", lambda: True)])
    assert caught.value.message == (
        "guard does not start, because a self-test failed: sums (wrong answer): buy another."
    )


def test_a_worker_spends_few_milliseconds_on_them():
    program = (
        "import mailwarden.pipeline.worker_steps, time\n"
        "from mailwarden.pipeline.self_tests import READERS\n"
        "from mailwarden.telemetry.self_tests import BASIC, wrong_answers\n"
        "began = time.process_time()\n"
        "assert wrong_answers((*BASIC, *READERS)) == ()\n"
        "tested = time.process_time()\n"
        "sum(number * number for number in range(1_000_000))\n"
        "print((tested - began) / (time.process_time() - tested))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 1.5  # times the CPU of a million squares: 0.37 to 0.48 measured, mostly pdfium's start
