"""The shipped policy, and evidence as short as a test wants to write it."""

import pytest

from mailwarden.model.evidence import Evidence, Failure, FailureKind, Finding, Report, Status
from mailwarden.model.place import Place
from mailwarden.policy.rules import Policy, load_policy


@pytest.fixture(scope="session")
def policy() -> Policy:
    return load_policy()


def finished(*names: str, analyzer: str = "tested", **facts: str) -> Report:
    return Report(
        analyzer, True, Status.FINISHED, 1.0, tuple(Finding(name, Place(part="1"), dict(facts)) for name in names)
    )


def failed(analyzer: str = "rspamd", *, required: bool = True, sentence: str = "Rspamd did not answer.") -> Report:
    failure = Failure(analyzer, FailureKind.TIMEOUT, sentence)
    return Report(analyzer, required, Status.FAILED, 1.0, (), failure)


def evidence(*reports: Report) -> Evidence:
    return Evidence(reports)
