"""Passwords that a message tells its reader, which is how attackers get encrypted files past scanners.

Security: reads hostile text inside a killable worker; patterns are linear and what they may match is bounded.
"""

import re
from collections.abc import Iterator
from itertools import islice

MAX_PASSWORDS = 5
_MAX_TEXT = 20_000

_WORDS = (
    r"pass(?:word|code|phrase|wort|wd)|pwd|pw|kennwort|contrase[ñn]a|mot de passe|senha|palavra-passe|wachtwoord"
    r"|parola|has[łl]o|heslo|пароль|密码|密碼|パスワード|비밀번호|[şs]ifre|l[öo]senord|adgangskode|salasana|jelsz[óo]"
)
_JOINED = re.compile(
    rf"(?:^|[^\w])(?:{_WORDS})"
    r"(?:\s{1,3}(?:to open|for|zum|pour|para|de|do|of)\b[^:=\n]{0,40}?)?"
    r"\s{0,3}(?:(?:is|ist|est|es|é|è|:|=|-|–|：)\s{0,3}){1,2}[\"'“”„«‘(\[]?([^\s\"'“”„»’)\]<>,;]{2,32})",
    re.IGNORECASE,
)
# What follows such words where no password is told.
_OTHER_WORDS = (
    "a an and be been being by due expired expiring for from going has in invalid it known needed no not now of on or "
    "protected required reset safe sent separate separately set so the this to too valid weak will with wrong you your "
    "yours das der die dein ihr ihre nicht le la les votre su sua seu tu il vostra http https still about correct "
    "incorrect only stored never secure secret hidden encrypted changed case"
)
_NO_PASSWORD = frozenset(_OTHER_WORDS.split())


def find_passwords(text: str) -> tuple[str, ...]:
    """Return what the text seems to tell as a password, each once, within bounds."""
    return tuple(dict.fromkeys(islice(_passwords(text[:_MAX_TEXT]), MAX_PASSWORDS)))


def _passwords(text: str) -> Iterator[str]:
    for match in _JOINED.finditer(text):
        told = match[1].rstrip(".!?")
        if len(told) >= 2 and told.lower() not in _NO_PASSWORD and not told.lower().startswith(("http", "www.")):
            yield told
