"""Links to programs: the words beside a link and the sender decide, not the link alone."""

import pytest

from mailwarden.model.outcome import Verdict
from mailwarden.policy.judge import judge
from tests.unit.policy.conftest import evidence, finished
from tests.unit.policy.test_judge import SHIPPED

PROGRAM = ("urls.program-link", "urls.unrelated-program", "domains.links-unknown", "authentication.unaligned")


def test_a_program_on_an_unknown_domain_alone_is_clean() -> None:
    """Programmers name downloads to each other, also where their list removes the signature."""
    assert judge(evidence(finished(*PROGRAM)), SHIPPED).verdict is Verdict.CLEAN


@pytest.mark.parametrize("other", ["urls.install-request", "lures.any", "relationship.first-contact"])
def test_a_program_with_words_or_from_a_stranger_is_not_clean(other: str) -> None:
    assert judge(evidence(finished(*PROGRAM, other)), SHIPPED).verdict in {Verdict.SUSPICIOUS, Verdict.MALWARE}
