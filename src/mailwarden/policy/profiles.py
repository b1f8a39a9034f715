"""What each verdict means and which decision it brings under each profile."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile


class VerdictRow(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    meaning: Annotated[str, Meta(min_length=1)]
    balanced: Decision
    strict: Decision
    monitor: Decision

    def decision(self, profile: Profile) -> Decision:
        decisions = {Profile.BALANCED: self.balanced, Profile.STRICT: self.strict, Profile.MONITOR: self.monitor}
        return decisions[profile]


class ProfileFile(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    verdicts: dict[str, VerdictRow]

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Refuse a table with a gap, and the three decisions that no profile may make."""
        for verdict in Verdict:
            if verdict not in self.verdicts:
                yield "verdicts", f"says nothing about `{verdict}`"
        for name in self.verdicts.keys() - set(Verdict):
            yield "verdicts", f"`{name}` is no verdict"
        for name, row in self.verdicts.items():
            for profile in Profile:
                decision = row.decision(profile)
                if name == Verdict.MALWARE and decision is Decision.DELIVER:
                    yield "verdicts", f"{name}, {profile}: malware is never delivered"
                if decision is Decision.DROP:
                    yield "verdicts", f"{name}, {profile}: drop is never a default"
                if (name == Verdict.UNKNOWN) != (decision is Decision.UNDECIDED):
                    yield "verdicts", f"{name}, {profile}: `undecided` and `unknown` belong together"
