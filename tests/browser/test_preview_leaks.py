"""The safe preview reaches nobody: not by what a page loads, and not by what a reader clicks.

Each reference is first shown without any protection, where it must reach the canary: else it would prove nothing.
"""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, FilePayload, Page, Route

from mailwarden.access.sessions import COOKIE
from mailwarden.message.preview import HEADERS, preview_message
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.canary import Canary
from tests.waiting import wait_until

REFERENCES = {
    "img": "<img src='{to}'>",
    "srcset": "<img srcset='{to} 1x, {to}2 2x'>",
    "picture": "<picture><source srcset='{to}'><img></picture>",
    "style attribute": "<div style=\"background-image:url('{to}')\">x</div>",
    "style element": "<style>p{{background:url('{to}')}}</style><p>x</p>",
    "import": "<style>@import '{to}';</style>",
    "font": "<style>@font-face{{font-family:f;src:url('{to}')}}b{{font-family:f}}</style><b>x</b>",
    "link": "<link rel=stylesheet href='{to}'>",
    "prefetch": "<link rel=prefetch href='{to}'>",
    "preload": "<link rel=preload as=image href='{to}'>",
    "script": "<script src='{to}'></script>",
    "inline script": "<script>fetch('{to}')</script>",
    "event handler": "<img src='data:,' onerror=\"new Image().src='{to}'\">",
    "iframe": "<iframe src='{to}'></iframe>",
    "srcdoc": "<iframe srcdoc=\"<img src='{to}'>\"></iframe>",
    "object": "<object data='{to}'></object>",
    "embed": "<embed src='{to}'>",
    "video": "<video src='{to}' preload=auto></video>",
    "poster": "<video poster='{to}'></video>",
    "audio": "<audio src='{to}' preload=auto></audio>",
    "svg image": "<svg><image href='{to}'/></svg>",
    "svg filter": "<svg><filter id=f><feImage href='{to}'/></filter><rect width=9 height=9 filter='url(#f)'/></svg>",
    "input image": "<input type=image src='{to}'>",
    "body background": "<body background='{to}'>",
    "table background": "<table background='{to}'><tr><td>x</table>",
    "form": "<form action='{to}' id=g></form><script>g.submit()</script>",
}
# A driven Chromium does not follow these even unprotected, so they are shown without proof that they could.
UNPROVED = "<link rel=preconnect href='{to}'><link rel=dns-prefetch href='{to}'><svg><use href='{to}#x'/></svg>"
# These change what the rest of the page means or lead away from it, so each is shown by itself.
ALONE = {
    "refresh": "<meta http-equiv=refresh content='0;url={to}'>",
    "base": "<base href='{to}/'><img src=i>",
}
# After one that leads the page elsewhere, the next is shown in a page of its own.
LEADING = ("refresh", "base")
CLICKS = {
    "link": "<a href='{to}' id=k>click here</a>",
    "form button": "<form action='{to}'><input type=submit id=k value='click here'></form>",
    "area map": "<img usemap='#m' id=k alt='click here' width=90 height=90><map name=m>"
    "<area href='{to}' shape=rect coords='0,0,90,90'></map>",
    "svg link": "<svg id=k width=90 height=90><a href='{to}'><rect width=90 height=90 fill=red /></a></svg>click here",
}
pytestmark = pytest.mark.slow
QUIET_MS = 700  # what loads by itself is asked for as soon as the page is there


@pytest.fixture(scope="module")
def canary(deployment: Deployment) -> Iterator[Canary]:
    tls = deployment.product.abby.folder / "tls"
    with Canary(tls / "abby.crt", tls / "abby.key") as running:
        yield running


@pytest.fixture
def window(chromium: Browser) -> Iterator[BrowserContext]:
    context = chromium.new_context(ignore_https_errors=True)
    context.set_default_timeout(60_000)
    yield context
    context.close()


@pytest.fixture
def analyze(deployment: Deployment, window: BrowserContext) -> Page:
    """Return the page of ours with the frame for previews."""
    url = deployment.product.url.replace("127.0.0.1", "localhost")
    user = sign_in(deployment, "analyst")
    window.add_cookies([{"name": COOKIE, "value": user.cookie, "url": url, "secure": True}])
    page = window.new_page()
    page.goto(url + "/console/analyze")
    return page


def message_of(html: str) -> bytes:
    return b"Subject: x\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>ready</p>" + html.encode() + b"\r\n"


def give(page: Page, html: str) -> None:
    """Give a message to the preview and wait until its frame shows it."""
    file: FilePayload = {"name": "m.eml", "mimeType": "message/rfc822", "buffer": message_of(html)}
    page.set_input_files("#message", file)
    with page.expect_response(lambda response: response.url.endswith("/console/preview")):
        page.click("button:has-text('Safe preview')")
    page.wait_for_timeout(QUIET_MS)


def answer_with(page: Page, document: Callable[[str], str], headers: dict[str, str]) -> Callable[[str], None]:
    """Have the frame's answer replaced by another; return what sets the page that it is made of."""
    wanted: list[str] = []

    def fulfil(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=200, headers=headers, body=document(wanted[-1]))
        else:
            route.continue_()

    page.route("**/console/preview", fulfil)
    return wanted.append


def every_reference(canary: Canary) -> str:
    return UNPROVED.format(to=canary.url) + "".join(
        html.format(to=f"{canary.url}/{name.replace(' ', '-')}") for name, html in REFERENCES.items()
    )


def test_every_reference_reaches_out_where_nothing_protects(canary: Canary, window: BrowserContext) -> None:
    page, quiet = window.new_page(), []
    for name, html in {**REFERENCES, **ALONE}.items():
        place = f"/{name.replace(' ', '-')}"
        if name in LEADING:
            page = window.new_page()
        page.set_content(html.format(to=canary.url + place), wait_until="commit")
        if not reached(page, canary, place):
            quiet.append(name)
    assert quiet == []


def test_every_click_reaches_out_where_nothing_protects(canary: Canary, window: BrowserContext) -> None:
    quiet = []
    for name, html in CLICKS.items():
        place, page = f"/{name.replace(' ', '-')}", window.new_page()
        page.set_content(html.format(to=canary.url + place))
        page.locator("#k").click(position={"x": 5, "y": 5}, force=True, no_wait_after=True)
        if not reached(page, canary, place):
            quiet.append(name)
    assert quiet == []


def reached(page: Page, canary: Canary, place: str) -> bool:
    return wait_until(lambda: pause(page) and any(hit.startswith(place) for hit in canary.hits))


def pause(page: Page) -> bool:
    page.wait_for_timeout(50)  # the page lives only while we wait in its own way
    return True


def test_the_preview_loads_nothing_from_anywhere(canary: Canary, analyze: Page) -> None:
    canary.forget()
    for html in (every_reference(canary), *(each.format(to=canary.url) for each in ALONE.values())):
        give(analyze, html)
        assert analyze.frame_locator("iframe").get_by_text("ready").count() == 1
    assert (canary.hits, canary.connections) == ([], 0)


def test_no_click_in_the_preview_leads_anywhere(canary: Canary, analyze: Page) -> None:
    canary.forget()
    before, frame = analyze.url, analyze.frame_locator("iframe")
    led: list[str] = []
    for name, html in CLICKS.items():
        give(analyze, html.format(to=f"{canary.url}/click"))
        frame.get_by_text("click here").first.click(force=True, no_wait_after=True)
        for note in frame.locator("samp, kbd").all():
            note.click(force=True, no_wait_after=True)
        analyze.wait_for_timeout(QUIET_MS)
        if analyze.url != before or frame.get_by_text("ready").count() != 1:
            led.append(name)
    assert (led, canary.hits, canary.connections) == ([], [], 0)


def test_without_the_sanitiser_the_policy_and_the_frame_still_hold(canary: Canary, analyze: Page) -> None:
    raw = answer_with(analyze, lambda html: f"<!doctype html><body><p>ready</p>{html}", HEADERS)
    canary.forget()
    for html in (every_reference(canary), *(each.format(to=canary.url) for each in ALONE.values())):
        raw(html)
        give(analyze, html)
    for html in CLICKS.values():
        raw(html.format(to=f"{canary.url}/click"))
        give(analyze, html)
        inside = analyze.frame_locator("iframe").locator("#k")
        if inside.count():
            inside.click(position={"x": 5, "y": 5}, force=True, no_wait_after=True)
        analyze.wait_for_timeout(QUIET_MS)
    assert canary.hits == []


def test_without_the_policy_the_sanitiser_still_holds(canary: Canary, analyze: Page) -> None:
    made = answer_with(
        analyze, lambda html: preview_message(message_of(html)).document, {"Content-Type": "text/html; charset=utf-8"}
    )
    canary.forget()
    for html in (every_reference(canary), *(each.format(to=canary.url) for each in ALONE.values())):
        made(html)
        give(analyze, html)
    assert (canary.hits, canary.connections) == ([], 0)
