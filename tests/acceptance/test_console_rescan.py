"""A held message whose analysis was incomplete is scanned again from its stored bytes."""

import re

from mailwarden.model.outcome import Verdict
from tests.acceptance.console_session import sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import keep
from workshop.rig.samples import spam_message


def test_a_held_message_is_scanned_again(deployment: Deployment) -> None:
    user = sign_in(deployment, "analyst", ["acme"])
    path = f"/console/quarantine/{keep(deployment, raw=spam_message(), verdict=Verdict.UNKNOWN)}"
    assert f'action="{path}/rescan"' in user.get(path).text
    done = user.post(f"{path}/rescan")
    assert done.status_code == 303, text_of(done)
    page = user.get(done.headers["Location"])
    assert re.search(r'mw-badge">spam<', page.text), text_of(page)
    assert "scanned again" in text_of(page)
    assert "Held since" in text_of(user.get(path)), "the held message stays as it is"


def test_a_complete_analysis_offers_no_rescan(deployment: Deployment) -> None:
    user = sign_in(deployment, "analyst", ["acme"])
    assert "/rescan" not in user.get(f"/console/quarantine/{keep(deployment)}").text


def test_a_message_of_another_tenant_is_not_scanned(deployment: Deployment) -> None:
    uid = keep(deployment, "club", recipients=("eve@club.example",), verdict=Verdict.UNKNOWN)
    assert sign_in(deployment, "analyst", ["acme"]).post(f"/console/quarantine/{uid}/rescan").status_code == 404
    assert sign_in(deployment, "auditor", ["club"]).post(f"/console/quarantine/{uid}/rescan").status_code == 403
