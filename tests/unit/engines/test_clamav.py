"""clamd's answers: malware, what it could not look into, and what is no result."""

import pytest

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.clamav import read_answer, unfinished


def test_ok_is_no_finding():
    assert list(read_answer(b"stream: OK\0")) == []


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("Win.Test.EICAR_HDB-1", "clamav.malware"),
        ("Heuristics.Limits.Exceeded.MaxFileSize", "clamav.limits-exceeded"),
        ("Heuristics.Encrypted.Zip", "clamav.encrypted"),
        ("Heuristics.OLE2.ContainsMacros.VBA", "clamav.macro"),
        ("Heuristics.Broken.Executable", "clamav.damaged-executable"),
        ("Heuristics.Phishing.Email.SpoofedDomain", "clamav.phishing"),
        ("Heuristics.Something.New", "clamav.malware"),
    ],
)
def test_a_signature_becomes_the_finding_of_its_kind(signature, name):
    (finding,) = read_answer(f"stream: {signature} FOUND\0".encode())
    assert (finding.name, finding.facts["signature"]) == (name, signature)


def test_a_limit_of_clamd_leaves_the_scan_unfinished():
    (limit,) = read_answer(b"stream: Heuristics.Limits.Exceeded.MaxFileSize FOUND\0")
    (other,) = read_answer(b"stream: Heuristics.Encrypted.Zip FOUND\0")
    assert ("did not scan the rest" in unfinished(limit), unfinished(other)) == (True, "")


@pytest.mark.parametrize("answer", [b"", b"INSTREAM size limit exceeded. ERROR\0", b"stream: ", b"UNKNOWN COMMAND\0"])
def test_anything_else_is_no_result(answer):
    with pytest.raises(EngineFailed):
        list(read_answer(answer))
