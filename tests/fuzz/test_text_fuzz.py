"""Mutated pages, charsets, calendars, RTF and links raise nothing in the readers of text, and cost bounded time."""

import os
import random
import time
from collections.abc import Callable

import pytest

from mailwarden.analysis.message_values import find_observables
from mailwarden.analysis.view import View
from mailwarden.message.charsets import readings, unread_charset
from mailwarden.message.file_names import ending_of, plain_name
from mailwarden.message.message import Message, Part
from mailwarden.message.urls import find_bare_links, find_urls, host_of, registrable_domain
from mailwarden.model.observables import Observable
from tests.fuzz.mutations import mutate

FULL = bool(os.environ.get("MAILWARDEN_FULL"))
ROUNDS = 20_000 if FULL else 400
SECONDS = 5.0  # of processor time for one input

SPLINTERS = (
    b"<", b">", b'"', b"'", b"&#x", b"\0", b"\x1b$B", b"\x1b(B", b"\x0e", b"~{", b"~\n", b"+ADw-", b"\xff\xfe", b"\\",
    b"//", b"<!--[if mso]>", b"<![endif]-->", b"<svg>", b"<template>", b"<style>", b"url(", b"data:text/html,",
    b"<base href=", b"javascript:", b"https://", b"www.", b".com",
    b"\r\n ", b"\nDESCRIPTION:", b"{\\rtf1", b"\\u12", b"xmlns:h=",
    b"<!ENTITY ",
)  # fmt: skip
PAGES = [
    b'<html><a href="http://a.example/">x</a><form action=x><input type=password></form><script>y</script></html>',
    b'<svg><a xlink:href="https://a.example/"><animate to="https://b.example/"/></a></svg><p style="color:url(x)">',
    b'<!--[if mso]><v:rect href="https://a.example/"/><![endif]--><iframe srcdoc="<a href=x>">',
    b"<?xml?><!DOCTYPE x [<!ENTITY a 'b'>]><x xmlns:h='http://www.w3.org/1999/xhtml'><h:a href='&a;'/></x>",
]
CALENDARS = [
    b'BEGIN:VCALENDAR\r\nSUMMARY;X="a:b":c\\n\r\n d\r\nX-ALT-DESC;FMTTYPE=text/html:<a href=x>\r\nEND:VCALENDAR'
]
RICH = [b'{\\rtf1\\ansicpg1251{\\fonttbl x}\\u1234?{\\field{\\*\\fldinst HYPERLINK "http://a.example/"}}\\par text}']
TEXTS = [b"see https://a.example/b, www.c.example. d.example.com/e?f <http://g.example/\r\nh> 192.0.2.7:80/i"]
LABELS = (
    "",
    "utf-8",
    "utf-7",
    "utf-16",
    "hz-gb-2312",
    "iso-2022-jp",
    "iso-2022-kr",
    "iso-2022-cn",
    "big5",
    "ibm-1047",
    "x",
)


def _read_as(media_type: str) -> Callable[[bytes, str], None]:
    def read(content: bytes, label: str) -> None:
        part = Part("1", media_type, "", "", label, content, "")
        view = View(Message(len(content), "", (), (part,)))
        find_observables(view, (Observable.URLS, Observable.FILES))
        assert view.text is not None
        assert view.folded_texts

    return read


def _read_text(content: bytes, label: str) -> None:
    unread_charset(content, (label,))
    for text in readings(content, (label,), page=True, saved=True):
        for url in (*find_urls(text), *find_bare_links(text)):
            registrable_domain(host_of(url))
        assert ending_of(plain_name(text)) == ending_of(plain_name(plain_name(text)))


TARGETS = {
    "html": (_read_as("text/html"), PAGES),
    "xml": (_read_as("application/xml"), PAGES),
    "calendar": (_read_as("text/calendar"), CALENDARS),
    "rtf": (_read_as("text/rtf"), RICH),
    "charsets": (_read_text, [*PAGES, *TEXTS]),
    "links": (_read_as("text/plain"), TEXTS),
}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_mutated_text_raises_nothing_and_ends_in_time(target):
    read, samples = TARGETS[target]
    dice = random.Random(None if FULL else 20_261_116)
    for _ in range(ROUNDS):
        content = mutate(dice.choice(samples), dice, SPLINTERS)
        started = time.process_time()
        try:
            read(content, dice.choice(LABELS))
        except Exception as error:
            raise AssertionError(f"{error!r} on {content!r}") from error
        assert time.process_time() - started < SECONDS, content
