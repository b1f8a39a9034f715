"""A passkey in Chromium itself, by its virtual authenticator: made at setup, used to sign in, added and removed."""

import base64
import hashlib
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_pem_x509_certificate
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.console_client import PASSWORD, make_link
from tests.acceptance.deployment import Deployment
from tests.browser.conftest import CHROMIUM

STICK = {
    "protocol": "ctap2",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def window(deployment: Deployment, chromium: Browser) -> Iterator[Page]:
    """Open a window that trusts abby's certificate: on a site that it does not trust Chromium makes no passkeys."""
    browser = chromium.browser_type.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", f"--ignore-certificate-errors-spki-list={spki_of(deployment)}"],
    )
    context = browser.new_context(base_url=deployment.product.url.replace("127.0.0.1", "localhost"))
    page = context.new_page()
    page.on("dialog", lambda dialog: dialog.accept())
    add_stick(page, "internal")
    yield page
    browser.close()


def add_stick(page: Page, transport: str) -> None:
    """Plug an authenticator in; Chromium takes one of each transport."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": {**STICK, "transport": transport}})


def spki_of(deployment: Deployment) -> str:
    certificate = load_pem_x509_certificate((deployment.product.abby.folder / "tls" / "abby.crt").read_bytes())
    public = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(public).digest()).decode()


@pytest.mark.slow
def test_a_passkey_is_made_used_added_to_and_removed(deployment: Deployment, window: Page) -> None:
    link = make_link(deployment, "invite", "--role", "analyst")
    window.goto("/console/setup/" + link.rpartition("/")[2])
    window.get_by_label("Name").fill("passkeyed")
    window.get_by_label("Password", exact=True).fill(PASSWORD)
    window.get_by_label("Password again").fill(PASSWORD)
    window.get_by_role("button", name="Continue").click()
    window.get_by_role("button", name="Create a passkey").click()
    window.wait_for_url("**/console/account/codes")

    window.goto("/console/account")
    window.get_by_role("button", name="Sign out").click()
    window.wait_for_url("**/console/login**")
    window.get_by_role("button", name="Sign in with a passkey").click()
    window.wait_for_url("**/console/")

    window.goto("/console/account")
    expect(window.get_by_text("First passkey")).to_be_visible()
    window.get_by_role("button", name="Remove the passkey First passkey").click()
    expect(window.get_by_text("This is your only second factor")).to_be_visible()

    window.goto("/console/account")
    window.get_by_text("Add a passkey").click()
    window.get_by_label("Name").fill("blue key")
    form = window.locator("form[data-passkey]")
    form.get_by_label("Your password").fill("not the password")
    window.get_by_role("button", name="Create a passkey").click()
    expect(form.get_by_role("alert")).to_have_text("The password is wrong.")
    # The same authenticator makes no second one for the same person, and the page says that nothing was made.
    form.get_by_label("Your password").fill(PASSWORD)
    window.get_by_role("button", name="Create a passkey").click()
    expect(form.get_by_role("alert")).not_to_have_text("The password is wrong.")
    expect(form.get_by_role("alert")).to_be_visible()
    add_stick(window, "usb")
    window.get_by_role("button", name="Create a passkey").click()
    window.wait_for_url("**done=passkey-added")
    window.get_by_role("button", name="Remove the passkey First passkey").click()
    window.wait_for_url("**done=passkey-removed")
    expect(window.get_by_text("First passkey")).to_have_count(0)
