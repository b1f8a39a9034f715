"""The analyzers, in the order in which their reports are read."""

from mailwarden.analysis.analyzer import ConcludingAnalyzer, LocalAnalyzer
from mailwarden.analysis.analyzers.attachments import AttachmentsAnalyzer
from mailwarden.analysis.analyzers.authentication import AuthenticationAnalyzer
from mailwarden.analysis.analyzers.calendar import CalendarAnalyzer
from mailwarden.analysis.analyzers.commands import CommandsAnalyzer
from mailwarden.analysis.analyzers.domains import DomainsAnalyzer
from mailwarden.analysis.analyzers.fraud import FraudAnalyzer
from mailwarden.analysis.analyzers.html import HtmlAnalyzer
from mailwarden.analysis.analyzers.images import ImagesAnalyzer
from mailwarden.analysis.analyzers.learned import LearnedAnalyzer
from mailwarden.analysis.analyzers.lookalike import LookalikeAnalyzer
from mailwarden.analysis.analyzers.lures import LuresAnalyzer
from mailwarden.analysis.analyzers.newsletter import NewsletterAnalyzer
from mailwarden.analysis.analyzers.obfuscation import ObfuscationAnalyzer
from mailwarden.analysis.analyzers.offers import OffersAnalyzer
from mailwarden.analysis.analyzers.office import OfficeAnalyzer
from mailwarden.analysis.analyzers.pdf import PdfAnalyzer
from mailwarden.analysis.analyzers.sender import SenderAnalyzer
from mailwarden.analysis.analyzers.shortcuts import ShortcutsAnalyzer
from mailwarden.analysis.analyzers.thread import ThreadAnalyzer
from mailwarden.analysis.analyzers.urls import UrlsAnalyzer
from mailwarden.analysis.analyzers.wording import WordingAnalyzer
from mailwarden.analysis.analyzers.yara import YaraAnalyzer

# Steps of the worker before any analyzer; the structure check and the parser report like analyzers.
STRUCTURE = "structure"
MESSAGE = "message"
# A step that runs only if a list in use can match the message.
OBSERVABLES = "observables"
# The keys by which history groups similar messages. Only its failure is a report, and no verdict depends on it.
SIMILARITY = "similarity"
# The last report: content that no reader inspected.
COVERAGE = "coverage"

# The operator's own rules; a worker loads them at its start.
YARA = YaraAnalyzer()

LOCAL: tuple[LocalAnalyzer, ...] = (
    AttachmentsAnalyzer(),
    OfficeAnalyzer(),
    ShortcutsAnalyzer(),
    YARA,
    ImagesAnalyzer(),
    HtmlAnalyzer(),
    ObfuscationAnalyzer(),
    UrlsAnalyzer(),
    PdfAnalyzer(),
    SenderAnalyzer(),
    LookalikeAnalyzer(),
    DomainsAnalyzer(),
    FraudAnalyzer(),
    LuresAnalyzer(),
    OffersAnalyzer(),
    NewsletterAnalyzer(),
    WordingAnalyzer(),
    CommandsAnalyzer(),
    CalendarAnalyzer(),
    ThreadAnalyzer(),
)
CONCLUDING: tuple[ConcludingAnalyzer, ...] = (AuthenticationAnalyzer(), LearnedAnalyzer())
