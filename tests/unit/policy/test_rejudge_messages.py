"""ImpactEstimator over real messages: what history keeps of them is enough to tell what an entry does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.analysis.message_values import find_observables, summarize, with_links
from mailwarden.analysis.view import View
from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.lookup import EVERYTHING
from mailwarden.lists.matching import Match
from mailwarden.message.parser import parse_message
from mailwarden.message.urls import host_of
from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import Evidence, Report, Status
from mailwarden.model.tenant import Profile
from tests.samples.examined import MESSAGES
from tests.tables import every, named
from tests.unit.lists.memory_lists import listed
from tests.unit.policy.test_rejudge import Sample, rejudged

ENVELOPE = Envelope("ada@north.example", ("bob@south.example", "ceo@south.example"), "192.0.2.7")


class RealSample(Sample):
    """A message as a worker reads it."""

    def __init__(self, path: Path) -> None:
        message = parse_message(path.read_bytes())
        self.profile = Profile.BALANCED
        self.envelope = ENVELOPE
        view = View(message)
        self.summary = with_links(summarize(message), view)
        self.observables = find_observables(view, EVERYTHING)
        self.evidence = Evidence((Report("tested", True, Status.FINISHED, 1.0),))


def entries_for(sample: RealSample) -> Iterator[Match]:
    """Yield an entry of every list that the message meets, and some that it does not."""
    texts = [
        ("sender-block", sample.summary.from_address),
        ("sender-block", f"*.{domain_of(sample.summary.from_address)}"),
        ("sender-block", "north.example"),
        ("ip-block", "192.0.2.0/24"),
        ("recipient-exempt", "south.example"),
        ("recipient-exempt", "ceo@south.example"),
        ("subject-block", sample.summary.subject[3:20]),
        ("protected-people", f"{sample.summary.from_name} <other@south.example>"),
        *(("url-block", host_of(url)) for url in sample.observables.urls),
        *(("file-hash-block", file.sha256) for file in sample.observables.files),
        *(("attachment-block", file.media_type) for file in sample.observables.files),
        *(("attachment-block", Path(file.name).suffix) for file in sample.observables.files if file.name),
    ]
    for name, text in dict.fromkeys(texts):
        try:
            yield listed(name, text)
        except (InvalidEntry, EntryTooBroad):
            continue


@pytest.mark.slow
def test_judging_again_equals_processing() -> None:
    tried: list[str] = []

    def check(path: Path) -> None:
        sample = RealSample(path)
        before = sample.processed()
        for match in entries_for(sample):
            tried.append(match.list_name)
            after = sample.processed(match)
            outcome = rejudged(before, match, (), adds=True)
            expected = after.judgement.verdict, after.ruling.decision
            assert (outcome.verdict_after, outcome.decision_after) == expected, match

    every(MESSAGES, check, named)
    assert len(MESSAGES) > 20
    assert len(tried) > 200
    assert {"url-block", "file-hash-block", "attachment-block", "protected-people"} <= set(tried)
