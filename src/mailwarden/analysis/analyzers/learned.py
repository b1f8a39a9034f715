"""What Rspamd's statistics say of a message, as the tenant's own people taught them."""

from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.analyzer import Known
from mailwarden.analysis.analyzers.rspamd import LEARNED
from mailwarden.model.evidence import Finding

# From which probability on which finding tells it; only the highest band that is reached speaks.
_BANDS = ((99.9, "sure"), (99.0, "probable"), (90.0, "likely"))
_SIDES = dict(zip(LEARNED, ("threat", "fine"), strict=True))


class LearnedAnalyzer:
    name: ClassVar[str] = "learned"

    def conclude(self, known: Known) -> Iterator[Finding]:
        answer = known.answers.get("rspamd")
        for symbol, side in _SIDES.items():
            options = answer.symbols.get(symbol, ()) if answer else ()
            probability = percentage(options[0]) if options else 0.0
            band = next((name for least, name in _BANDS if probability >= least), "")
            if band:
                yield Finding(f"learned.{side}-{band}", facts={"probability": f"{probability:g} %"})


def percentage(text: str) -> float:
    """Return the number in `99.98%`; what is none is nothing."""
    digits = text.removesuffix("%").strip()
    try:
        number = float(digits)
    except ValueError:
        return 0.0
    return number if 0.0 <= number <= 100.0 else 0.0
