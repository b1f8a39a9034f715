"""How messages of a corpus are delivered: envelope, signature, date, and the records of the senders' domains."""

import csv
import re

import dkim
import pytest

from workshop.evaluate.corpus import Corpus
from workshop.evaluate.delivery import (
    RECIPIENT,
    SERVICE,
    STRANGER_ADDRESS,
    Authentication,
    Route,
    deliver,
    recipient_of,
    sender_domain,
    sent_at,
)

MESSAGE = (
    b"Received: from somewhere\n\tby mx.example\nX-Spam-Flag: YES\nFrom: Ann <ann@news.shop.example>\n"
    b"To: Bob <bob@company.example>\nDate: Sat, 1 Feb 2020 10:00:00 +0000\nSubject: hello\n\nHello.\n"
)
COLUMNS = ["path", "label", "group", "language", "source", "mail_from", "auth"]


def write_corpus(folder, rows, columns=COLUMNS, messages=MESSAGE):
    """Write a corpus as folders, with a manifest of these columns."""
    folder.mkdir()
    with (folder / "MANIFEST.csv").open("w", newline="", encoding="utf-8-sig") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        for row in rows:
            table.writerow(row)
            place = folder / row["path"]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(messages)
    return folder


def posted(tmp_path, auth, mail_from="bounce@shop.example"):
    row = {"path": "messages/a/x.eml", "label": "ham", "group": "ham-a", "mail_from": mail_from, "auth": auth}
    corpus = Corpus(write_corpus(tmp_path / "corpus", [row]), tmp_path / "unpacked")
    samples = corpus.samples("dev")
    authentication = Authentication()
    corpus.prepare(samples, authentication)
    return corpus.post(samples[0], 0.0), records_of(authentication)


def records_of(authentication):
    """Return the texts and addresses by name and kind."""
    found = {}
    for line in authentication.records():
        name, _, _, kind, value = line.split(" ", 4)
        found[name.rstrip("."), kind] = value.replace('" "', "").strip('"')
    return found


def is_signed(raw, records):
    """Return the domain of the signature if the published key verifies it."""
    start = raw.find(b"DKIM-Signature:")
    if start < 0:
        return ""
    message = raw[start:]
    assert dkim.verify(message, dnsfunc=lambda name, timeout=5: records[name.decode().rstrip("."), "TXT"].encode())
    return re.findall(rb"\bd=([^;]+);", message)[0].decode()


def test_an_aligned_message_passes_spf_dkim_and_dmarc(tmp_path):
    post, records = posted(tmp_path, "aligned")
    address = post.envelope.remote_address
    assert records["shop.example", "TXT"] == f"v=spf1 ip4:{address} ~all"
    assert is_signed(post.raw, records) == "news.shop.example"
    assert records["_dmarc.news.shop.example", "TXT"] == "v=DMARC1; p=none"
    assert records["_dmarc.shop.example", "TXT"] == "v=DMARC1; p=none"
    assert post.envelope.helo == "mail.shop.example"
    assert records["mail.shop.example", "A"] == address
    assert records[".".join(reversed(address.split("."))) + ".in-addr.arpa", "PTR"] == "mail.shop.example."


def test_a_mailing_service_has_spf_and_the_author_signs(tmp_path):
    post, records = posted(tmp_path, "esp", "b@service.example")
    assert records["service.example", "TXT"] == f"v=spf1 ip4:{post.envelope.remote_address} ~all"
    assert is_signed(post.raw, records) == "news.shop.example"


@pytest.mark.parametrize("auth", ["spf-aligned", "spf-only"])
def test_a_message_with_spf_alone_is_not_signed(tmp_path, auth):
    post, records = posted(tmp_path, auth)
    assert records["shop.example", "TXT"] == f"v=spf1 ip4:{post.envelope.remote_address} ~all"
    assert not is_signed(post.raw, records)
    assert (("_dmarc.shop.example", "TXT") in records) == (auth == "spf-aligned")


def test_another_domain_signs_where_the_manifest_says_so(tmp_path):
    post, records = posted(tmp_path, "dkim-other")
    assert is_signed(post.raw, records) == SERVICE
    assert post.envelope.remote_address == STRANGER_ADDRESS
    assert ("shop.example", "TXT") not in records


@pytest.mark.parametrize("auth", ["none", "a-new-word"])
def test_without_authentication_no_record_allows_the_client(tmp_path, auth):
    post, records = posted(tmp_path, auth)
    assert post.envelope.remote_address == STRANGER_ADDRESS
    assert not is_signed(post.raw, records)
    assert not [name for name, kind in records if kind == "TXT"]


def test_a_forged_sender_fails_spf_and_dmarc(tmp_path):
    post, records = posted(tmp_path, "spoof", "x@news.shop.example")
    assert post.envelope.remote_address == STRANGER_ADDRESS
    assert STRANGER_ADDRESS not in records["news.shop.example", "TXT"]
    assert records["_dmarc.shop.example", "TXT"] == "v=DMARC1; p=quarantine"


def test_a_message_is_delivered_now_without_traces_of_other_servers(tmp_path):
    post, _ = posted(tmp_path, "none")
    assert b"Date: Thu, 01 Jan 1970 00:00:00 -0000\r\n" in post.raw
    assert b"2020" not in post.raw
    assert b"X-Spam-Flag" not in post.raw
    assert post.raw.count(b"Received:") == 1
    assert b"\n" not in post.raw.replace(b"\r\n", b"")
    assert post.envelope.recipients == ("bob@company.example",)
    assert post.sent == 1_580_551_200


@pytest.mark.parametrize("mail_from", ["", "<>", "no address"])
def test_the_null_sender_has_spf_of_the_helo_name(tmp_path, mail_from):
    post, records = posted(tmp_path, "aligned", mail_from)
    assert post.envelope.sender == ""
    assert records[post.envelope.helo, "TXT"] == f"v=spf1 ip4:{post.envelope.remote_address} ~all"


def test_a_corpus_without_these_columns_is_read(tmp_path):
    rows = [
        {"path": "a/1.eml", "group": "ham-a"},
        {"path": "b/2.eml", "group": "attack-b"},
        {"path": "../c/3.eml", "group": "x"},
    ]
    corpus = Corpus(write_corpus(tmp_path / "odd", rows, ["path", "group"]), tmp_path / "unpacked")
    ham, attack = corpus.samples("test")
    assert (ham.is_ham, ham.is_attack, ham.origin, ham.auth) == (True, False, "ham-a", "")
    assert (attack.is_ham, attack.is_attack, attack.kind) == (False, True, "phishing")
    assert corpus.post(ham, 0.0).envelope.sender == "ann@news.shop.example"
    assert corpus.existing([ham, attack]) == [ham, attack]


@pytest.mark.parametrize(
    ("field", "domain"),
    [
        (b"From: =?utf-8?q?Ann_=3Cann=40shop=2Eexample=3E?=", "shop.example"),
        (b'From: "a@b.example" <ann@shop.example>', "shop.example"),
        (b"From: ann", ""),
        (b"From: Ann\n <ann@SHOP.example.>", "shop.example"),
        (b"From: <ann@sh'op.example>", ""),
    ],
)
def test_the_domain_in_from_is_one_that_can_be_published(field, domain):
    assert sender_domain(field + b"\n\nHello.") == domain


def test_the_line_of_a_mailbox_file_is_no_part_of_the_message():
    message = deliver(b"From x@y.example Mon Jan  1 10:00:00 2024\n" + MESSAGE, Route(), RECIPIENT, 0.0, None)
    assert b"2024" not in message
    assert b"From: Ann" in message


def test_a_message_without_to_or_date_is_delivered():
    assert recipient_of(b"From: a@b.example\n\n") == "user@corp-recipient.com"
    assert sent_at(b"Date: yesterday\n\n") == 0
