"""The keys of a message are the same for near duplicates, and no key comes from content that unrelated mail shares."""

import random
import time
from email.message import EmailMessage

import pytest

from mailwarden.analysis.similarity import find_similarity, path_pattern
from mailwarden.analysis.view import View
from mailwarden.message.parser import parse_message
from mailwarden.model.envelope import Envelope
from mailwarden.model.similarity import BIN_BYTES, BINS, SIMILAR, Key, KeyKind, Similarity, resemblance
from workshop.evaluate.near_duplicates import change_text

TEXT = (
    "Your parcel with the number 123456 could not be delivered because the customs fee was not paid. Please confirm "
    "the delivery address and pay the outstanding amount within two days, otherwise the parcel returns to the sender. "
    "Our service team answers every question about the shipment and the payment."
)
OTHER = (
    "The minutes of the meeting on Thursday are in the shared folder. Please read the chapter about the northern "
    "building and send corrections to the secretary before the next meeting of the committee takes place."
)


def message(text: str = TEXT, subject: str = "", to: str = "bob@corp.example", **headers: str) -> EmailMessage:
    made = EmailMessage()
    made["From"] = headers.pop("sender", "Post <info@post.example>")
    made["To"] = to
    made["Subject"] = subject
    for name, value in headers.items():
        made[name.replace("_", "-")] = value
    made.set_content(text)
    return made


def similarity(made: EmailMessage, envelope: Envelope | None = None) -> Similarity:
    return find_similarity(View(parse_message(made.as_bytes()), envelope or Envelope("", ())))


def keys(made: EmailMessage, kind: KeyKind, envelope: Envelope | None = None) -> set[Key]:
    return {key for key in similarity(made, envelope).keys if key.kind is kind}


def test_numbers_names_and_links_do_not_change_the_sketch():
    one = similarity(message(f"Dear Bob Miller, {TEXT} https://a.example/x?t=1", to="Bob Miller <bob@corp.example>"))
    two = similarity(
        message(
            f"Dear Zoe Quist, {TEXT.replace('123456', '99')} https://b.example/y?t=2", to="Zoe Quist <zq@other.example>"
        )
    )
    assert one.sketch == two.sketch
    assert len(one.sketch) == BINS * BIN_BYTES


def test_a_few_other_words_leave_most_of_the_sketch():
    own = similarity(message()).sketch
    changed = [similarity(message(change_text(TEXT, random.Random(seed)))).sketch for seed in range(40)]
    assert sum(resemblance(own, each) >= SIMILAR for each in changed) >= 35


def test_unrelated_texts_have_no_key_in_common():
    assert resemblance(similarity(message()).sketch, similarity(message(OTHER)).sketch) < 0.1
    assert not keys(message(), KeyKind.TEXT) & keys(message(OTHER), KeyKind.TEXT)


@pytest.mark.parametrize("text", ["", "ok", "Thank you very much!", "12345 67890 https://a.example/ b@c.example"])
def test_a_text_with_few_words_has_no_key(text):
    assert similarity(message(text, sender="")) == Similarity()


def test_a_short_text_counts_only_with_subject_or_sender():
    text = "Please call back today"
    assert len(keys(message(text), KeyKind.WORDS)) == 1
    assert keys(message(text), KeyKind.WORDS) == keys(message(text), KeyKind.WORDS)
    assert not keys(message(text), KeyKind.WORDS) & keys(message(text, sender="a@x.example"), KeyKind.WORDS)


def test_the_footer_of_a_mailing_list_is_not_compared():
    footer = f"\n_______________________\n{OTHER}"
    assert not similarity(message(f"Thanks.{footer}")).sketch
    assert similarity(message(TEXT + footer)).sketch == similarity(message()).sketch


def test_a_text_without_spaces_is_compared_by_pairs_of_characters():
    text = "お客様の荷物が届いていますが住所が不明なため配達できませんでした至急ご確認ください"
    one, two = (similarity(message(each)) for each in (text, text.replace("至急", "今日")))
    assert resemblance(one.sketch, two.sketch) >= SIMILAR


def test_the_subject_counts_together_with_sender_network_or_link():
    subject = "Your delivery {} is waiting today"
    envelope = Envelope("", (), "203.0.113.7")
    one = message(subject=subject.format(11), text="https://evil.example/a1")
    two = message(subject=subject.format(12), text="https://evil.example/b2")
    for kind in (KeyKind.SENDER, KeyKind.NETWORK, KeyKind.TARGET):
        assert keys(one, kind, envelope) == keys(two, kind, Envelope("", (), "203.0.113.99")) != set(), kind
    other = message(subject=subject.format(12), text="https://evil.example/b2", sender="a@else.example")
    assert keys(other, KeyKind.SENDER) != keys(one, KeyKind.SENDER)


def test_free_mailboxes_count_by_their_address():
    subject = "Your delivery is waiting today"
    one, two = (message(subject=subject, sender=f"{name}@gmail.com") for name in ("a", "b"))
    assert not keys(one, KeyKind.SENDER) & keys(two, KeyKind.SENDER)


@pytest.mark.parametrize(
    "subject", ["Re: Your delivery is waiting today", "AW: Your delivery is waiting", "Invoice 12"]
)
def test_answers_and_short_subjects_have_no_subject_key(subject):
    assert not keys(message(subject=subject), KeyKind.SENDER)


def test_a_rare_link_is_a_key_by_domain_and_path_pattern():
    one = message("https://a1.evil-parcel.example/track/x7f3a9")
    two = message("https://b2.evil-parcel.example/track/99zz81")
    assert keys(one, KeyKind.LINK) == keys(two, KeyKind.LINK) != set()
    assert keys(message("https://a1.evil-parcel.example/other/x7f3a9"), KeyKind.LINK) != keys(one, KeyKind.LINK)


@pytest.mark.parametrize(
    "text",
    [
        "https://www.google.com/maps/place",  # popular
        "https://www.post.example/track/1",  # the sender's own
        "https://www.corp.example/intranet",  # the recipient's own
        "https://rare.example/",  # no path
        "https://rare.example/mailman/listinfo/users",  # in every message of a list
        " ".join(f"https://rare{number}.example/page" for number in range(4)),  # a digest of links
    ],
)
def test_links_that_unrelated_mail_shares_are_no_key(text):
    assert not keys(message(text), KeyKind.LINK)


def test_tokens_of_a_path_are_stars():
    assert path_pattern("https://a.example/Track/8f7a/login.php?u=1") == "track/*/login.php"
    assert path_pattern("https://a.example/") == ""
    assert path_pattern("https://[broken/x") == ""


def test_files_are_one_key_together_and_pictures_are_none():
    def with_files(*files: tuple[bytes, str, str]) -> set[Key]:
        made = message("")
        for content, main, sub in files:
            made.add_attachment(content, main, sub, filename=f"f.{sub}")
        return keys(made, KeyKind.FILES)

    invoice, terms, logo = (
        (b"%PDF-1.4 invoice" * 40, "application", "pdf"),
        (b"%PDF-1.4 terms" * 40, "application", "pdf"),
        (b"\x89PNG" * 200, "image", "png"),
    )
    assert with_files(invoice, terms) == with_files(terms, invoice, logo) != set()
    assert not with_files(invoice, terms) & with_files(terms)
    assert with_files(logo) == set()
    assert with_files((b"tiny", "application", "pdf")) == set()


def test_a_huge_text_costs_little():
    made = View(parse_message(message("a!\"'" * 200_000 + " word" * 200_000).as_bytes()))
    assert made.folded_text
    assert made.links is not None
    started = time.process_time()
    find_similarity(made)
    assert time.process_time() - started < 0.2


def test_resemblance_is_the_share_of_common_bins():
    def sketch(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(BIN_BYTES) for number in (*numbers, *[0] * (BINS - len(numbers))))

    assert resemblance(sketch(1, 2, 3, 4), sketch(1, 2, 3, 4)) == 1
    assert resemblance(sketch(1, 2, 3, 4), sketch(1, 2, 9, 0)) == 0.5
    assert resemblance(b"", b"") == resemblance(sketch(1), b"") == resemblance(sketch(), sketch()) == 0
