"""What an operator expects of a sample message, and how far what came of it is from that. Pure."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile
from mailwarden.policy.rule import tag_problems


class SampleEnvelope(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What the border MTA saw; without addresses, those of the headers are taken."""

    sender: str | None = None
    recipients: tuple[str, ...] = ()
    remote_address: str | None = None
    helo: str | None = None


class Expectation(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The verdict and the decision that are right, and the tags that must and must not be there."""

    verdict: Verdict | tuple[Verdict, ...] = ()
    decision: Decision | tuple[Decision, ...] = ()
    expect: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    profile: Profile = Profile.BALANCED
    envelope: SampleEnvelope = SampleEnvelope()

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not (self.verdict or self.decision or self.expect or self.refuse):
            yield "verdict", "nothing is expected: say a verdict, a decision, or tags to expect or refuse"
        for key, tags in (("expect", self.expect), ("refuse", self.refuse)):
            for tag in tags:
                yield from ((key, problem) for problem in tag_problems(tag))
        for tag in set(self.expect) & set(self.refuse):
            yield "refuse", f"`{tag}` is expected and refused"

    def complaints(self, verdict: Verdict, decision: Decision, tags: Collection[str]) -> Iterator[str]:
        """Say what is not as expected, each in a few words."""
        if self.verdict and verdict not in _several(self.verdict):
            yield f"verdict {verdict}, not {' or '.join(_several(self.verdict))}"
        if self.decision and decision not in _several(self.decision):
            yield f"decision {decision}, not {' or '.join(_several(self.decision))}"
        yield from (f"without {tag}" for tag in self.expect if tag not in tags)
        yield from (f"with {tag}" for tag in self.refuse if tag in tags)


def _several(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    return (wanted,) if isinstance(wanted, str) else wanted
