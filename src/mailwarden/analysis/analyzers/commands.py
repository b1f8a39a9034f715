"""Reports commands that a message has its reader run: the keys or the shell to open, and the command to paste.

Administrators and programmers quote commands, so a command alone is no finding. The rules weigh a command that fetches
and runs a program, or hides what it does, beside the instruction to open a shell (`commands_phrases.yml`).

Security: works on hostile text inside a killable worker; every pattern is linear.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import re2

from mailwarden.analysis.links.targets import parties_of
from mailwarden.analysis.text.phrases import Matches, load_books, match_books
from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import find_urls, host_of
from mailwarden.model.evidence import Finding

NEAR = 2_000  # characters in which an instruction and its command stand together
TALK = 2  # times that a text names such attacks before it is a text about them
HIDDEN = 200  # invisible characters, which may contain any word
_FETCH = (
    r"(?:curl|wget|iwr|irm|invoke-webrequest|invoke-restmethod|start-bitstransfer|downloadstring|downloadfile"
    r"|downloaddata|webclient|xmlhttp|urlopen)"
)
_INTO_SHELL = r"\| ?(?:sudo )?(?:/\w+/)*(?:env )?(?:(?:ba|z|da)?sh|iex|invoke-expression|cmd|python3?|perl)\b"
_STARTS = r"(?:start|start-process|saps|\.\\|\./|&|chmod|msiexec|wscript|%temp%|%appdata%|\$env:)"
# The text is folded: lower case, single spaces.
_FETCHES = re2.compile(
    r"\bmshta(?:\.exe)?[\"']? {1,3}[\"']?(?:https?:|\\\\|vbscript:|javascript:|[a-z0-9-]+\.[a-z0-9./-]+)"
    rf"|\b{_FETCH}\b.{{0,300}}{_INTO_SHELL}"
    rf"|\b(?:iex|invoke-expression)\b.{{0,200}}\b{_FETCH}"
    rf"|\b(?:ba|z)?sh (?:-c [\"']?[$`]\(?|<\() ?{_FETCH}"
    rf"|\bpowershell\b.{{0,300}}\b{_FETCH}\b"
    rf"|\b{_FETCH}\b.{{0,300}}(?:;|&&?|\|\|?) ?{_STARTS}"
    r"|\bcertutil(?:\.exe)? .{0,60}-urlcache|\bbitsadmin(?:\.exe)? .{0,40}/transfer"
    r"|\bmsiexec(?:\.exe)? (?:/[a-z]+ ){1,5}[\"']?https?:"
    r"|\b(?:rundll32|regsvr32|wscript|cscript)(?:\.exe)? .{0,40}(?:https?:|\\\\[a-z0-9.-]+[\\@])"
    r"|\bnet use .{0,20}\\\\[a-z0-9.-]+|\bnslookup .{0,120}\|.{0,80}\b(?:cmd|iex|findstr|for)\b"
    r"|\bfinger [a-z0-9]+@[a-z0-9.-]+ {0,2}\|"
    r"|\bpython3? -c .{0,120}urlopen"
)
_DISGUISED = re2.compile(
    r"\b(?:powershell|pwsh)(?:\.exe)?[\"']? .{0,120}-e(?:nc|ncodedcommand|c|n)?[ :][\"']?[a-z0-9+/=]{40}"
    r"|\b(?:powershell|pwsh)(?:\.exe)?[\"']? .{0,120}-(?:w|win|windowstyle)[ :]+[\"']?(?:h|hidden|1|minimized)\b"
    r"|\bfrombase64string\b|\[char\[?\]?\].{0,80}\+|\bbase64 (?:-d|--decode|-di)\b.{0,20}\| ?(?:ba|z)?sh\b"
    r"|\b(?:ba|z)?sh (?:-c )?[\"']?[$`]\(?echo .{0,900}base64|\bconhost(?:\.exe)? --headless"
    r"|(?:[a-z0-9]\^){4}|\b(?:[a-z]{1,4}`){3}[a-z]{1,4}\b|\bosascript -e\b.{0,300}\bdo shell script"
    r"|\bforfiles\b.{0,80}/c\b|\bmshta(?:\.exe)?[\"']? {1,3}[\"']?(?:vbscript:|javascript:)"
)
_TALK = re2.compile(
    r"clickfix|filefix|pastejacking|infostealer|\bthreat actors?\b|\bindicators? of compromise\b|\biocs?\b"
)


_PROGRAM, _DIALOG, _SHELL = "commands.program", "commands.run-dialog", "commands.shell"
_PASTE, _ENTER = "commands.paste", "commands.enter"
_INSTRUCTIONS = frozenset({_DIALOG, _SHELL})


class CommandsAnalyzer:
    name: ClassVar[str] = "commands"

    def examine(self, view: View) -> Iterator[Finding]:
        found: dict[str, Finding] = {}
        for text, matches in zip(view.folded_texts, match_books(view.folded_texts), strict=True):
            for finding in _look(text, matches, view):
                found.setdefault(finding.name, finding)
        yield from found.values()
        if found and view.unseen <= HIDDEN and len(_TALK.findall(view.folded_text)) >= TALK:
            yield Finding("commands.security-discussion")


def _look(text: str, matches: Matches, view: View) -> Iterator[Finding]:
    """Yield the findings of one text, piece by piece: an instruction belongs to the command near it."""
    families = matches.keys()
    if _INSTRUCTIONS.isdisjoint(families) or families.isdisjoint({_PROGRAM, _PASTE}):
        return
    for start in range(0, max(1, len(text) - NEAR // 2), NEAR // 2):
        piece = text[start : start + NEAR]
        yield from _look_at_piece(piece, load_books().find(piece) if len(text) > NEAR else matches, view)


def _look_at_piece(text: str, told: Matches, view: View) -> Iterator[Finding]:
    dialog, paste, program = told.get(_DIALOG), told.get(_PASTE), told.get(_PROGRAM)
    instruction = dialog or told.get(_SHELL)
    fetch = _FETCHES.search(text) if instruction and program else None
    disguised = _DISGUISED.search(text) if instruction and program else None
    if not instruction or not (fetch or disguised or (dialog and paste)):
        return
    yield Finding("commands.shell", facts={"words": instruction.words})
    if dialog and paste:
        yield Finding("commands.run-dialog", facts={"words": dialog.words})
        if program:
            yield Finding("commands.program", facts={"words": program.words})
    if paste:
        yield Finding("commands.paste", facts={"words": paste.words})
    if dialog or _ENTER in told:
        yield Finding("commands.keystrokes", facts={"words": (dialog or told[_ENTER]).words})
    if disguised:
        yield Finding("commands.obfuscated", facts={"command": disguised[0][: SHOWN.word]})
    if fetch:
        yield Finding("commands.download", facts={"command": fetch[0][: SHOWN.word]})
        yield from _strange_hosts(text[fetch.start() : fetch.end() + NEAR], view)


def _strange_hosts(command: str, view: View) -> Iterable[Finding]:
    """Yield a finding if a command fetches from a host of neither the sender nor a well-known organisation."""
    hosts = [host_of(url) for url in find_urls(command)]
    parties = parties_of(view)
    for host in hosts:
        if host and parties.is_third_party(host):
            return (Finding("commands.download-unrelated", facts={"host": host[: SHOWN.fact]}),)
    return ()
