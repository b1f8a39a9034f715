"""Languages of the console: catalogues as files, the language of a request, and formats of times and numbers.

English is the language of the source: a text is its own key. Every other language is one gettext file,
`translations/CODE.po`, which is read at start. A language whose file is broken is not offered.

Security: templates insert translations without escaping, since a text may contain tags. A translation must have
exactly the placeholders and tags of its English text, so a file can add no markup. Sentences with hostile values are
matched by RE2, in linear time.
"""

import gettext as system_gettext
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import re2
from aiohttp import web
from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_datetime, format_time, get_datetime_format
from babel.messages.catalog import Catalog, Message
from babel.messages.mofile import write_mo
from babel.messages.pofile import PoFileError, read_po
from babel.numbers import format_decimal
from markupsafe import Markup, escape

from mailwarden.telemetry.logs import get_logger

FOLDER = Path(__file__).parent / "translations"
SOURCE = "en"
WORD = "word"  # the context of names with a fixed set of values: verdicts, decisions, states
SERVICE = "service"  # the context of sentences that come from below the console: errors, causes, names of lists
MAX_HEADER = 500  # characters of Accept-Language that are read
MAX_SENTENCE = 1_000  # a longer sentence of a service is shown in English
_PLACE = re.compile(r"%\(\w+\)[a-z]|%%|\{\d+\}")
_TAG = re.compile(r"<[^<>]*>")
_HOLE = re.compile(r"\\\{(\d+)\\\}")
_YEAR = re.compile(r"(\d{4}-?)")
_IN_SENTENCE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
_COUNTS = re2.compile(r"\d[\d,]* [a-z]+(?:, \d[\d,]* [a-z]+)*")  # "16 phishing, 4 fraud"
_WORD = re.compile(r"[a-z]+")
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", re.ASCII)

log = get_logger("console.language")


class BrokenCatalogue(ValueError):
    """A file that cannot be used as a language."""


@dataclass(frozen=True, slots=True)
class Language:
    """One language: its texts, and the locale for its formats."""

    code: str  # as in <html lang>
    locale: Locale
    texts: system_gettext.NullTranslations = field(default_factory=system_gettext.NullTranslations, repr=False)
    sentences: Mapping[str, str] = field(default_factory=dict, repr=False)
    patterns: Sequence[tuple[re.Pattern[str], str]] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """The name of the language in the language itself."""
        shown = self.locale.get_display_name(self.locale) or self.code
        return shown[:1].upper() + shown[1:]

    def sentence(self, text: str) -> str:
        """Return a sentence of a service in this language, or as it is."""
        if not text or text in self.sentences or len(text) > MAX_SENTENCE:
            return self.sentences.get(text, text)
        if (found := self.texts.gettext(text)) != text:
            return found
        for pattern, translation in self.patterns:
            if match := pattern.fullmatch(text):
                # A value may be a sentence of its own, which is shorter.
                return _filled(translation, {name: self.sentence(value) for name, value in match.groupdict().items()})
        if _COUNTS.fullmatch(text):
            return _WORD.sub(lambda word: self.texts.pgettext(WORD, word[0]), text)
        return text


ENGLISH = Language(SOURCE, Locale(SOURCE))
_current: ContextVar[Language] = ContextVar("language", default=ENGLISH)


class Languages:
    """The languages of a folder, and English."""

    def __init__(self, folder: Path = FOLDER) -> None:
        found = {SOURCE: ENGLISH}
        for path in sorted(folder.glob("*.po")):
            try:
                found[path.stem] = read_language(path)
            except (BrokenCatalogue, UnicodeDecodeError) as error:
                log.warning("language_skipped", file=path.name, error=str(error))
        self._by_code: Mapping[str, Language] = found

    @property
    def choices(self) -> Sequence[tuple[str, str]]:
        """Code and name of each language."""
        return [(code, language.name) for code, language in self._by_code.items()]

    def use_for(self, request: web.BaseRequest, wanted: str = "") -> None:
        """Set the language of a request: that of the account, or else of the browser."""
        _current.set(self.choose(wanted, request.headers.get("Accept-Language", "")))

    def choose(self, wanted: str, header: str = "") -> Language:
        """Return the language of the user's account, else the first of Accept-Language that exists, else English."""
        for code in (wanted, *preferred_codes(header)):
            if language := self._by_code.get(code) or self._by_code.get(code.partition("-")[0]):
                return language
        return ENGLISH


def preferred_codes(header: str) -> Iterator[str]:
    """Yield the codes in an Accept-Language header (RFC 9110, section 12.5.4), the preferred ones first."""
    ranges: list[tuple[float, str]] = []
    for each in header[:MAX_HEADER].split(","):
        code, _, weight = each.replace(" ", "").partition(";q=")
        try:
            quality = float(weight or 1)
        except ValueError:
            continue
        if quality > 0 and _CODE.fullmatch(code.lower()):
            ranges.append((quality, code))
    for _, code in sorted(ranges, key=lambda pair: -pair[0]):
        language, _, region = code.partition("-")
        yield f"{language.lower()}-{region}" if region else language.lower()


def read_language(path: Path) -> Language:
    """Return the language in a file; raise BrokenCatalogue if one of its translations cannot be used."""
    try:
        locale = Locale.parse(path.stem, sep="-")
        catalogue = read_po(io.BytesIO(path.read_bytes()), locale=locale, abort_invalid=True)
    except (PoFileError, UnknownLocaleError, ValueError) as error:
        raise BrokenCatalogue(str(error)) from error
    for message in used_messages(catalogue):
        if problem := problem_of(message):
            raise BrokenCatalogue(f"line {message.lineno or 0}: {problem}")
    compiled = io.BytesIO()
    write_mo(compiled, catalogue)
    compiled.seek(0)
    sentences = {str(each.id): str(each.string) for each in used_messages(catalogue) if each.context == SERVICE}
    return Language(
        path.stem, locale, system_gettext.GNUTranslations(compiled), sentences, tuple(_patterns_of(sentences))
    )


def used_messages(catalogue: Catalog) -> Iterator[Message]:
    """Yield the messages with a translation that is not marked as fuzzy."""
    for message in catalogue:
        strings = message.string if isinstance(message.string, tuple | list) else (message.string,)
        if message.id and not message.fuzzy and all(strings):
            yield message


def problem_of(message: Message) -> str:
    """Return why a translation cannot be used: other placeholders or tags than the English text; or an empty string."""
    originals = message.id if isinstance(message.id, tuple | list) else (message.id,)
    translations = message.string if isinstance(message.string, tuple | list) else (message.string,)
    for translation in filter(None, translations):
        if _marks(translation) != _marks(originals[-1]):
            return f"the placeholders or tags of `{translation[:60]}` are not those of `{originals[-1][:60]}`"
    return ""


def _marks(text: str) -> tuple[list[str], list[str]]:
    return sorted(_PLACE.findall(text)), sorted(_TAG.findall(text))


def _patterns_of(sentences: Mapping[str, str]) -> Iterator[tuple[re.Pattern[str], str]]:
    """Yield a pattern for each sentence with values, those with most text of their own first."""
    with_values = [text for text in sentences if "{1}" in text]
    for text in sorted(with_values, key=lambda each: -len(re.sub(r"\{\d+\}", "", each))):
        yield re2.compile("(?s)" + _HOLE.sub(r"(?P<_\1>.*?)", re2.escape(text))), sentences[text]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{(\d+)\}", lambda place: values[f"_{place.group(1)}"], text)


def use_language(language: Language) -> None:
    """Set the language of the texts that follow."""
    _current.set(language)


def current_language() -> Language:
    return _current.get()


def gettext(text: str) -> str:
    """Return a text in the language of the request."""
    return _current.get().texts.gettext(text)


def ngettext(one: str, many: str, count: int) -> str:
    """Return the text for a number of things in the language of the request."""
    return _current.get().texts.ngettext(one, many, count)


def pgettext(context: str, text: str) -> str:
    """Return a text with several meanings in the language of the request."""
    return _current.get().texts.pgettext(context, text)


def npgettext(context: str, one: str, many: str, count: int) -> str:
    return _current.get().texts.npgettext(context, one, many, count)


_ = gettext


def N_(text: str) -> str:  # noqa: N802 -- the name that gettext tools know
    """Mark a text that is translated where it is shown."""
    return text


def word_text(word: str) -> str:
    """Return the name of a verdict, a decision or a state in the language of the request."""
    return pgettext(WORD, word)


def sentence_text(text: str) -> str:
    """Return a sentence of a service in the language of the request; an unknown one stays as it is."""
    return _current.get().sentence(text)


def number_text(value: float) -> str:
    """Return a number with the separators of the language."""
    return format_decimal(value, locale=_current.get().locale)


def decimal_text(value: float, digits: int = 1) -> str:
    """Return a number with a fixed count of decimals."""
    return format_decimal(value, format=f"0.{'0' * digits}" if digits else "0", locale=_current.get().locale)


def counted(count: int, one: str, many: str) -> str:
    """Return a number with the name of what was counted: `3 entries`."""
    return f"{number_text(count)} {ngettext(one, many, count)}"


def moment_text(moment: datetime | None, absent: str = "") -> str:
    """Return a time in UTC for display. English has the form of ISO 8601, without T and zone."""
    if moment is None:
        return absent or gettext("never")
    language, utc = _current.get(), moment.astimezone(UTC)
    if language is ENGLISH:
        return utc.strftime("%Y-%m-%d %H:%M:%S")
    return format_datetime(utc, "medium", locale=language.locale)


def minute_text(moment: datetime) -> str:
    """Return a time in UTC without seconds."""
    language, utc = _current.get(), moment.astimezone(UTC)
    if language is ENGLISH:
        return utc.strftime("%Y-%m-%d %H:%M")
    day, time = format_date(utc, "medium", locale=language.locale), format_time(utc, "short", locale=language.locale)
    return str(get_datetime_format("medium", locale=language.locale)).replace("{1}", day).replace("{0}", time)


def day_text(day: date) -> str:
    """Return a day; of a time, the day in UTC."""
    language = _current.get()
    in_utc = day.astimezone(UTC) if isinstance(day, datetime) else day
    return in_utc.strftime("%Y-%m-%d") if language is ENGLISH else format_date(in_utc, "medium", language.locale)


def list_time(text: str) -> str:
    """Return a time of the List API, such as 2026-11-15T03:20:00.123Z, without seconds."""
    return minute_text(datetime.fromisoformat(text))


def line_time(moment: datetime) -> Markup:
    """Return a time whose year narrow windows hide."""
    text = str(escape(minute_text(moment)))
    return Markup(_YEAR.sub(r'<span class="mw-line-year">\1</span>', text, count=1))  # noqa: S704 -- escaped before


def with_times(sentence: str) -> Markup:
    """Return a sentence whose times are elements in the format of the language; times.js shows them in the zone."""
    return Markup(_IN_SENTENCE.sub(_element, str(escape(sentence))))  # noqa: S704 -- escaped before


def _element(found: re.Match[str]) -> str:
    try:
        moment = datetime.strptime(found.group(), "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
    except ValueError:  # text of a message that looks like a time
        return found.group()
    return f'<time datetime="{moment:%Y-%m-%dT%H:%M:00Z}" data-form="minute">{minute_text(moment)} UTC</time>'
