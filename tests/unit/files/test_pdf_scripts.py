"""The scripts of a document are found wherever they are kept, and those that only define are told from others."""

import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mailwarden.files.pdf import scan, scripts
from mailwarden.files.pdf.objects import PdfObjects
from mailwarden.files.pdf.scan import scan_pdf
from mailwarden.files.pdf.scripts import DocumentScripts, calls_at_once, how_it_acts
from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import LIMITS


def opening_actions(content, packed):
    return scan.opening_actions(PdfObjects((content,), packed), (content, *packed))


def look_at_scripts(content, packed):
    return scripts.look_at_scripts(PdfObjects((content,), packed), (content, *packed))


RUNS = DocumentScripts(runs=True)
QUIET = DocumentScripts()


def kept(script, more=b""):
    """Return a document that keeps one script in its tree of names."""
    tree = b"\n1 0 obj << /Names << /JavaScript 2 0 R >> >> endobj\n2 0 obj << /Names [(a) 3 0 R] >> endobj"
    return tree + b"\n3 0 obj << /S /JavaScript /JS " + script + b" >> endobj\n" + more


def packed(script, filters=b"/FlateDecode"):
    stream = b"4 0 obj << /Filter " + filters + b" >>\nstream\n" + zlib.compress(script) + b"\nendstream endobj"
    return kept(b"4 0 R", stream)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (kept(b"(app.alert\\('x'\\);)"), RUNS),
        (kept(b"(this.print\\(true\\);)"), QUIET),
        (kept(b"(function a\\(b\\) { app.alert\\(b\\); })"), QUIET),
        (kept(b"(function a\\(b\\) { app.alert\\(b\\); } a\\(1\\);)"), RUNS),
        (kept(b"(if \\(app.x\\) { app.alert\\('x'\\); })"), RUNS),
        (kept(b"(\\(function \\(\\) { app.alert\\('x'\\); }\\)\\(\\);)"), RUNS),
        (kept(b"(var a = 'https://x'; app.alert\\(a\\);)"), RUNS),
        (kept(b"(// app.alert\\('x'\\);\n)"), QUIET),
        (packed(b"this.print(true);"), QUIET),
        (packed(b"app.alert('x');"), RUNS),
        (packed(b"this.print(true);", b"[/ASCIIHexDecode /FlateDecode]"), RUNS),
        (packed(b"this.print(true);", b"[/JPXDecode]"), RUNS),
        (packed(b"this.print(true);" + b" " * LIMITS.pdf_script), RUNS),
        (kept(b"(this.print\\(true\\);"), RUNS),
        (b"/JavaScript << /Names [(a) << /S /JavaScript /JS (app.alert\\('x'\\)) >>] >>", RUNS),
        (b"/S /JavaScript /JS (app.alert\\('x'\\))", QUIET),
    ],
)  # fmt: skip
def test_running_and_defining_scripts_are_distinguished(content, reported):
    assert look_at_scripts(content, ()) == reported


@pytest.mark.parametrize(
    "script",
    [
        "app.launchURL('https://a.example/')",
        "function a() { this.getURL('https://a.example/'); }",
        "this.exportDataObject({cName: 'a', nLaunch: 2})",
        "var a = unescape('%75'); eval(a)",
        "this['launch' + 'URL']('x')",
        "Collab.getIcon(a)",
        "this.submitForm('https://a.example/')",
        "eval(a)",
    ],
)
def test_network_access_and_obfuscation_are_reported(script):
    how = how_it_acts(script, calls_at_once(script))
    assert how
    reported = look_at_scripts(packed(script.encode()), ())
    assert reported.acts == how
    assert reported.runs


def test_a_nest_of_braces_is_read_in_no_time():
    began = time.process_time()
    assert calls_at_once("function a() + " + "{ " * 100_000 + "b()") == {"b"}
    assert time.process_time() - began < 5  # counted anew for each piece it took 40 s


def test_comments_without_an_end_are_read_in_no_time():
    began = time.process_time()
    assert calls_at_once("b() " + "/*a" * 60_000) == {"b"}
    assert time.process_time() - began < 5  # looked for anew from each of them, the end took 35 s


def test_nothing_is_called_in_a_comment_and_all_behind_it_is():
    assert calls_at_once("a() /* b() */ c() // d()\ne() '/*' f() \"*/\" g() /* h()") == set("acefgh")


@pytest.mark.parametrize(
    "script", ["function a() { this.submitForm('mailto:a'); }", "function a() { return eval(b); }"]
)
def test_a_function_that_a_button_calls_is_no_attack(script):
    assert look_at_scripts(packed(script.encode()), ()) == QUIET


def test_a_word_written_in_numbers_is_read():
    assert look_at_scripts(kept(b"(app.\\154aunchURL\\('x'\\))"), ()).acts == "it opens an address"


def test_a_tree_under_a_disguised_name_is_found():
    content = b"%PDF-1.7 " + kept(b"(app.launchURL\\('x'\\))").replace(b"/JavaScript", b"/J#61vaScript")
    assert scan_pdf(content).scripts.acts


def test_both_versions_of_a_redefined_object_are_read():
    content = kept(b"(this.print\\(true\\);)", b"\n3 0 obj << /S /JavaScript /JS (app.launchURL\\('x'\\)) >> endobj\n")
    assert look_at_scripts(content, ()).acts


def test_a_tree_larger_than_is_read_is_not_quiet():
    names = b" ".join(b"(a) %d 0 R" % number for number in range(10, 11 + LIMITS.pdf_scripts))
    content = b"/JavaScript 2 0 R\n2 0 obj << /Names [" + names + b"] >> endobj"
    assert look_at_scripts(content, ()) == RUNS


def test_more_scripts_of_one_object_than_are_read_are_not_quiet():
    content = kept(b"(this.print\\(\\))" + b" /JS (this.print\\(\\))" * 18)
    assert look_at_scripts(content, ()) == QUIET
    coverage = Coverage(replace(LIMITS, pdf_scripts=10))
    scripts.look_at_scripts(PdfObjects((content,), (), coverage), (content,))
    assert [missed.limit for missed in coverage.missed] == ["pdf_scripts"]


def test_chained_actions_are_reported():
    following = b"\n7 0 obj << /S /JavaScript /JS (app.alert\\('x'\\)) /Next 7 0 R >> endobj"
    content = b"/OpenAction << /S /GoTo /D [1 0 R /Fit] /Next 7 0 R >>" + following
    assert opening_actions(content, ()) == {"GoTo", "JavaScript"}
    both = b"/OpenAction << /S /JavaScript /JS (this.print\\(\\)) /Next << /S /JavaScript /JS (app.alert\\(1\\)) >> >>"
    assert opening_actions(both, ()) == {"JavaScript"}


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(noise):
    for content in (kept(noise), kept(b"(" + noise), packed(noise), b"/JavaScript 1 0 R 1 0 obj " + noise, noise):
        look_at_scripts(content, (b"1 0 2 5 " + noise,))
