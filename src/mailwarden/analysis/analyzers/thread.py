"""Reports that a message presents itself as the answer of a conversation.

Whether the tenant had that conversation is known to its history alone (senders/relations.py).

Security: works on hostile headers and text inside a killable worker; every pattern is linear.
"""

from collections.abc import Iterator
from typing import ClassVar

import re2

from mailwarden.analysis.view import View
from mailwarden.model.evidence import Finding
from mailwarden.model.place import THE_TEXT, area

# RFC 5322, section 3.6.5 knows "Re: " alone; clients translate it.
_ANSWER = re2.compile(
    r"(?i)^\s*(?:\[[^\]]{1,40}\]\s*)?(?:re|aw|antw(?:ort)?|sv|vs|odp|ynt|res|rif|ref|r|回复|回覆|答复|返信|답장)"
    r"\s?(?:\[\d{1,3}\]|\(\d{1,3}\))?\s?[:：]"
)
_FORWARD = re2.compile(r"(?i)^\s*(?:fwd?|wg|tr|rv|i|enc|doorst|vb|pd|ilt|vl|转发|轉寄|転送)\s?[:：]")
# The line above a quotation, in ten languages; the text is as people read it.
_ABOVE = re2.compile(
    r"(?im)^[ \t]*(?:-{3,}|_{5,})? ?(?:original message|ursprüngliche nachricht|message d'origine|mensaje original"
    r"|messaggio originale|mensagem original|oorspronkelijk bericht|wiadomość oryginalna|orijinal mesaj|元のメッセージ)"
    r"|^[ \t>]*(?:on|am|le|el|il|em|op|w dniu) [^\n]{4,160}"
    r"(?:wrote|schrieb[^\n:]{0,60}|a écrit|escribió|ha scritto|escreveu|schreef[^\n:]{0,60}|napisał(?:\(a\)|a)?) ?:"
    r"|^[ \t]*(?:from|von|de|da|van|od|kimden|差出人) ?: [^\n]{3,200}\n{1,2}[ \t]*"
    r"(?:sent|date|to|gesendet|datum|an|envoyé|enviado|fecha|inviato|data|verzonden|wysłano|gönderilme|送信日時)[^\n:]{0,20}:"
)
_MARKED = re2.compile(r"(?m)^[ \t]{0,3}>[^\n]{2,}\n[ \t]{0,3}>")
_QUOTING_PAGE = ("gmail_quote", "divrplyfwdmsg", 'type="cite"', "moz-cite-prefix", "yahoo_quoted", "appendonsend")


class ThreadAnalyzer:
    name: ClassVar[str] = "thread"

    def examine(self, view: View) -> Iterator[Finding]:
        if _FORWARD.search(view.subject):
            return
        answers, refers, quotes = bool(_ANSWER.search(view.subject)), _refers(view), _quotes(view)
        if quotes:
            yield Finding("thread.quoted", THE_TEXT)
        if (answers and (refers or quotes)) or (refers and quotes):
            yield Finding("thread.reply", area("Subject"))
            if not refers:
                yield Finding("thread.without-reference", area("Subject"))


def _refers(view: View) -> bool:
    return bool(view.message.header("in-reply-to").strip() or view.message.header("references").strip())


def _quotes(view: View) -> bool:
    if any(mark in page.lower for page in view.pages if not page.attached for mark in _QUOTING_PAGE):
        return True
    texts = {view.own_text, view.plain_text}
    return any(_ABOVE.search(text) or (">" in text and _MARKED.search(text)) for text in texts)
