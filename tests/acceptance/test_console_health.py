"""Health."""

from tests.acceptance.console_session import sign_in, text_of
from tests.acceptance.deployment import Deployment
from tests.waiting import wait_until


def test_health_shows_the_guards_their_engines_and_the_configuration_without_secrets(deployment: Deployment) -> None:
    user = sign_in(deployment, "deployment-administrator")
    # A product that has just started remembers for ten seconds that its guards were not there yet.
    assert wait_until(lambda: "GREEN" in text_of(user.get("/console/health/state")), pause=0.5)
    answer = user.get("/console/health")
    text = text_of(answer)
    assert answer.status_code == 200
    for word in (
        "rspamd",
        "clamav",
        "serviceProviders.core.hosts",
        "abby.yml:",
        "guard.yml:",
        "scanSources",
        "default",
    ):
        assert word in text
    for secret in (*deployment.tokens.values(), *deployment.keys.values()):
        assert secret not in answer.text
