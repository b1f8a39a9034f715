"""German pages: no text stays English, and nothing is wider than a phone."""

import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser

import pytest

from mailwarden.access.sessions import COOKIE
from mailwarden.console.language import FOLDER
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.screens import OPEN_SCREENS, SCREENS
from tests.browser.window import Window
from workshop.rig.translations import read_catalogue

MAIN = (
    "dashboard",
    "messages-open",
    "message",
    "held",
    "quarantine",
    "cases",
    "case",
    "list-add",
    "key-new",
    "account",
    "start",
    "report",
)
# Fragments that pages load.
PARTS = {"facets": "/console/messages/search/facets?q=to:company.example", "state": "/console/health/state"}
# Elements and classes with values: addresses, ids, subjects, names.
VALUES = frozenset(["code", "pre", "kbd", "script", "style", "textarea", "time", "bdi", "option"])
VALUE_CLASSES = re.compile(r"\bmw-(mono|subject|line-(name|to|tenant)|brand|user-name|tag|cell|wrap|address)\b")
# `hit` is in every hostile string that other tests leave behind.
_VALUE = re.compile(r"[@/:_]|\d\d|\.\w|^[a-z]+(-[a-z]+)+$|^\S{60,}$|[<>{}$=`].*hit|hit.*[<>{}$=`]")
# Names of products, protocols and header fields.
NAMES = (
    *("Mailwarden", "abby", "clamav", "dns", "rspamd", "UTC", "ggrid", "tenantUid", "SHA-256", "DKIM", "SPF", "DMARC"),
    *("From", "Reply-To", "Message-ID"),
)
# Subjects and sentences of the messages that the tests keep.
KEPT = (
    *("Minutes", "Minutes of the meeting", "Final notice", "Your invoice is overdue", "Your parcel is waiting"),
    *("A test of the spam filter", "A sentence", "tests", "soar"),
    *("Your mailbox is full", "Team lunch on Friday", "Prize draw"),  # cases
    *("abuse reports", "text"),  # a feed and its format
    "onboarded",  # a tenant that another test creates
)


class Visible(HTMLParser):
    """Collects the visible texts of a page that are no values."""

    VOID = frozenset(["input", "br", "img", "meta", "link", "hr", "use", "path", "wbr"])

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.texts += [given[name] or "" for name in ("aria-label", "placeholder") if name in given]
        if tag not in self.VOID:
            is_value = tag in VALUES or given.get("translate") == "no"
            is_value = is_value or bool(VALUE_CLASSES.search(given.get("class") or ""))
            self._open.append((tag, is_value or bool(self._open and self._open[-1][1])))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not (self._open and self._open[-1][1]):
            self.texts.append(data)


def texts_of(page: str) -> set[str]:
    visible = Visible()
    visible.feed(page)
    return {text for text in map(bare, visible.texts) if re.search(r"[A-Za-z]{3}", text)}


def bare(text: str) -> str:
    return " ".join(text.split()).removesuffix(" · Mailwarden").strip("·:,.()→ ")


def is_value(text: str, known: frozenset[str]) -> bool:
    """Return whether a text is an address, an id, a name with a hyphen, a list of known names, or very long."""
    names = text.split(", ")
    return all(name in known for name in names) or bool(_VALUE.search(text))


@pytest.fixture(scope="module")
def known_paths(
    deployment: Deployment,
    reported: dict[str, str],
    held: dict[str, str],
    cases: dict[str, str],
    last_week: None,
    feed: str,
    receivers: dict[str, str],
) -> Mapping[str, str]:
    return {
        **deployment.tenants,
        **reported,
        **held,
        **cases,
        "key": deployment.keys["all"].split("_")[1],
        "feed": feed,
        **receivers,
    }


def test_no_text_stays_english(deployment: Deployment, known_paths: Mapping[str, str]) -> None:
    user = sign_in(deployment, "deployment-administrator")
    same = {bare(str(each.id)) for each in read_catalogue(FOLDER / "de.po") if each.id and each.id == each.string}
    keys = {part for key in deployment.keys.values() for part in key.split("_")}
    values = frozenset({*NAMES, *KEPT, *same, *deployment.tenants, *deployment.keys, *keys, user.name})
    english: dict[str, str] = {}  # a screen for each text
    for name, path in {**SCREENS, **OPEN_SCREENS, **PARTS}.items():
        pages = [user.get(path.format(**known_paths), {"Accept-Language": language}).text for language in ("en", "de")]
        if "<html" in pages[1]:
            assert 'lang="de"' in pages[1], name
        both = texts_of(pages[0]) & texts_of(pages[1])
        english |= {text: name for text in both if not is_value(text, values)}
    assert not english, "\n".join(f"{screen}: {text}" for text, screen in english.items())


def test_the_account_has_a_language(deployment: Deployment) -> None:
    user = sign_in(deployment, "analyst")
    assert user.post("/console/account/language", {"language": "xx"}).status_code == 400
    assert user.post("/console/account/language", {"language": "de"}).status_code == 303
    page = user.get("/console/account", {"Accept-Language": "en"}).text
    assert 'lang="de"' in page
    assert "Ihr Konto" in page
    assert user.post("/console/account/language", {"language": ""}).status_code == 303
    assert "Your account" in user.get("/console/account", {"Accept-Language": "en"}).text


def test_errors_are_german(deployment: Deployment) -> None:
    user = sign_in(deployment, "analyst")
    german = {"Accept-Language": "de-DE,de;q=0.9"}
    assert "Es gibt keine solche Seite." in user.get("/console/no/such/page", german).text
    assert "Ihre Rolle umfasst dies nicht." in user.get("/console/users", german).text
    assert "Unbekannter Operator <code>form:</code>" in user.get("/console/messages?q=form:alice", german).text


@pytest.mark.slow
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.long), 390])
def test_german_pages_fit(
    deployment: Deployment, known_paths: Mapping[str, str], open_window: Callable[..., Window], width: int
) -> None:
    window = open_window(width=width)
    window.page.set_extra_http_headers({"Accept-Language": "de"})
    wide = [name for name in OPEN_SCREENS if is_wide(window, name, OPEN_SCREENS[name])]
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    wide += [name for name in MAIN if is_wide(window, name, SCREENS[name].format(**known_paths))]
    assert wide == []


def is_wide(window: Window, name: str, path: str) -> bool:
    """Keep a picture of the page, and return whether it is wider than the window."""
    window.open(path)
    window.keep(f"de-{name}")
    return window.overflows()
