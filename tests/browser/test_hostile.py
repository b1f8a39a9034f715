"""Hostile strings in messages, lists and names: every page that shows them shows text and nothing else.

The gate has each of fifty shapes once, `make check-long` each with ten calls: five hundred strings.

The pages are not named here: a crawler follows every link of the console from the dashboard on, so that a new screen
is covered from its first link.
"""

import re
import unicodedata
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.policy import SMTP
from urllib.parse import urlsplit

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import ConsoleSession, sign_in
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import keep
from tests.browser.hostile import hostile_strings, some_hostile_strings
from tests.browser.screens import FULL
from tests.browser.window import Window
from tests.waiting import wait_until

# How many pages of one kind are opened; a kind is an address with its ids and its values taken out.
OF_A_KIND = 40 if FULL else 2
DETAILS = 500 if FULL else 20
SHAPES = 50
BATCH = 250
LEARNING = "/console/training?tenant={acme}"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/)[0-9a-z]{12}(?=/|$)|(?<=/)[0-9]+(?=/|$)")
_LIST = re.compile(r"(?<=/lists/)[a-z]+-[a-z-]+")


def message_of(text: str) -> bytes:
    """Return a message that says the text wherever a sender may say something."""
    message = EmailMessage(policy=SMTP.clone(utf8=False))
    message["Subject"] = text
    message["From"] = f'"{_quoted(text)}" <mallory@hostile.example>'
    message["To"] = f'"{_quoted(text)}" <bob@company.example>'
    message.set_content(text)
    message.add_alternative(f"<p><a href='https://hostile.example/'>{text}</a></p>", subtype="html")
    message.add_attachment(text.encode(), maintype="application", subtype="octet-stream", filename=text)
    return message.as_bytes()


def _writable(text: str) -> str:
    """Return the text without the invisible characters that no entry may hold; its comment holds them."""
    return "".join(sign for sign in text if unicodedata.category(sign) != "Cf")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@pytest.fixture(scope="module")
def planted(deployment: Deployment) -> ConsoleSession:
    """Plant every string in messages, in lists as entries and comments, and in the names that people choose."""
    texts = hostile_strings() if FULL else some_hostile_strings()
    step = len(texts) // SHAPES
    client = deployment.client()
    envelope = {"envelopeFrom": "mallory@hostile.example", "envelopeRecipients": ["bob@company.example"],
                "remoteAddress": "192.0.2.66", "senderHelo": "hostile.example"}  # fmt: skip
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda t: client.submit(message_of(t), {"borderMtaData": envelope}), texts))
    assert {answer.status for answer in answers} == {200}
    lists = deployment.lists("all", "acme")
    for start in range(0, len(texts), BATCH):
        some = texts[start : start + BATCH]
        assert lists.add("subject-block", *({"entry": _writable(t), "comment": t} for t in some)).status == 200
        names = ({"entry": f"h{start + n}.hostile.example", "comment": t} for n, t in enumerate(some))
        assert lists.add("sender-block", *names).status == 200
    root = sign_in(deployment, "deployment-administrator")
    for text in [text for text in texts if len(text) <= 100 and text.isprintable()][:: 2 * step]:
        fields = {"name": text, "scopes": "lists:read", "bound": deployment.tenants["acme"], "lifetime": ""}
        assert root.post("/console/keys/new", fields).status_code == 303
        assert root.post("/console/tenants/new", {"name": text}).status_code == 303
    for answer in answers[::step]:
        path = f"/console/messages/{answer.result['ggrid']}/report"
        assert root.post(path, {"kind": "spam"}, files={}).status_code == 303
    for text in texts[::step]:
        keep(deployment, subject=text, sentence=text, name=text, sender=text, recipients=(text, "bob@company.example"))
    assert wait_until(lambda: client.explain(answers[-1].result["ggrid"]).status == 200, pause=0.2)
    return root


@pytest.mark.slow
def test_no_string_of_a_message_or_a_list_comes_to_life_on_any_page(
    deployment: Deployment, planted: ConsoleSession, open_window: Callable[..., Window]
) -> None:
    window = open_window()
    window.carry(COOKIE, planted.cookie)
    opened = crawl(
        window,
        *(f"/console/lists/{name}?scope={deployment.tenants['acme']}" for name in ("subject-block", "sender-block")),
        LEARNING.format(**deployment.tenants),
        "/console/quarantine",
    )
    assert opened["/console/messages/{id}"] >= DETAILS
    assert len(opened) >= 20
    assert window.open(LEARNING.format(**deployment.tenants)).content().count("&lt;script&gt;") >= 5
    assert window.open("/console/quarantine").content().count("&lt;script&gt;") >= 2
    assert opened["/console/quarantine/{id}"] >= OF_A_KIND
    shown = window.open("/console/messages?q=domain:hostile.example").content()
    assert shown.count("&lt;script&gt;") >= 5
    assert csp_reports(deployment) == 0


def crawl(window: Window, *more: str) -> Counter[str]:
    """Open the pages that links lead to, each address once; return how many of each kind were opened."""
    waiting = deque(["/console/", "/console/messages?q=domain:hostile.example", *more])
    opened: Counter[str] = Counter()
    seen: set[str] = set(waiting)
    while waiting:
        path = waiting.popleft()
        kind = kind_of(path)
        if opened[kind] >= (DETAILS if kind == "/console/messages/{id}" else OF_A_KIND):
            continue
        response = window.page.goto(window.url + path)
        assert response is not None
        assert response.status < 500, path
        window.look()
        opened[kind] += 1
        for link in links_of(window):
            if link not in seen:
                seen.add(link)
                waiting.append(link)
    return opened


def links_of(window: Window) -> list[str]:
    """Return the console's own pages that this page leads to; files to download are left out."""
    links = window.page.eval_on_selector_all("a[href]", "all => all.map(each => each.href)")
    parts = [urlsplit(link) for link in links if link.startswith(window.url + "/console/")]
    pages = [part for part in parts if "/export/" not in part.path and not part.path.endswith("/pdf")]
    return [part._replace(scheme="", netloc="", fragment="").geturl() for part in pages]


def kind_of(path: str) -> str:
    return _LIST.sub("{list}", _ID.sub("{id}", urlsplit(path).path))


def csp_reports(deployment: Deployment) -> float:
    """Return how often a browser told that the policy stopped something, by abby's own count."""
    page = deployment.client("meter").call("GET", "/metrics").body.decode()
    return sum(
        float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith("mailwarden_csp_reports")
    )
