"""Finds passwords of encrypted files, phone numbers and Bitcoin addresses in the text of a message.

Security: reads hostile text inside a killable worker; patterns are linear and matches are bounded.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import re2

from mailwarden.analysis.text.patterns import TextPattern
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
# Characters between the groups of a number: hyphens of every width and bullets, which folding keeps.
_GAP = "[ .\\-\u2010\u2012\u2212\xb7\u2022\u30fb*_~/]"
_DIGITS = TextPattern(
    rf"\d{{3}}(?:{_GAP}{{1,3}}\d{{4}}|\d{{7}})"
)  # occurs in every number below, and is faster to find
_IN_FRONT = 32  # characters, more than a number has before those digits
_PHONE = re.compile(
    rf"(?<![\w.-])(?:\+\d{{1,3}}{_GAP}?|1{_GAP}{{1,3}})?(?:\(\d{{3}}\){_GAP}{{0,3}}|\d{{3}}{_GAP}{{1,3}})"
    rf"\d{{3}}{_GAP}{{1,3}}\d{{4}}(?![\w-])|(?<![\w.-])\+1?8[0-9]{{9,10}}\b"
)
# Every digit by itself, as a program does not expect it.
_SPACED = re2.compile(r"(?:^|[^\w.,:-])((?:\+ ?)?(?:\d[ .-]{1,3}){9,13}\d)(?:[^\w.,:-]|[.,] |[.,]?$)")
# Words that ask for a call or name a number, in ten languages.
_CALL = (
    r"tel|telefon[a-z]*|telefoon[a-z]*|telephon[a-z]*|hotline|helpline|helpdesk|rufnummer|nummer|numero|ruf(?:en|t)?"
    r"|wahlen sie|appele[rz]|composez|llam[a-z]{1,6}|marque|chiam[a-z]{1,4}|lig(?:ue|ar)|bel(?:len|t)?"
    r"|infolini[a-z]|zadzwon[a-z]*|dzwon[a-z]*|aray(?:ı|i)n[a-zı]*|telefonu|hatt(?:ı|i)[a-zı]*|call|dial|phone|freephone"
)
# Other countries group digits like sums and dates: a country code or a word must mark them as a number.
_ABROAD = re2.compile(
    rf"(?:^|[^\w.+-])(\+[1-9]\d{{0,2}}{_GAP}?(?:\(0\) ?)?\(?\d(?:[\d()]|{_GAP}){{5,18}}\d)\b"
    rf"|\b(?:{_CALL})\b[^\d+\n]{{0,60}}?(\(?0(?:[\d()]|{_GAP}){{6,18}}\d|[1-9]\d{{1,2}}[ .-]\d[\d .-]{{4,9}}\d)\b"
    r"|\b(?:unter|au|allo|al) (\(?0[\d ()./-]{6,18}\d)\b"
    rf"|(?:電話|tel|フリータイヤル|フリーコール|窓口|連絡先)[^\d+\n]{{0,30}}?(\(?0(?:[\d()]|{_GAP}){{6,16}}\d)"
)
_DATE = re.compile(r"\d\d?[ ./-]\d\d?[ ./-]\d{4}")
_FEWEST, _MOST = 8, 15  # digits
_CANDIDATE = re.compile(r"\b(?:[13][1-9A-HJ-NP-Za-km-z]{25,34}|(?ai:bc1[02-9ac-hj-np-z]{11,71}))\b")
_LIKE_COINS = re2.compile("[13][1-9A-HJ-NP-Za-km-z]{25}|[bB][cC]1[02-9A-Za-z]{11}")  # occurs in every address
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BECH32_SUMS = (1, 0x2BC830A3)  # of bech32 (BIP 173) and bech32m (BIP 350)


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


def find_phone(text: str) -> str:
    """Return the first phone number of a folded text, or ""."""
    digits = _DIGITS.search(text)
    found = _PHONE.search(text, max(0, digits.start() - _IN_FRONT)) if digits else None
    if found:
        return found.group()
    spaced = _SPACED.search(text)
    return spaced[1] if spaced else _find_abroad(text)


def _find_abroad(text: str) -> str:
    for found in _ABROAD.finditer(text):
        number: str = found[1] or found[2] or found[3] or found[4]
        if _FEWEST <= sum(map(str.isdigit, number)) <= _MOST and not _DATE.fullmatch(number):
            return number
    return ""


def find_bitcoin_address(text: str) -> str:
    """Return the first address whose checksum is right, or ""."""
    if not _LIKE_COINS.search(text):
        return ""
    for match in _CANDIDATE.finditer(text):
        word = match.group()
        if _is_bech32(word.lower()) if word[:3].lower() == "bc1" else _is_base58(word):
            return word
    return ""


def _is_base58(word: str) -> bool:
    value = 0
    for character in word:
        value = value * 58 + _BASE58.index(character)
    if value >= 1 << 200:
        return False
    raw = value.to_bytes(25, "big")
    return hashlib.sha256(hashlib.sha256(raw[:21]).digest()).digest()[:4] == raw[21:]


def _is_bech32(word: str) -> bool:
    values = [
        3,
        3,
        0,
        2,
        3,
        *(_BECH32.index(character) for character in word[3:]),
    ]  # the prefix "bc" as BIP 173 expands it
    total = 1
    for value in values:
        top = total >> 25
        total = (total & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            total ^= generator if top >> bit & 1 else 0
    return total in _BECH32_SUMS
