"""Finds passwords in the text of a message, by which attackers get encrypted files past scanners.

Security: reads hostile text inside a killable worker; patterns are linear and matches are bounded.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from mailwarden.message.limits import LIMITS
from mailwarden.message.message import Part

# Words for a password. A bare code, number or key is too often something else.
_WORDS = (
    r"pass(?:word|code|phrase|wort|wd)|(?:archive|zip|rar|file|document)[ -]?pass|pwd|pw|kennwort|zugangscode"
    r"|contrase[ñn]a|clave|mot de passe|senha|palavra-passe|wachtwoord|parol[aă]|has[łl]o|heslo|пароль|код доступ[ау]"
    r"|[şs]ifre|l[öo]senord(?:et)?|passord(?:et)?|adgangskode[nr]?|kodeord(?:et)?|salasana|jelsz[óo]|m[ậa]t kh[ẩa]u"
    r"|κωδικός(?: πρόσβασης)?|סיסמ[הא]|كلمة (?:المرور|السر)|pin(?:[ -]code)?"
    r"|(?:access|unlock|opening|extraction)[ -](?:code|key)|code d['’](?:ouverture|acc[eè]s)"
    r"|c[oó]digo de (?:acceso|apertura|acesso|abertura)|codice di (?:accesso|apertura|sblocco)"
)
_JOINED_WORDS = r"密码|密碼|解压码|提取码|パスワード|비밀번호|암호|รหัสผ่าน"  # of scripts without spaces between words
_OF = r"to open|to unzip|for|zum|zur|pour|para|per|de|do|du|of|от|к|k|ke|til|för|for å|voor|del|da|від"
_IS = r"is|ist|lautet|est|es|é|è|är|er|este|είναι|هي|是|为|為|は|:|=|-|–|："
_JOINED = re.compile(
    rf"(?:(?:^|[^\w])(?:{_WORDS})|{_JOINED_WORDS})"
    rf"(?:\s{{1,3}}(?:{_OF})\b[^:=\n]{{0,40}}?)?"
    rf"\s{{0,3}}(?:(?:{_IS})\s{{0,3}}){{1,2}}[\"'“”„«‘(\[]?([^\s\"'“”„»’)\]<>,;。、]{{2,32}})",
    re.IGNORECASE,
)
_USED = re.compile(  # Use 7742 to open the file.
    r"\b(?:use|using|enter|mit|avec|con|com) (?:the )?(?:code |key |pin |password )?"
    r"[\"'“‘]?([\w!@#$%&*+-]{0,16}\d[\w!@#$%&*+-]{1,16})[\"'”’]? (?:to|zum|pour|para|per) "
    r"(?:open|unlock|unzip|extract|view|öffnen|ouvrir|abrir|aprire)\b",
    re.IGNORECASE,
)
# Words that follow such a word without being a password.
_OTHER_WORDS = (
    "a an and be been being by due expired expiring for from going has in invalid it known needed no not now of on or "
    "protected required reset safe sent separate separately set so the this to too valid weak will with wrong you your "
    "yours das der die dein ihr ihre nicht le la les votre su sua seu tu il vostra http https still about correct "
    "incorrect only stored never secure secret hidden encrypted changed case"
)
_NO_PASSWORD = frozenset(_OTHER_WORDS.split())


# The text near such a word: the password may stand in another order, in a table, or in a line of its own.
_NEAR = re.compile(rf"(?:{_WORDS}|{_JOINED_WORDS}|code|key|schlüssel|clé|chiave|ключ|код)", re.IGNORECASE)
_BEFORE, _AFTER = 60, 120
_TOKEN = re.compile(r"[^\s\"'“”„«»‘’()\[\]<>,;。、：:]{3,64}")
# Common passwords, tried even if the message does not mention them.
_COMMON = ("infected", "1234", "12345", "123456", "0000", "1111", "password", "virus", "malware", "secret", "invoice")


def find_passwords(text: str) -> tuple[str, ...]:
    """Return likely passwords in the text, each once."""
    return tuple(dict.fromkeys(islice(_passwords(text), LIMITS.passwords)))


def password_candidates(text: str, parts: Iterable[Part]) -> Iterator[str]:
    """Yield candidates for the password of an encrypted file, the likely ones first, each once."""
    names = (token for part in parts for token in re.split(r"[\s_.()\[\]-]+", part.name) if len(token) > 2)
    yield from dict.fromkeys(chain(_passwords(text), _near(text), names, _COMMON))


def _near(text: str) -> Iterator[str]:
    for match in _NEAR.finditer(text):
        around = text[match.end() : match.end() + _AFTER], text[max(match.start() - _BEFORE, 0) : match.start()]
        for token in (each for side in around for each in _TOKEN.findall(side)):
            yield token
            if token.rstrip(".!?") != token:
                yield token.rstrip(".!?")


def _passwords(text: str) -> Iterator[str]:
    for match in chain(_JOINED.finditer(text), _USED.finditer(text)):
        password = match[1].removesuffix("です").rstrip(".!?")
        if (
            len(password) >= 2
            and password.lower() not in _NO_PASSWORD
            and not password.lower().startswith(("http", "www."))
        ):
            yield password
