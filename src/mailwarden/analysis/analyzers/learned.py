"""Reports the result of an engine's statistics that the tenant's users trained."""

from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.analyzer import Known
from mailwarden.model.evidence import Finding

# From which probability on which finding is reported; only the highest band that is reached counts.
_BANDS = ((99.9, "sure"), (99.0, "probable"), (90.0, "likely"))


class LearnedAnalyzer:
    name: ClassVar[str] = "learned"

    def conclude(self, known: Known) -> Iterator[Finding]:
        for answer in known.answers.values():
            if answer.statistics is None:
                continue
            for side, probability in (("bad", answer.statistics.threat), ("good", answer.statistics.good)):
                band = next((name for least, name in _BANDS if probability >= least), "")
                if band:
                    yield Finding(f"learned.{side}-{band}", facts={"probability": f"{probability:g} %"})
