"""Content that arrives late moves no control, and neither replaces nor reloads what the user has changed."""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from mailwarden.access.sessions import COOKIE
from mailwarden.console.templating import TEMPLATE_FOLDER
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment, run_command
from tests.acceptance.held import finish_releases, keep
from tests.browser.late import LateAnswers, change_answers, moved_controls, remember_controls, wait_in
from tests.browser.window import Window
from workshop.rig.samples import plain_message

LONG = pytest.mark.long
WIDTHS = [1280, pytest.param(390, marks=LONG)]
ANN, BOB, CAROL = "ann@company.example", "bob@company.example", "carol@company.example"
INDICATORS = "**/indicators?*"
LOADED = {
    "message": ("/console/messages/{malware}", INDICATORS),
    "held": ("/console/quarantine/{held}", INDICATORS),
    "messages": ("/console/messages", "**/search/facets*"),
    "messages-found": ("/console/messages?q=tenant:acme&range=30d", "**/search/facets*"),
    "messages-none": ("/console/messages?q=subject:minuets+tenant:acme&range=30d", "**/messages?*near=1*"),
}
POLLED = {
    "dashboard": ("/console/", "**/dashboard/state*", "#reasons-title"),
    "health": ("/console/health", "**/health/state*", "#settings-title"),
    "messages-tail": ("/console/messages?tail=1", "**/tail/rows*", "#rows .mw-line"),
    "key": ("/console/keys/{key}", "**/keys/*/first", "dl"),
}
# Every trigger of the templates; the tests below delay each of them.
TRIGGERS = (
    "dashboard/index.html: every 5s",
    "health/index.html: every 5s",
    "keys/first.html: every 2s",
    "lists/list.html: submit, input changed delay:400ms from:#q",
    "message/body.html: load",
    "message/status.html: every 2s",
    "messages/index.html: every 2s",
    "messages/index.html: load",
    "messages/index.html: load",
)
NEW = '<li class="alert new"><p>New</p><p>and</p><p>as high as several rows</p></li>'


def test_every_part_that_arrives_late_is_in_a_table() -> None:
    found = sorted(
        f"{path.relative_to(TEMPLATE_FOLDER)}: {trigger}"
        for path in TEMPLATE_FOLDER.rglob("*.html")
        for trigger in re.findall(r'hx-trigger="([^"]*)"', path.read_text())
    )
    assert found == sorted(TRIGGERS)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", LOADED)
def test_a_part_that_loads_late_moves_no_control(
    deployment: Deployment,
    scanned: dict[str, str],
    held: dict[str, str],
    open_window: Callable[..., Window],
    name: str,
    width: int,
) -> None:
    window = open_window(width=width)
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    path, pattern = LOADED[name]
    late = LateAnswers(window.page, pattern)
    window.page.goto(window.url + path.format(**scanned, **held))
    remember_controls(window.page)
    late.arrive()
    assert moved_controls(window.page) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["held", "messages"])
def test_a_part_that_fails_moves_no_control_and_says_so(
    deployment: Deployment, held: dict[str, str], open_window: Callable[..., Window], name: str
) -> None:
    window = open_window(width=390)
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    path, pattern = LOADED[name]
    late = LateAnswers(window.page, pattern)
    window.page.goto(window.url + path.format(**held))
    remember_controls(window.page)
    late.fail()
    expect(window.page.get_by_text("not counted in time").first).to_be_visible()
    assert moved_controls(window.page) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_tick_that_is_removed_before_the_counts_stays_removed(
    deployment: Deployment, open_window: Callable[..., Window], width: int
) -> None:
    uid = keep(deployment, subject=f"Minutes, {width} wide", raw=plain_message(), recipients=(ANN, BOB))
    window = open_window(width=width)
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    late = LateAnswers(window.page, INDICATORS)
    page = window.page
    page.goto(f"{window.url}/console/quarantine/{uid}")
    box = page.get_by_label(BOB)
    box.scroll_into_view_if_needed()
    before = box.bounding_box()
    box.uncheck()
    late.arrive()
    assert box.bounding_box() == before
    expect(box).not_to_be_checked()
    expect(page.get_by_text("in 30 days").first).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", POLLED)
def test_a_poll_waits_while_the_pointer_is_on_a_control(
    deployment: Deployment, scanned: dict[str, str], open_window: Callable[..., Window], name: str, width: int
) -> None:
    root = sign_in(deployment, "deployment-administrator")
    window = open_window(width=width)
    window.carry(COOKIE, root.cookie)
    path, pattern, place = POLLED[name]
    key = new_key(deployment) if name == "key" else ""
    opened = path.format(key=key)
    change_answers(window.page, re.compile(re.escape(window.url + opened) + "$"), faster)
    page = window.open(opened)
    control = page.locator("#rows .mw-line-open, #state a, main summary, #first-request a").first
    control.hover()
    remember_controls(page)
    answered = change_answers(page, pattern, lambda body: NEW + faster(body))
    wait_in(page, lambda: len(answered) >= 2)
    assert moved_controls(page) == []
    page.locator("main h1").first.hover()
    expect(page.locator(".new").first).to_be_visible()  # the poll goes on
    expect(page.locator(place).first).to_be_visible()


def faster(body: str) -> str:
    """Let a page poll more often, so that nobody waits for it."""
    return body.replace('hx-trigger="every 5s"', 'hx-trigger="every 2s"')


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_with_changed_input_does_not_reload_by_itself(
    deployment: Deployment, open_window: Callable[..., Window], width: int
) -> None:
    uid = keep(deployment, subject=f"Agenda, {width} wide", raw=plain_message(), recipients=(ANN, BOB, CAROL))
    window = open_window(width=width)
    user = sign_in(deployment, "analyst", ["acme"])
    window.carry(COOKIE, user.cookie)
    user.post(f"/console/quarantine/{uid}/release", {"some": "1", "to": ANN})
    page = window.open(f"/console/quarantine/{uid}")
    page.get_by_text("this page reloads by itself").wait_for()
    page.get_by_label(BOB).uncheck()
    remember_controls(page)
    finish_releases(deployment)
    page.get_by_text("This page keeps what you entered").wait_for()
    assert moved_controls(page) == []
    expect(page.get_by_label(BOB)).not_to_be_checked()
    page.get_by_label(BOB).check()
    page.locator("main h1").first.hover()
    page.get_by_text("this page reloads by itself").wait_for(state="detached")
    expect(page.get_by_label(CAROL)).to_be_checked()


@pytest.mark.slow
def test_an_entry_ticked_before_the_results_arrive_stays_ticked(
    deployment: Deployment, open_window: Callable[..., Window]
) -> None:
    assert deployment.lists(tenant="acme").add("sender-block", "late-one.example", "late-two.example").status == 200
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    # Other tests fill the list: the first page has these entries only if it is searched for them.
    page = window.open(f"/console/lists/sender-block?scope={deployment.tenants['acme']}&q=lat")
    late = LateAnswers(page, "**/lists/sender-block?*q=late*")
    page.get_by_label("Search in entries").fill("late")
    page.get_by_label("Choose late-two.example").check()
    late.arrive()
    expect(page.get_by_text("with “late”")).to_be_visible()
    expect(page.get_by_label("Choose late-two.example")).to_be_checked()
    expect(page.get_by_label("Choose late-one.example")).not_to_be_checked()


def new_key(deployment: Deployment) -> str:
    """Make a key that nobody has used, and return its id."""
    where = ("-o", "json", "--config", str(deployment.product.abby.folder))
    made = json.loads(run_command("keys", "create", "late", "--scope", "lists:read", "--global", *where))
    return str(made["key"]).split("_")[1]
