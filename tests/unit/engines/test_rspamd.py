"""Rspamd's answers: what is asked, and which answers are not trusted."""

import json

import pytest

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.rspamd import (
    CheckAnswer,
    Symbol,
    client_address,
    findings_of,
    is_signed,
    load_symbols,
    read_answer,
    request_head,
    require_whole,
    split_answer,
)
from mailwarden.model.envelope import Envelope
from mailwarden.serving.spool import Spooled

FULL = Envelope("ann@sender.example", ("bob@corp.example",), "203.0.113.7", "mail.sender.example")
BARE = Envelope("", ("bob@corp.example",))
AUTHENTICATED = {"R_DKIM_NA": Symbol(), "R_SPF_ALLOW": Symbol()}


def answer(action="no action", score=0.0, symbols=AUTHENTICATED, **more) -> CheckAnswer:
    return CheckAnswer(action=action, score=score, required_score=15.0, symbols=symbols, **more)


def settings_of(head: bytes):
    line = next(line for line in head.decode().split("\r\n") if line.startswith("Settings: "))
    return json.loads(line.removeprefix("Settings: "))["symbols_disabled"]


def test_the_envelope_goes_into_the_head_with_every_recipient():
    envelope = Envelope("ann@sender.example", ("a@corp.example", "ü@corp.example"), "2001:db8::1", "h.example")
    lines = request_head(envelope, 10).decode().split("\r\n")
    assert {"From: ann@sender.example", "Rcpt: a@corp.example", "Rcpt: ü@corp.example"} <= set(lines)
    assert {"IP: 2001:db8::1", "Helo: h.example", "Content-Length: 10"} <= set(lines)


def test_missing_envelope_fields_disable_their_checks():
    assert "DMARC_CHECK" in settings_of(request_head(BARE, 1))
    assert "DMARC_CHECK" not in settings_of(request_head(FULL, 1))


@pytest.mark.parametrize("text", ["a\r\nFile: /etc/hostname", "a\nb", "a\x00b", "a\x85b"])
def test_a_control_character_never_reaches_a_header(text):
    with pytest.raises(EngineFailed):
        request_head(Envelope(text, ("bob@corp.example",)), 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 500 Oops\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
    ],
)
def test_a_cut_or_failed_answer_is_no_answer(raw):
    with pytest.raises(EngineFailed):
        split_answer(raw)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"action": 1}', b"\xff"])
def test_an_answer_that_is_not_rspamds_is_no_answer(body):
    with pytest.raises(EngineFailed):
        read_answer(body)


@pytest.mark.parametrize(
    "unfinished",
    [
        answer(symbols={}),
        answer(symbols={"R_SPF_ALLOW": Symbol()}),
        answer(symbols={"R_DKIM_NA": Symbol()}),
        answer(action="soft reject"),
        answer(is_skipped=True),
    ],
)
def test_an_answer_without_its_authentication_symbols_is_unfinished(unfinished):
    with pytest.raises(EngineFailed):
        require_whole(unfinished, FULL)


def test_without_an_address_spf_is_not_expected():
    require_whole(answer(symbols={"R_DKIM_NA": Symbol()}), BARE)


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "172.16.0.9", "192.168.1.4", "127.0.0.1", "::1", "fd00::7", "fe80::1", "::ffff:10.0.0.1"]
)
def test_a_private_address_is_not_sent_to_rspamd(address):
    within = Envelope("ada@north.example", ("bob@corp.example",), address)
    assert client_address(within) == ""
    assert b"\r\nIP:" not in request_head(within, 1)
    require_whole(answer(symbols={"R_DKIM_NA": Symbol()}), within)


@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::1", "172.32.0.1"])
def test_a_public_address_is_sent_to_rspamd(address):
    assert client_address(Envelope("ada@north.example", ("bob@corp.example",), address)) == address


@pytest.mark.parametrize("behind_dkim", ["ARC_NA", "ARC_REJECT", "DMARC_NA"])
def test_dkim_dependent_symbols_prove_that_dkim_was_checked(behind_dkim):
    require_whole(answer(symbols={"R_SPF_NA": Symbol(), behind_dkim: Symbol()}), FULL, signed=True)
    require_whole(answer(symbols={behind_dkim: Symbol()}), BARE, signed=True)
    for unfinished, envelope, signed in (
        ({behind_dkim}, FULL, True),
        ({behind_dkim}, BARE, False),
        ({"R_SPF_NA"}, FULL, True),
        ({"R_SPF_NA"}, BARE, True),
        (set(), BARE, True),
    ):
        with pytest.raises(EngineFailed):
            require_whole(answer(symbols=dict.fromkeys(unfinished, Symbol())), envelope, signed=signed)


@pytest.mark.parametrize(
    ("head", "signed"),
    [(b"DKIM-Signature: v=1", True), (b"dkim-signature :x", True), (b"X-DKIM-Signature: x", False), (b"", False)],
)
def test_whether_a_message_is_signed_is_seen_in_its_head(head, signed):
    assert is_signed(Spooled.of(b"From: a@b.example\r\n" + head + b"\r\n\r\nhi")) is signed


def test_gtube_is_whole_although_rspamd_skips_everything_else():
    gtube = answer(action="reject", score=15, symbols={}, is_skipped=True, messages={"smtp_message": "Gtube pattern"})
    require_whole(gtube, FULL)
    assert [finding.name for finding in findings_of(gtube, {})] == ["rspamd.gtube"]


@pytest.mark.parametrize(
    ("score", "name"),
    [
        (15.0, "rspamd.reject"),
        (14.9, "rspamd.strong-spam"),
        (8.0, "rspamd.strong-spam"),
        (7.9, "rspamd.probable-spam"),
        (6.0, "rspamd.probable-spam"),
        (5.0, "rspamd.likely-spam"),
        (4.0, "rspamd.suspected-spam"),
        (3.0, "rspamd.raised-score"),
    ],
)
def test_the_score_falls_into_one_band(score, name):
    assert [finding.name for finding in findings_of(answer(score=score), {})] == [name]


def test_a_low_score_is_no_finding():
    assert list(findings_of(answer(score=2.99), {})) == []


def test_named_symbols_become_findings_with_their_options():
    symbols = {"PHISHING": Symbol(4.0, ("bank.example->evil.example",))}
    (finding,) = findings_of(answer(symbols=symbols), {"PHISHING": "rspamd.link-mismatch"})
    assert finding.name == "rspamd.link-mismatch"
    assert finding.facts["options"] == "bank.example->evil.example"


def test_the_shipped_table_names_findings_of_this_analyzer():
    assert all(name.startswith("rspamd.") for name in load_symbols().values())
