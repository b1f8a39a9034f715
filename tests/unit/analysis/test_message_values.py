"""What lists can meet is found where it is wanted, and nothing is looked for that is not."""

import base64
import hashlib
import io
import zipfile

import pytest

from mailwarden.analysis.message_values import find_observables
from mailwarden.analysis.view import View
from mailwarden.lists.kinds.attachments import candidates_for_attachment
from mailwarden.lists.kinds.urls import candidates_for_url
from mailwarden.message.parser import parse_message
from mailwarden.model.observables import Observable, Observables
from mailwarden.pipeline.worker_steps import Job, run_steps
from tests.unit.files.makers import mail_with, rar4, rar5, uuencoded, winmail, written

HEAD = b"From: Ada <ada@north.example>\r\nTo: bob@south.example\r\nSubject: s\r\nMIME-Version: 1.0\r\n"


def observe(raw: bytes, *wanted: Observable) -> Observables:
    return find_observables(View(parse_message(raw)), wanted)


def text(body: str, kind: str = "text/plain") -> bytes:
    return HEAD + f"Content-Type: {kind}; charset=utf-8\r\n\r\n{body}\r\n".encode()


def attached(name: str, content: bytes) -> bytes:
    head = f'Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename="{name}"\r\n'
    encoded = base64.encodebytes(content).replace(b"\n", b"\r\n")
    pieces = [
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n",
        b"--b\r\n" + head.encode() + b"Content-Transfer-Encoding: base64\r\n\r\n" + encoded,
        b"--b--\r\n",
    ]
    return HEAD + b"".join(pieces)


def archive(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as opened:
        for name, content in files.items():
            opened.writestr(name.replace("_", "."), content)
    return packed.getvalue()


def test_nothing_is_looked_for_that_is_not_wanted():
    assert observe(text("http://a.example/")) == Observables()
    assert [frame.observables for frame in run_steps(Job(text("http://a.example/"))) if frame.observables] == []


def test_a_worker_returns_the_requested_observables():
    frames = list(run_steps(Job(text("http://a.example/x"), wanted=(Observable.URLS,))))
    assert [frame.observables.urls for frame in frames if frame.observables] == [("http://a.example/x",)]
    assert "observables" in [frame.report.analyzer for frame in frames]
    assert frames[-1].last


@pytest.mark.parametrize(
    "body",
    [
        '<a href="https://a.example/x">here</a>',
        '<form action="https://a.example/x"></form>',
        '<img src="https://a.example/x">',
        '<iframe src="https://a.example/x"></iframe>',
        '<meta http-equiv="refresh" content="0;url=https://a.example/x">',
        "<p>go to https://a.example/x</p>",
        '<map><area href="https://a.example/x"></map>',
    ],
)
def test_links_are_found_wherever_a_page_can_lead_to(body):
    assert "https://a.example/x" in observe(text(body, "text/html"), Observable.URLS).urls


def test_many_harmless_links_do_not_hide_a_host():
    links = "\n".join(f"http://harmless.example/{number}" for number in range(5_000))
    seen = observe(text(f"{links}\nhttp://thief.example/pay"), Observable.URLS)
    assert "http://thief.example/pay" in seen.urls
    assert len(seen.urls) == 5_001


def test_a_file_has_its_digests_and_the_text_is_no_file():
    body, file = observe(attached("tool.bin", b"content"), Observable.FILES, Observable.DIGESTS).files
    assert (body.is_body, file.is_body) == (True, False)
    assert (file.name, file.sha256) == ("tool.bin", hashlib.sha256(b"content").hexdigest())
    assert (file.sha1, file.md5) == (hashlib.sha1(b"content").hexdigest(), hashlib.md5(b"content").hexdigest())


def test_names_inside_a_document_mean_nothing_but_its_files_are_seen():
    document = archive(mimetype=b"t", word_bin=b"x")
    _, file = observe(attached("report.docx", document), Observable.FILES, Observable.INSIDE).files
    assert [inner.name for inner in file.inside] == ["", ""]
    assert hashlib.sha256(b"x").hexdigest() in {inner.sha256 for inner in file.inside}
    _, file = observe(attached("report.docx", archive(run_js=b"x")), Observable.FILES, Observable.INSIDE).files
    assert [inner.name for inner in file.inside] == ["run.js"]  # an archive that is only called a document


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("winmail.dat", winmail((b"run.js", b"script"))),
        ("forwarded.eml", mail_with(("run.js", b"script"))),
        ("all.rar", rar5({"run.js": b"script"})),
        ("all.7z", written("7zip", {"run.js": b"script"})),
        ("all.zip", archive(a_eml=mail_with(("b.rar", rar4({"run.js": b"script"}))))),
        ("text.txt", uuencoded(b"run.js", b"script")),
    ],
)
def test_files_in_every_container_are_seen_with_their_digests(name, content):
    _, file, *_ = observe(attached(name, content), Observable.FILES, Observable.INSIDE, Observable.DIGESTS).files
    digests = tuple(hashlib.new(kind, b"script").hexdigest() for kind in ("sha256", "sha1", "md5"))
    assert ("run.js", *digests) in {(each.name, each.sha256, each.sha1, each.md5) for each in file.inside}


def test_the_end_of_a_long_name_is_kept():
    _, *files = observe(attached("a" * 2_000 + ".exe", b"x"), Observable.FILES).files
    assert all(file.name.endswith(".exe") for file in files)


def test_every_sender_of_every_from_is_seen():
    raw = b"From: a@one.example, b@two.example\r\nFrom: c@three.example\r\n" + text("x")[6 + 24 :]
    assert {"a@one.example", "b@two.example", "c@three.example"} <= set(observe(raw, Observable.SENDERS).senders)


def test_every_subject_is_seen():
    raw = b"Subject: minutes\r\n" + text("hello").replace(b"Subject: s", b"subject: =?utf-8?q?You_have_won?=")
    assert observe(raw, Observable.SUBJECTS).subjects == ("minutes", "You have won")
    assert observe(raw, Observable.SENDERS).subjects == ()


@pytest.mark.parametrize("kind", ["text/plain", "text/html"])
def test_a_host_without_scheme_is_a_link_in_a_body(kind):
    seen = observe(
        text("Pay at evil-pay.com/now, or at Other.co.uk. Not ann@mail.com, a.b or notes.pdf", kind), Observable.URLS
    )
    assert seen.urls == ("http://evil-pay.com/now", "http://Other.co.uk")


def test_names_of_other_alphabets_become_links_in_both_spellings():
    seen = observe(text("пример.рф or xn--e1afmkfd.xn--p1ai"), Observable.URLS)
    assert seen.urls == ("http://пример.рф", "http://xn--e1afmkfd.xn--p1ai")


def test_a_name_in_the_query_of_another_link_is_no_link():
    assert observe(text("see https://a.example/?to=evil-pay.com today"), Observable.URLS).urls == (
        "https://a.example/?to=evil-pay.com",
    )


def test_a_long_log_has_not_too_many_links_and_hides_none():
    seen = observe(text(" ".join(f"module{n}.py" for n in range(1_500)) + " https://evil-pay.com/now"), Observable.URLS)
    assert seen.urls[0] == "https://evil-pay.com/now"


def test_names_in_a_file_become_no_links():
    raw = text("evil-pay.com", "text/csv").replace(b"\r\n\r\n", b"\r\nContent-Disposition: attachment\r\n\r\n")
    assert observe(raw, Observable.URLS).urls == ()


def test_hops_are_followed_until_one_names_no_address():
    hops = (
        b"Received: from a.example (a.example [192.0.2.1]) by b.example (Postfix) with ESMTP id 1; x\r\n"
        b"Received: from c.example (unknown [IPv6:2001:db8::7])\r\n by d.example (Postfix) with ESMTP id 2; x\r\n"
        b"Received: by local with LMTP; x\r\nReceived: from e.example ([192.0.2.9]) by f.example with esmtp; x\r\n"
    )
    assert observe(hops + text("x"), Observable.RELAYS).relays == ("192.0.2.1", "2001:db8::7")


FORMS = {
    "button": '<form action="https://b.example/"><button formaction="https://a.example/x">go</button></form>',
    "vml": '<v:roundrect xmlns:v="urn:schemas-microsoft-com:vml" href="https://a.example/x">go</v:roundrect>',
    "vml-picture": '<v:fill src="https://a.example/x" />',
    "outlook": '<!--[if mso]><a href="https://a.example/x">go</a><![endif]-->',
    "not-outlook": '<!--[if !mso]><!--><a href="https://a.example/x">go</a><!--<![endif]-->',
    "svg": '<svg><a xlink:href="https://a.example/x"><text>go</text></a></svg>',
    "svg-animation": '<svg><a><animate attributeName="href" to="https://a.example/x"/>go</a></svg>',
    "style": '<p style="background:url(https://a.example/x)">go</p>',
    "escaped-style": '<p style="background:u\\72 l(&quot;https://a.example/x&quot;)">go</p>',
    "sheet": "<style>@import 'https://a.example/x';</style>",
    "srcset": '<img srcset="https://b.example/1 1x, https://a.example/x 2x">',
    "background": '<table background="https://a.example/x"><tr><td>go</table>',
    "poster": '<video poster="https://a.example/x"></video>',
    "object": '<object data="https://a.example/x"></object>',
    "script": '<script src="https://a.example/x"></script>',
    "base": '<base href="https://a.example/y"><a href="x">go</a>',
    "refresh": '<meta http-equiv="refresh" content="0; https://a.example/x">',
    "control": '<a href="\x01 https://a.example/x">go</a>',
    "newline": '<a href="htt\nps://a.exa\tmple/x">go</a>',
    "entities": '<a href="&#104;ttps:&#x2f;&sol;a&period;example/x">go</a>',
    "case": '<A HREF="HTTPS://A.EXAMPLE/x">go</A>',
    "template": '<template><a href="https://a.example/x">go</a></template>',
    "noframes": '<noframes><a href="https://a.example/x">go</a></noframes>',
    "data": '<a href="data:text/html,%3Ca%20href=https://a.example/x%3Ego%3C/a%3E">go</a>',
    "srcdoc": "<iframe srcdoc=\"<a href='https://a.example/x'>go</a>\"></iframe>",
    "javascript": "<a href=\"javascript:location='https://a.example/x'\">go</a>",
    "handler": "<a onclick=\"location='https://a.example/x'\">go</a>",
    "text": "<p>go to https://a.example/x</p>",
    "shown-on-a-link": '<a href="https://b.example/">https://a.example/x</a>',
}


@pytest.mark.parametrize("form", FORMS)
def test_lists_match_every_form_of_a_link(form):
    urls = observe(text(FORMS[form], "text/html"), Observable.URLS).urls
    assert "a.example/x" in {key for url in urls for key in candidates_for_url(url)}


@pytest.mark.parametrize(
    "page",
    [
        b"Content-Type: text/html; charset=utf-7\r\n\r\n+ADw-a href+AD0AIg-https://a.example/x+ACIAPg-go+ADw-/a+AD4-",
        b"Content-Type: text/html; charset=us-ascii; charset=utf-7\r\n\r\n+ADw-a href+AD0-https://a.example/x+AD4-go",
        b"Content-Type: text/html\r\n\r\n+ADw-a href+AD0-https://a.example/x+AD4-go",
        b"Content-Type: text/html\r\n\r\n<meta charset=iso-2022-jp><a hr\x1b(Bef='https://a.exa\x1b(Bmple/x'>go</a>",
        b"Content-Type: text/html\r\n\r\n<meta charset=hz-gb-2312><a hr~\nef='https://a.exa~\nmple/x'>go</a>",
        b"Content-Type: text/html\r\n\r\n<a\0 href='https://a.exam\0ple/x'>go</a>",
        b"Content-Type: text/x-html\r\n\r\n<html><a href='https://a.example/x'>go</a>",
        b"Content-Type: text/enriched\r\n\r\n<bold>go</bold> https://a.example/x",
        b'Content-Type: text/html; name="a.txt"\r\nContent-Disposition: inline\r\n\r\n<a href="https://a.example/x">go</a>',
        b"Content-Type: text/plain; format=flowed; delsp=yes\r\n\r\ngo to https://a.exam \r\nple/x",
        b"Content-Type: text/plain\r\n\r\ngo to <https://a.example\r\n/x> now",
        b'Content-Type: text/rtf\r\n\r\n{\\rtf1{\\field{\\*\\fldinst HYPERLINK "https://a.example/x"}{\\fldrslt go}}}',
        b"Content-Type: text/calendar\r\n\r\nBEGIN:VCALENDAR\r\nATTACH:https://a.exam\r\n ple/x\r\nEND:VCALENDAR",
        b'Content-Type: text/calendar\r\n\r\nBEGIN:VCALENDAR\r\nX-ALT-DESC:<a href="https://a.example/x">go\r\n',
        b"Content-Type: text/vcard\r\n\r\nBEGIN:VCARD\r\nURL:https://a.example/x\r\nEND:VCARD",
        b"Content-Type: text/xml\r\n\r\n<x xmlns:h='http://www.w3.org/1999/xhtml'><h:a href='https://a.example/x'>go</h:a></x>",
    ],
    ids=lambda page: page[14:60].decode("ascii", "replace").split("\r")[0],
)
def test_links_match_as_clients_decode_them(page):
    urls = observe(HEAD + page + b"\r\n", Observable.URLS).urls
    assert "a.example/x" in {key for url in urls for key in candidates_for_url(url)}


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037", "cp500", "cp1140"])
def test_links_in_non_ascii_charsets_match(codec):
    page = base64.encodebytes('<html><a href="https://a.example/x">go</a></html>'.encode(codec))
    label = "" if codec.startswith("utf") else f"; charset={codec}"
    head = f"Content-Type: text/html{label}\r\nContent-Transfer-Encoding: base64\r\n\r\n".encode()
    assert "https://a.example/x" in observe(HEAD + head + page, Observable.URLS).urls


def test_a_bare_host_name_in_the_body_matches():
    assert "http://a.example.com/x" in observe(text("<p>a.example.com/x</p>", "text/html"), Observable.URLS).urls


@pytest.mark.parametrize(
    "names",
    [
        'Content-Type: application/pdf; name="a.pdf"\r\nContent-Disposition: attachment; filename="a.exe"',
        'Content-Type: application/pdf; name="a.exe"\r\nContent-Disposition: attachment; filename="a.pdf"',
        "Content-Type: application/pdf\r\nContent-Disposition: attachment; filename=a.pdf; filename*=utf-8''a%2Eexe",
        'Content-Type: application/pdf\r\nContent-Disposition: attachment; filename="a.exe. . "',
        'Content-Type: application/pdf\r\nContent-Disposition: attachment; filename="a.exe::$DATA"',
        'Content-Type: application/pdf\r\nContent-Disposition: attachment; filename="=?utf-8?q?a=2Eex=E2=80=8Be?="',
        'Content-Type: application/pdf\r\nContent-Disposition: attachment; filename*0="a.e"; filename*1="xe"',
        "Content-Type: application/x-msdownload\r\nContent-Disposition: attachment",
    ],
)
def test_a_file_has_every_ending_that_a_client_may_give_it(names):
    files = observe(HEAD + f"{names}\r\n\r\nhello\r\n".encode(), Observable.FILES).files
    found = {key for file in files for key in candidates_for_attachment(file.name, file.media_type)}
    assert ".exe" in found
