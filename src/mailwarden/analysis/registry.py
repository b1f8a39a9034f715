"""The analyzers, in the order in which their reports are read."""

from mailwarden.analysis.analyzer import ConcludingAnalyzer, LocalAnalyzer
from mailwarden.analysis.analyzers.attachments import AttachmentsAnalyzer
from mailwarden.analysis.analyzers.authentication import AuthenticationAnalyzer
from mailwarden.analysis.analyzers.html import HtmlAnalyzer

# What the worker does itself before any analyzer: the structure check and the parse report like analyzers.
STRUCTURE = "structure"
MESSAGE = "message"
# What it does only where lists are in use that may meet something in the message.
SIGHTINGS = "sightings"

LOCAL: tuple[LocalAnalyzer, ...] = (AttachmentsAnalyzer(), HtmlAnalyzer())
CONCLUDING: tuple[ConcludingAnalyzer, ...] = (AuthenticationAnalyzer(),)

# Every analyzer is required: what one of them could not look at may be what matters.
OPTIONAL: frozenset[str] = frozenset()


def is_required(analyzer: str) -> bool:
    return analyzer not in OPTIONAL
