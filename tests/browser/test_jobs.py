"""Five jobs of an analyst among many messages: how many clicks and seconds each takes.

A click is one on a link, a button, a row or a box; typing a search and Enter is none. MAILWARDEN_FULL=1 stores 5,000
messages (`make check-long`), otherwise there are 500.
"""

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, expect

from mailwarden.access.sessions import COOKIE
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import CampaignIds
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import deliver, keep, state_of
from tests.acceptance.test_console_weights import HELD_MESSAGE, RULE, decision_of, scanned
from tests.browser.window import Window
from tests.waiting import wait_until

MESSAGES = 5_000 if os.environ.get("MAILWARDEN_FULL") == "1" else 500
WORDS = ("minutes", "invoice", "order", "meeting", "report", "delivery", "contract", "holiday", "lunch", "training")
TOPICS = ("harbour", "gallery", "orchard", "library", "theatre", "workshop", "station", "bakery", "museum", "garden")


class Job:
    """Counts the clicks and the seconds of one job in a window."""

    def __init__(self, window: Window) -> None:
        self.page = window.open("/console/")
        self.keep = window.keep
        self.clicks = 0
        self._began = time.monotonic()

    def click(self, place: Locator) -> None:
        self.clicks += 1
        place.click()

    def search(self, text: str) -> None:
        """Search from any page by the command palette: a key opens it, Enter starts the search."""
        self.page.keyboard.press("Control+k")
        expect(self.page.get_by_role("dialog", name="Go to a page")).to_be_visible()
        self.page.keyboard.type(text)
        expect(self.page.get_by_role("option", name=f"Search messages for “{text}”", selected=True)).to_be_visible()
        self.page.keyboard.press("Enter")
        self.page.wait_for_url("**/console/messages?q=*")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


Begin = Callable[..., AbstractContextManager[Job]]


@pytest.fixture(scope="module")
def crowd(deployment: Deployment) -> None:
    """Store many messages of other senders about the same things."""
    dice = random.Random(17)
    for tenant in ("acme", "club"):
        subjects = [f"{dice.choice(WORDS)} of the {dice.choice(TOPICS)} {number}" for number in range(MESSAGES // 2)]
        deliver(deployment, tenant, subjects)


@pytest.fixture
def job(deployment: Deployment, crowd: None, open_window: Callable[..., Window], note: Callable[[str], None]) -> Begin:
    """Return what begins a job in a new window of a user, ends it at its goal, and notes its figures."""

    @contextmanager
    def begin(title: str, goal: int, role: str, tenants: Sequence[str] = ()) -> Iterator[Job]:
        window = open_window()
        window.carry(COOKIE, sign_in(deployment, role, tenants).cookie)
        job = Job(window)
        yield job
        window.look()
        note(f"job: {title}: {job.clicks} clicks (goal {goal}), {job.seconds:.1f} s among {MESSAGES:,} messages")
        assert job.clicks <= goal

    return begin


@pytest.mark.slow
def test_a_held_message_is_found_and_judged(deployment: Deployment, job: Begin) -> None:
    uid = keep(
        deployment,
        subject="Ihre Rechnung / Invoice 2026-114",
        sender="rechnung@nordlicht-energie.example",
        name="Nordlicht Energie",
        recipients=("ann@company.example",),
        sentence="It is spam: its sender has never written here before.",
    )
    with job("find and judge a held message", 4, "analyst", ("acme",)) as do:
        do.search("nordlicht invoice")
        do.click(do.page.locator(".mw-line-open"))
        expect(do.page.locator("#pane").get_by_text("never written here before").first).to_be_visible()
        do.keep("job-message")
        do.click(do.page.locator("#pane").get_by_role("button", name="Release"))
        assert wait_until(lambda: state_of(deployment, uid) == {"ann@company.example": "releasing"}, pause=0.1)


@pytest.mark.slow
def test_a_campaign_is_blocked_and_deleted(
    deployment: Deployment, job: Begin, open_window: Callable[..., Window]
) -> None:
    ids = CampaignIds(uuid4(), uuid4())
    uids = [
        keep(
            deployment,
            subject=f"Your mailbox is almost full ({number})",
            sender=f"desk{number}@quota-renewal.example",
            recipients=(f"user{number}@company.example",),
            links=("https://login.quota-renewal.example/confirm",),
            sentence="It is phishing: a link leads to a page that asks for a password.",
            verdict=Verdict.PHISHING,
            campaign=ids,
        )
        for number in range(12)
    ]
    with job("block a campaign of 12 and delete what is held", 5, "tenant-administrator", ("acme",)) as do:
        do.search("quota-renewal")
        do.keep("job-campaign")
        do.click(do.page.get_by_role("link", name="Block the campaign"))
        do.click(do.page.get_by_label("Domain and its subdomains"))
        do.click(do.page.get_by_label("Links to"))
        do.click(do.page.get_by_role("button", name="Show the impact"))
        both = do.page.get_by_role("button", name="Block and delete the 12 held messages of this campaign")
        expect(both).to_be_visible()
        do.keep("job-block")
        do.click(both)
        expect(do.page.get_by_text("the held messages of the campaign were deleted")).to_be_visible()
    assert {state for uid in uids for state in state_of(deployment, uid).values()} == {"deleted"}
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "analyst", ("acme",)).cookie)
    window.open("/console/messages")
    window.keep("job-list")


@pytest.mark.slow
def test_a_tenant_is_onboarded(job: Begin) -> None:
    with job("onboard a tenant up to its first scanned message", 10, "deployment-administrator") as do:
        do.click(do.page.get_by_role("link", name="Tenants", exact=True))
        do.click(do.page.get_by_role("link", name="New tenant", exact=True))
        name = f"tenant-{uuid4().hex[:6]}"
        do.page.get_by_label("Name").fill(name)
        do.page.get_by_label("Recipient domains").fill(f"{name}.example")
        do.click(do.page.get_by_role("button", name="Create the tenant", exact=True))
        do.click(do.page.get_by_role("link", name=name, exact=True))
        do.click(do.page.get_by_role("link", name="First steps and samples", exact=True))
        do.keep("job-samples")
        do.click(do.page.get_by_role("button", name="Send the sample Harmless message", exact=True))
        expect(do.page.get_by_role("heading", name="Mailwarden sample: harmless")).to_be_visible()


@pytest.mark.slow
def test_the_weekly_report_is_printed_without_menus(last_week: None, job: Begin) -> None:
    with job("weekly report on paper", 1, "tenant-administrator", ("acme",)) as do:
        do.click(do.page.get_by_role("link", name=re.compile("^Reports?$")))
        expect(do.page.get_by_role("navigation").first).to_be_visible()
        do.page.emulate_media(media="print")
        expect(do.page.get_by_role("heading", name="Summary")).to_be_visible()
        for left_out in do.page.locator("nav, header, form, .btn").all():
            expect(left_out).to_be_hidden()
        do.page.emulate_media(media="screen")


@pytest.mark.slow
def test_a_false_positive_is_tuned(deployment: Deployment, job: Begin) -> None:
    root, club = sign_in(deployment, "deployment-administrator"), deployment.tenants["club"]
    root.post(f"/console/tenants/{club}/weights", {"rule": RULE, "weight": "90"})
    assert wait_until(lambda: decision_of(deployment, "club") == "quarantine", pause=0.3)
    ggrid = scanned(deployment, HELD_MESSAGE)
    with job("tune a false positive", 4, "tenant-administrator", ("club",)) as do:
        expect(do.page.locator("[data-points] a").first).to_be_attached()
        do.keep("job-dashboard")
        do.search(f"ggrid:{ggrid}")
        do.click(do.page.locator(".mw-line-open"))
        do.click(do.page.locator("#pane").get_by_role("link", name="Tune"))
        expect(do.page.get_by_text("would have been delivered instead of held")).to_be_visible()
        do.page.locator("#pane").get_by_role("button", name="Save").scroll_into_view_if_needed()
        do.keep("job-tune")
        do.click(do.page.get_by_role("button", name="Save"))
        expect(do.page.get_by_text("The weights were changed.")).to_be_visible()
    assert wait_until(lambda: decision_of(deployment, "club") == "deliver", pause=0.3)
    root.post(f"/console/tenants/{club}/weights/remove", {"rule": RULE})
