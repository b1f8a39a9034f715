"""HTML yields its links, forms, scripts and tricks, to the last tag."""

import time

from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.coverage import Coverage
from mailwarden.message.html import Form, read_html
from mailwarden.message.html_links import Link
from mailwarden.message.limits import Limits
from mailwarden.model.place import Place
from tests.properties import examples


def test_links_come_with_the_text_that_is_seen():
    document = read_html('<p><a href=" http://a.example/ ">www.<b>bank</b>.example</a><area href="/map"></p>')
    assert document.links == (Link("http://a.example/", "www.bank.example", "a"), Link("/map", "", "area"))


def test_a_password_form_is_reported():
    document = read_html('<form action="http://a.example/take" method=POST><input type="PASSWORD"></form><form></form>')
    assert document.forms == (Form("http://a.example/take", "post", True), Form("", "get", False))


def test_scripts_frames_refreshes_and_data_uris_are_listed():
    document = read_html(
        "<script>alert(1)</script><iframe src=http://a.example/></iframe><img src=http://b.example/i.png>"
        '<meta http-equiv="Refresh" content="0; URL=http://c.example/x"><a href="data:text/html;base64,AAAA">x</a>'
    )
    assert document.scripts == ("alert(1)",)
    assert document.frames == ("http://a.example/",)
    assert document.images == ("http://b.example/i.png",)
    assert document.refreshes == ("http://c.example/x",)
    assert document.data_uris == ("data:text/html;base64,AAAA",)


def test_hidden_elements_are_counted_and_text_is_read():
    document = read_html(
        "<title>T</title><p>seen</p><p style='display : none'>not</p><p style='font-size:0.9em'>small</p>"
    )
    assert document.hidden == 1
    assert document.title == "T"
    assert "seen" in document.text


def test_links_behind_ten_thousand_tags_are_still_found():
    coverage = Coverage()
    document = read_html("<p>x</p>" * 10_000 + "<a href=http://last.example/>x</a>", coverage)
    assert document.links[-1].href == "http://last.example/"
    assert coverage.complete


def test_links_are_bounded_and_the_cut_is_recorded():
    coverage = Coverage(Limits(urls=10_240))
    document = read_html("<a href=http://x.example>x</a>" * 11_000, coverage, Place(part="1"))
    assert len(document.links) == 10_240
    assert [(missed.place, missed.limit) for missed in coverage.missed] == [(Place(part="1"), "urls")]


def test_deep_html_is_read_in_time_and_its_links_are_found():
    started = time.process_time()  # other processes may be busy
    document = read_html("<div><b>" * 50_000 + "<a href=http://deep.example/>x</a>")
    assert time.process_time() - started < 3
    assert document.links[0].href == "http://deep.example/"


@given(st.text(max_size=500))
@examples(100)
def test_any_text_is_read(text: str):
    read_html(text)
    read_html("<a href='" + text)


def test_text_that_people_do_not_see_is_counted_by_how_it_is_hidden():
    page = read_html(
        '<div style="display:none">twelve signs</div><p style="font-size:0">seven77</p>'
        '<p style="color:#fff">nine99999</p><td style="font-size:0"><b style="font-size:12px">shown</b></td>'
    )
    assert (page.gone_text, page.tiny_text, page.pale_text) == (12, 7, 9)


def test_links_without_a_host_lead_to_that_of_the_base():
    page = read_html('<base href="https://thief.example/a/"><a href="login">x</a><a href="#top">y</a>')
    assert [link.href for link in page.links] == ["https://thief.example/a/login", "#top"]


def test_a_long_text_is_cut_where_a_short_one_would_be():
    words = ("word" + " " * 20 + "and\n") * 60_000
    page = f"<p>{words}</p>" * 2
    whole = " ".join((words * 2).split())
    taken = len(" ".join(words[:250_000].split()))  # of the first piece
    for most in (len(whole) - 1, len(whole), len(whole) + 1, 5, *range(taken - 2, taken + 12)):
        coverage = Coverage(Limits(html_text=most))
        assert read_html(page, coverage).text == whole[:most]
        assert coverage.complete == (len(whole) <= most)
