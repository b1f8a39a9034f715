"""Brings the files of the languages up to date with the texts of the console and the policy (`make translations`).

The console has three kinds of texts: those that the source marks (`_`, `N_`, `ngettext`, `counted`, `{% trans %}`),
words with a fixed set of values (SHOWN_WORDS), and sentences of the services below the console, such as errors. A
sentence with values becomes a text with numbered places: "There is no list `{1}`."

A text that was changed or moved keeps its translation, marked as fuzzy: it is not used until someone has
checked it.
"""

import ast
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from mailwarden import errors
from mailwarden.console.language import FOLDER, SERVICE, WORD, used_messages
from mailwarden.console.texts import SHOWN_WORDS
from mailwarden.lists.catalogue import CATALOGUE
from mailwarden.policy import languages
from mailwarden.policy.rules import FOLDER as POLICY
from mailwarden.policy.rules import read_policy

SOURCE = FOLDER.parent.parent
CONSOLE = FOLDER.parent
KEYWORDS = {
    "_": None,
    "N_": None,
    "gettext": None,
    "ngettext": (1, 2),
    "counted": (2, 3),
    "pgettext": ((1, "c"), 2),
}
METHODS = [("**.py", "python"), ("templates/**.html", "jinja2.ext:babel_extract")]
OPTIONS = {"templates/**.html": {"trimmed": "true", "newstyle_gettext": "true", "silent": "false"}}
# Sentences that are composed of parts where they are made, by module.
COMPOSED = {
    "abby/status.py": (
        "No guard scans messages.",
        "The engine {1} is down.",
        "The engine {1} is down on some guards.",
        "Every guard is at its maximum of messages.",
        "The guards are busy.",
        "Some guards do not answer.",
        "The database does not answer.",
        "Some guards have not loaded the lists.",
        "The cause was removed some seconds ago.",
    ),
    "event_delivery/worker.py": (
        "Disabled by an administrator.",
        "Internal error of Mailwarden. The log of abby has the details.",
        "No delivery succeeded for {1} days. {2}",
    ),
    "search/completions.py": (
        *("sender", "recipient", "words of the subject", "any domain", "client IP", "tag", "verdict", "decision"),
        *("state", "tenant", "id", "link", "similar messages", "word", "domain"),
    ),
    "policy/decide.py": (
        *("malware floor", "allowed files", "simulation", "exempt recipients", "profile", "tenant lists"),
        *("global lists", "unauthenticated sender", "blocked address", "forced quarantine", "incomplete analysis"),
        *("bounce", "warning", "protected names", "monitor", "default tenant"),
        "malware: no later step may deliver it",
        "not malware",
        "malware only in allowed files",
        "no allowed file changes the verdict",
        "{1}: decided as {2}, the verdict without allowed files",
        "no simulation",
        "not every recipient is exempt",
        "already settled",
        "{1} under the profile {2}: {3}",
        "{1}: {2} stands",
        "no entry applies",
        "no allowed sender lacks authentication",
        "{1}: not counted, the sender is not authenticated",
        "the client IP is blocked: bounce",
        "no blocked client IP",
        "nothing forces quarantine",
        "a rule forces quarantine, in every profile",
        "a rule forces quarantine: {1} stands",
        "the analysis is incomplete: not delivered",
        "incomplete, and not delivered",
        "the analysis is complete",
        "no bounce",
        "the SMTP session is open: bounce",
        "the SMTP session is over: quarantine instead",
        "delivered with a warning",
        "no warning",
        "no protected name is imitated",
        "decisions are enforced",
        "the profile {1} decides the same: {2}",
        "not enforced: the profile {1} would have decided {2}",
        "the recipients belong to no tenant: default tenant",
        "the tenant was assigned by the {1}",
        "{1}: already settled",
        "{1}: deliver",
    ),
    "feeds/model.py": (
        "{1} good messages of the last 30 days would have matched; {2} are allowed.",
        "The rehearsal is incomplete: {1} of {2} new entries were rehearsed to the end.",
        "{1} entries are new; the bound is {2}.",
        "{1} entries are gone; the bound is {2}.",
        "The feed is empty; it had {1} entries.",
        "{1} entries are on a warning list; the bound is {2}.",
        "The list is full: {1} entries are left to add, and it holds at most {2}.",
        "a popular domain",
        "an own domain",
        "a correspondent",
        "a free-mail domain",
        "a host that many owners share",
        "a private or reserved address",
    ),
    "engines/engine.py": ("{1} cannot be reached.", "{1} broke off.", "no answer within {1} s"),
    "weekly_report/model.py": (
        "No messages were scanned in this week.",
        "{1} message was scanned. The week before is not known.",
        "{1} messages were scanned. The week before is not known.",
        "{1} message was scanned, as many as in the week before.",
        "{1} messages were scanned, as many as in the week before.",
        "{1} message was scanned; none in the week before.",
        "{1} messages were scanned; none in the week before.",
        "{1} message was scanned, {2} % more than in the week before ({3}).",
        "{1} messages were scanned, {2} % more than in the week before ({3}).",
        "{1} message was scanned, {2} % fewer than in the week before ({3}).",
        "{1} messages were scanned, {2} % fewer than in the week before ({3}).",
        "So there were no attacks.",
        "No message was malware, phishing, fraud or spoofed.",
        "{1} was an attack: {2}.",
        "{1} were attacks: {2}.",
        "{1} was an attack: {2}. The week before there were {3}.",
        "{1} were attacks: {2}. The week before there were {3}.",
        "The tenant is monitored only: {1} message was delivered that would have been quarantined or rejected.",
        "The tenant is monitored only: {1} messages were delivered that would have been quarantined or rejected.",
        "While the tenant was monitored only, {1} message was delivered that would have been quarantined or rejected.",
        (
            "While the tenant was monitored only, {1} messages were delivered that would have been quarantined or "
            "rejected."
        ),
        "{1} message was not decided: a part of the analysis failed.",
        "{1} messages were not decided: a part of the analysis failed.",
        "Users released {1} message with the verdict phishing, fraud or malware. Check them.",
        "Users released {1} messages with the verdict phishing, fraud or malware. Check them.",
        "Users corrected {1} false positive.",
        "Users corrected {1} false positives.",
        "Users reported {1} message as phishing or spam.",
        "Users reported {1} messages as phishing or spam.",
        "This report is incomplete: {1} day of the week was not counted.",
        "This report is incomplete: {1} days of the week were not counted.",
        "This report is incomplete: there are more attacks than could be read in time.",
        "This report is incomplete: the actions of users could not be read in time.",
        "Messages scanned",
        "Attacks",
        "Undecided",
        "Held in quarantine",
        "Released",
        "Reported by users",
        "Would not have been delivered",
        "Messages released",
        "Dangerous messages released",
        "Held messages deleted",
        "Reported as phishing or spam",
        "False positives corrected",
        "Changes of lists",
        "not known",
        "same",
    ),
}
# Modules whose every sentence is shown.
WHOLE = ("policy/candidate_terms.py", "policy/impact.py", "policy/rehearsal.py", "policy/weight_impact.py")
# The names of errors, by their HTTP status, as the titles of pages.
STATUSES = (400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 502, 503, 504)
# Packages whose errors the console shows, and functions that return such sentences.
PACKAGES = (
    "console",
    "access",
    "lists",
    "quarantine",
    "history",
    "search",
    "weekly_report",
    "feeds",
    "event_delivery",
    "user_reports",
)
# Files below these packages whose errors only callers of the APIs and the log see.
NOT_SHOWN = ("/api.py", "access/callers.py", "access/turns.py", "mailbox/imap_client.py")
_ERRORS = frozenset(
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.MailwardenError)
) | {"DeliveryFailed", "ForbiddenTarget"}
# Fields of the header that gettext needs. Others have dates and versions: a file changes only when its texts change.
_FIELDS = ("Language:", "Plural-Forms:", "MIME-Version:", "Content-Type:", "Content-Transfer-Encoding:")


def extract_texts() -> Catalog:
    """Return every text of the console."""
    catalog = Catalog(charset="utf-8", fuzzy=False)
    found = extract_from_dir(
        CONSOLE, method_map=METHODS, options_map=OPTIONS, keywords=KEYWORDS, strip_comment_tags=True
    )
    for name, _, message, _, context in found:
        catalog.add(message, locations=[(name, 0)], context=context)
    for word in sorted(SHOWN_WORDS):
        catalog.add(word, context=WORD)
    for place, sentence in service_sentences():
        if catalog.get(sentence) is None:
            catalog.add(sentence, locations=[(place, 0)], context=SERVICE)
    return catalog


def service_sentences() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each sentence that comes from below the console."""
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            if str(path.relative_to(SOURCE)).endswith(NOT_SHOWN):
                continue
            for sentence in sentences_of_errors(path.read_text("utf-8")):
                yield str(path.relative_to(SOURCE)), sentence
    for module in WHOLE:
        yield from ((module, text) for text in sentences_of_module((SOURCE / module).read_text("utf-8")))
    for module, sentences in COMPOSED.items():
        yield from ((module, text) for text in sentences)
    yield from (("serving/errors.py", HTTPStatus(status).phrase) for status in STATUSES)
    for each in CATALOGUE:
        yield from ((f"lists/{each.name}", text) for text in (each.display_name, each.description, each.effect))
        notes = filter(None, (each.history_note, each.history_note_deleted))
        yield from ((f"lists/{each.name}", text) for text in notes)
        yield f"lists/{each.name}", each.category
        yield f"lists/{each.name}", each.kind.form


def sentences_of_errors(source: str) -> Iterator[str]:
    """Yield the message of every error of the product that a source creates."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ERRORS and node.args:
            text = pattern_of(node.args[0])
            if text is not None and re.search("[A-Za-z]{2}", re.sub(r"\{\d+\}", "", text)):
                yield text


def sentences_of_module(source: str) -> Iterator[str]:
    """Yield every text of a module that is a sentence; not its docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in docstrings | inside):
            text = pattern_of(node)
            if text is not None and re.fullmatch(r"[A-Z].* .*\.", text):
                yield text


def pattern_of(node: ast.expr) -> str | None:
    """Return a text, or an f-string with numbered places for its values; None for another expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    text, number = "", 0
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        else:
            number += 1
            text += f"{{{number}}}"
    return text


def read_catalogue(path: Path) -> Catalog:
    return read_po(io.BytesIO(path.read_bytes()), locale=path.stem.replace("-", "_"), abort_invalid=True)


def extract_policy() -> Catalog:
    """Return every text of the rules, the tags, and the sentences around them."""
    catalog = Catalog(charset="utf-8", fuzzy=False)
    for place, text in languages.policy_texts(read_policy(POLICY)):
        catalog.add(text, context=place)
    for name in sorted(named_areas()):
        catalog.add(name, context=languages.AREA)
    return catalog


def named_areas() -> set[str]:
    """Return the areas of a message that the source names in words; others are header fields."""
    named: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                first = node.args[:1] if node.func.id == "area" else []
                names = [*first, *(keyword.value for keyword in node.keywords if keyword.arg == "area")]
                named |= {
                    name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)
                }
    return {name for name in named if name[:1].islower()}


def updated(path: Path, template: Catalog) -> Catalog:
    """Return a language with the texts of the source; unused ones are left out.

    A text that was changed or moved is recognised by its words, or by a context that no other text has.
    """
    before = read_catalogue(path) if path.exists() else Catalog(locale=path.stem.replace("-", "_"))
    texts = [message for message in before if message.id]
    places = Counter(message.context for message in texts)
    by_place = {message.context: message for message in texts if message.context and places[message.context] == 1}
    by_words = {_words(message): message for message in texts}
    after = Catalog(
        locale=before.locale,
        charset="utf-8",
        fuzzy=False,
        header_comment="# Texts of Mailwarden. `make translations` keeps this file up to date.",
    )
    for message in template:
        if not message.id:
            continue
        same = before.get(_words(message), message.context)
        earlier = same or by_place.get(message.context or "") or by_words.get(_words(message))
        # A text with a plural has no use for one without.
        if earlier is None or not earlier.string or isinstance(earlier.id, str) != isinstance(message.id, str):
            after.add(message.id, context=message.context)
        else:
            flags = ["fuzzy"] if same is None or same.fuzzy else []
            comments = earlier.user_comments
            after.add(message.id, earlier.string, context=message.context, flags=flags, user_comments=comments)
    return after


def _words(message: Message) -> str:
    """Return the English words of a message, in the singular."""
    return message.id if isinstance(message.id, str) else message.id[0]


def written(catalog: Catalog, *, by_text: bool = True) -> bytes:
    """Return the file of a catalogue, in the order of its texts or in that in which they were added."""
    file = io.BytesIO()
    write_po(file, catalog, width=120, sort_output=by_text, no_location=True, ignore_obsolete=True)
    header, _, texts = file.getvalue().decode().partition("\n\n")
    kept = [line for line in header.splitlines() if not line.startswith('"') or line[1:].startswith(_FIELDS)]
    return ("\n".join(kept) + "\n\n" + texts).encode()


def missing_texts(catalog: Catalog) -> list[str]:
    """Return the texts without a translation."""
    used = {(str(message.id), message.context) for message in used_messages(catalog)}
    return [str(each.id) for each in catalog if each.id and (str(each.id), each.context) not in used]


def main() -> None:
    """Update every language, add those that the arguments name, and print how many texts each one lacks."""
    for folder, template in ((FOLDER, extract_texts()), (languages.FOLDER, extract_policy())):
        for path in sorted({*folder.glob("*.po"), *(folder / f"{code}.po" for code in sys.argv[1:])}):
            after = updated(path, template)
            path.write_bytes(written(after, by_text=folder == FOLDER))
            missing = missing_texts(after)
            sys.stdout.write(f"{path.relative_to(SOURCE)}: {len(after)} texts, {len(missing)} without a translation\n")
            for text in missing[:20]:
                sys.stdout.write(f"  {text}\n")


if __name__ == "__main__":
    main()
