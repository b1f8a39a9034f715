"""One link or one phishing page, in every form that a mail client still shows, loads or follows."""

import base64
import html
import quopri
from collections.abc import Iterator

from workshop.evasion.mail import Part, encoded_page, file_part, head, message, mixed, text_part, with_page
from workshop.evasion.payloads import LISTED_HOST, LISTED_URL, PHISHING_PAGE

URL = LISTED_URL
HOST = LISTED_HOST
_INTRO = "<p>Hello Bob, the minutes of Thursday are ready.</p>"
_ENTITIES = "".join(f"&#{ord(letter)};" for letter in URL)
_SENTENCE = "The minutes of the meeting were read and agreed. "

MAIL_ONLY = frozenset({"bare host as text"})  # browsers do not make a link of it
LINKS: dict[str, str] = {
    "anchor": f'<a href="{URL}">minutes</a>',
    "anchor unquoted": f"<a href={URL}>minutes</a>",
    "anchor in single quotes": f"<a href='{URL}'>minutes</a>",
    "anchor in upper case": f'<A HREF="{URL.upper().replace("VERIFY", "verify")}">minutes</A>',
    "anchor with entities": f'<a href="{_ENTITIES}">minutes</a>',
    "anchor behind a control character": f'<a href="&#1;{URL}">minutes</a>',
    "anchor behind a raw control character": f'<a href="\x01 {URL}">minutes</a>',
    "anchor with a tab inside": '<a href="https://listed-\tlink.example.com/verify">minutes</a>',
    "anchor with a line break inside": f'<a href="ht\r\ntps://{HOST}/verify">minutes</a>',
    "anchor with a NUL": f'<a href="{URL}"\0>minutes</a>',
    "anchor with backslashes": f'<a href="https:\\\\{HOST}\\verify">minutes</a>',
    "anchor without a scheme": f'<a href="//{HOST}/verify">minutes</a>',
    "anchor with one slash": f'<a href="https:/{HOST}/verify">minutes</a>',
    "anchor with a name before": f'<a href="https://company.example@{HOST}/verify">minutes</a>',
    "anchor with a port": f'<a href="https://{HOST}:443/verify">minutes</a>',
    "anchor with percent signs": '<a href="https://listed%2Dlink.example.com/verify">minutes</a>',
    "anchor with a full stop behind": f'<a href="https://{HOST}./verify">minutes</a>',
    "anchor in fullwidth letters": '<a href="https://ｌｉｓｔｅｄ-link.example.com/verify">minutes</a>',
    "anchor twice": f'<a href="{URL}" href="https://company.example/">minutes</a>',
    "anchor with a slash for a blank": f'<a/href="{URL}">minutes</a>',
    "anchor never closed": f'<a href="{URL}">minutes',
    "anchor cut off": f'<a href="{URL}" ',
    "anchor on a base": f'<base href="https://{HOST}/"><a href="verify">minutes</a>',
    "anchor in a template": f'<template><a href="{URL}">minutes</a></template><a href="{URL}">m</a>',
    "anchor in a noscript": f'<noscript><a href="{URL}">minutes</a></noscript>',
    "anchor behind a comment": f'<!-- --!><a href="{URL}">minutes</a><!-- -->',
    "anchor in a table": f'<table><tr><td><a href="{URL}">minutes</a>',
    "area of a map": f'<map name="m"><area href="{URL}"></map><img src="cid:1" usemap="#m">',
    "form": f'<form action="{URL}"><button>minutes</button></form>',
    "button of a form": f'<form><button formaction="{URL}">minutes</button></form>',
    "input of a form": f'<form><input type="submit" formaction="{URL}"></form>',
    "image map of a form": f'<form><input type="image" src="{URL}"></form>',
    "picture": f'<img src="{URL}">',
    "picture by srcset": f'<img srcset="{URL} 2x">',
    "background of a table": f'<table background="{URL}"><tr><td>minutes</table>',
    "background by style": f'<div style="background:url({URL})">minutes</div>',
    "background by style sheet": f"<style>p {{ background: url('{URL}') }}</style>{_INTRO}",
    "import of a style sheet": f'<style>@import "{URL}";</style>{_INTRO}',
    "style sheet": f'<link rel="stylesheet" href="{URL}">{_INTRO}',
    "frame": f'<iframe src="{URL}"></iframe>',
    "frame by srcdoc": f'<iframe srcdoc="{html.escape(f"<a href={URL}>minutes</a>")}"></iframe>',
    "object": f'<object data="{URL}"></object>',
    "embed": f'<embed src="{URL}">',
    "video": f'<video src="{URL}" poster="{URL}"></video>',
    "audio": f'<audio><source src="{URL}"></audio>',
    "refresh": f'<meta http-equiv="refresh" content="0;url={URL}">',
    "refresh in odd spelling": f'<meta http-equiv=" Refresh " content="0; URL = \'{URL}\'">',
    "svg anchor": f'<svg><a href="{URL}"><text y="20">minutes</text></a></svg>',
    "svg xlink": f'<svg xmlns:xlink="http://www.w3.org/1999/xlink"><a xlink:href="{URL}"><text y="20">m</text></a></svg>',
    "svg image": f'<svg><image href="{URL}" width="9" height="9"/></svg>',
    "svg use": f'<svg><use href="{URL}#a"/></svg>',
    "svg animation": f'<svg><a><animate attributeName="href" values="{URL}"/><text y="20">minutes</text></a></svg>',
    "math": f'<math><mtext href="{URL}">minutes</mtext></math>',
    "vml": f'<v:rect xmlns:v="urn:schemas-microsoft-com:vml" href="{URL}"><v:textbox>minutes</v:textbox></v:rect>',
    "vml fill": f'<v:rect><v:fill src="{URL}"/></v:rect>',
    "conditional comment": f'<!--[if mso]><a href="{URL}">minutes</a><![endif]-->',
    "conditional comment for others": f'<!--[if !mso]><!--><a href="{URL}">minutes</a><!--<![endif]-->',
    "conditional vml": f'<!--[if gte mso 9]><v:roundrect href="{URL}" fillcolor="#111">m</v:roundrect><![endif]-->',
    "url as text": f"<p>{URL}</p>",
    "bare host as text": f"<p>{HOST}/verify</p>",
    "www host as text": f"<p>Go to www.{HOST}/verify now</p>",
    "url in preformatted text": f"<pre>see &lt;{URL}&gt;</pre>",
    "script": f'<script>location.href="{URL}"</script>',
    "event handler": f"<p onclick=\"location='{URL}'\">minutes</p>",
    "javascript link": f"<a href=\"javascript:location='{URL}'\">minutes</a>",
    "data link": f'<a href="data:text/html;base64,{base64.b64encode(f"<a href={URL}>x</a>".encode()).decode()}">minutes</a>',
    "data frame": f'<iframe src="data:text/html,{html.escape(f"<a href={URL}>x</a>")}"></iframe>',
    "anchor of Office": f'<a href="ms-word:ofe|u|{URL}">minutes</a>',
    "anchor of another browser": f'<a href="microsoft-edge:{URL}">minutes</a>',
    "anchor of Safari": f'<a href="x-safari-{URL}">minutes</a>',
    "anchor of an app": f'<a href="intent://{HOST}/verify#Intent;scheme=https;end">minutes</a>',
    "anchor to a share": f'<a href="smb://{HOST}/share">minutes</a>',
    "anchor to a calendar": f'<a href="webcal://{HOST}/minutes.ics">minutes</a>',
    "anchor to a feed": f'<a href="feed:{URL}">minutes</a>',
    "anchor to the source": f'<a href="view-source:{URL}">minutes</a>',
    "anchor by vbscript": f"<a href='vbscript:location=\"{URL}\"'>minutes</a>",
    "anchor in percent signs behind a scheme": f'<a href="microsoft-edge:https%3A%2F%2F{HOST}%2Fverify">minutes</a>',
    "conditional comment with a long condition": f'<!--[if {"(mso 9)|" * 60}(mso 12)]><a href="{URL}">minutes</a><![endif]-->',
    "conditional comment with blanks": f'<!--[if mso{" " * 300}]><a href="{URL}">minutes</a><![endif]-->',
    "rare event handler": f"<details open ontoggle=\"location='{URL}'\">minutes</details>",
    "style with an image set": f"<div style='background:image-set(\"{URL}\" 1x)'>minutes</div>",
    "style sheet by data": f'<link rel="stylesheet" href="data:text/css,p{{background:url({URL})}}">',
    "url torn by tags": "<p>https://listed-<b>link</b>.exam<!-- -->ple.com/verify</p>",
    "behind 10,000 tags": "<b></b>" * 10_000 + f'<a href="{URL}">minutes</a>',
    "behind 3,000 links": "".join(f'<a href="https://host{n}.example/{n}">x</a>' for n in range(3_000))
    + f'<a href="{URL}">m</a>',
    "behind deep tags": "<div>" * 5_000 + f'<a href="{URL}">minutes</a>',
    "behind 30,000 hidden characters": f'<div style="height:0;overflow:hidden">{_SENTENCE * 700}</div><p>{URL}</p>',
    "behind a million characters": f"<p>{_SENTENCE * 21_000}</p><p>{URL}</p>",
    "behind three million characters": f"<p>{_SENTENCE * 63_000}</p><a href='{URL}'>minutes</a>",
    "behind a style of a megabyte": f"<style>{'a{color:red}' * 90_000}</style><a href='{URL}'>minutes</a>",
}


def link_cases() -> Iterator[tuple[str, bytes]]:
    """Yield the listed link in every form, in the body and as an attached page."""
    for name, markup in LINKS.items():
        page = f"<html><body>{_INTRO}{markup}</body></html>".encode()
        yield f"link: {name}", with_page(page)
        if len(page) < 200_000 and name not in MAIL_ONLY:
            yield f"link: {name}, attached", message(mixed(text_part(), file_part("minutes.htm", page, "text/html")))
    yield from _text_cases()


def _text_cases() -> Iterator[tuple[str, bytes]]:
    yield "text: url", with_page(f"see {URL}\r\n".encode(), "text/plain")
    yield "text: url in angle brackets", with_page(f"see <{URL}>\r\n".encode(), "text/plain")
    yield "text: url in upper case", with_page(f"see HTTPS://{HOST.upper()}/verify\r\n".encode(), "text/plain")
    yield "text: bare host", with_page(f"see {HOST}/verify now\r\n".encode(), "text/plain")
    yield "text: bare host alone", with_page(f"see {HOST} now\r\n".encode(), "text/plain")
    flowed = f"see <https://{HOST}/ve \r\nrify?u=bob>\r\n"
    yield "text: flowed", with_page(flowed.encode(), "text/plain; format=flowed; delsp=yes")
    yield "text: behind 200,000 characters", with_page(f"{_SENTENCE * 4_100}\r\n{URL}\r\n".encode(), "text/plain")
    yield "text: behind a million characters", with_page(f"{_SENTENCE * 21_000}\r\n{URL}\r\n".encode(), "text/plain")
    yield (
        "text: behind five million characters",
        with_page(f"{_SENTENCE * 105_000}\r\n{URL}\r\n".encode(), "text/plain"),
    )
    yield "text: second part", message(mixed(text_part(), text_part(f"see {URL}\r\n".encode())))
    blank = text_part(b" \r\n" * 80_000)
    yield "text: second part behind blanks", message(mixed(blank, text_part(f"see {URL}\r\n".encode())))
    both = (text_part(f"see {URL}\r\n".encode()), text_part(b"<p>Nothing here</p>", "text/html"))
    yield "text: the alternative that is not shown", message(mixed(*both, subtype="alternative"))
    many = [text_part(f"note {number}\r\n".encode()) for number in range(60)]
    yield "text: behind 60 parts", message(mixed(*many, text_part(f"see {URL}\r\n".encode())))
    yield "text: type unknown", with_page(f"see {URL}\r\n".encode(), "text/x-unknown")
    yield "text: no type", head() + f"\r\nsee {URL}\r\n".encode()
    yield "text: enriched", with_page(f"<bold>see</bold> <x-url>{URL}</x-url>\r\n".encode(), "text/enriched")
    field = f'{{\\rtf1 {{\\field{{\\*\\fldinst HYPERLINK "{URL}"}}{{\\fldrslt minutes}}}}}}'
    yield "text: rtf", with_page(field.encode(), "text/rtf")
    yield "text: rtf attached", message(mixed(text_part(), file_part("a.rtf", field.encode(), "application/rtf")))
    event = f"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Minutes\r\nURL:{URL}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    yield "text: calendar url", message(mixed(text_part(), text_part(event.encode(), "text/calendar; method=REQUEST")))
    event = event.replace(f"URL:{URL}", f"DESCRIPTION:See {URL[:20]}\r\n {URL[20:]}")
    yield "text: calendar folded", message(mixed(text_part(), text_part(event.encode(), "text/calendar")))
    event = event.replace("BEGIN:VEVENT", "BEGIN:VEVENT\r\n" + "COMMENT:note\r\n" * 300)
    yield (
        "text: calendar behind 300 fields",
        message(mixed(text_part(), file_part("a.ics", event.encode(), "text/calendar"))),
    )
    card = f"BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Alice\r\nURL:{URL}\r\nEND:VCARD\r\n"
    yield "text: card", message(mixed(text_part(), file_part("a.vcf", card.encode(), "text/vcard")))
    yield "text: unsubscribe", head() + f"List-Unsubscribe: <{URL}>\r\n\r\nhello Bob\r\n".encode()
    yield "text: subject", head(subject=f"Minutes at {URL}") + b"\r\nsee the subject\r\n"


def page_cases() -> Iterator[tuple[str, bytes]]:
    """Yield the phishing page under names and types that mail clients still open as a page."""
    page = PHISHING_PAGE
    for kind in (
        "text/html",
        "text/x-html",
        "application/xhtml+xml",
        "application/octet-stream",
        "text/plain",
        "image/svg+xml",
        "x/y",
    ):
        for name in ("invoice.html", "invoice.htm", "invoice.shtml", "invoice.xhtml"):
            yield f"page: {kind} {name}", message(mixed(text_part(), file_part(name, page, kind)))
    for name in ("invoice.htm.", "invoice.htm ", "invoice.html. .", "invoice", "invoice\u202emth.htm", "in/voice.htm", "invoice.HTM",
                 "invoice.htm\u200b", "invoice.pdf.htm", "invoice\uff0ehtm", "invoice.htm::$DATA", "x" * 300 + ".htm"):  # fmt: skip
        yield (
            f"page: named {name[-40:]!r}",
            message(mixed(text_part(), file_part(name, page, "application/octet-stream"))),
        )
    inline = ('Content-Type: text/html; charset=utf-8; name="a.txt"', 'Content-Disposition: inline; filename="a.txt"')
    yield "page: inline named .txt", message(Part(inline, page))
    rfc2231 = (
        "Content-Type: application/octet-stream",
        "Content-Disposition: attachment; filename*0=invoice; filename*1=.htm",
    )
    yield "page: name in pieces", message(mixed(text_part(), Part(rfc2231, page)))
    encoded = (
        "Content-Type: application/octet-stream",
        "Content-Disposition: attachment; filename*=utf-8''invoice%2Ehtm",
    )
    yield "page: name in percent signs", message(mixed(text_part(), Part(encoded, page)))
    word = (
        'Content-Type: application/octet-stream; name="=?utf-8?B?aW52b2ljZS5odG0=?="',
        "Content-Disposition: attachment",
    )
    yield "page: name in an encoded word", message(mixed(text_part(), Part(word, page)))
    two = (
        'Content-Type: application/octet-stream; name="invoice.htm"',
        'Content-Disposition: attachment; filename="notes.txt"',
    )
    yield "page: two names", message(mixed(text_part(), Part(two, page)))
    xhtml = b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">' + page.partition(b"<html>")[2]
    for name, kind in (("a.xml", "application/xml"), ("a.xml", "text/xml"), ("a.xht", "application/octet-stream")):
        yield f"page: xml {name} {kind}", message(mixed(text_part(), file_part(name, xhtml, kind)))
    yield (
        "page: xml prefix",
        message(
            mixed(
                text_part(),
                file_part(
                    "a.xml",
                    xhtml.replace(b"<", b"<h:")
                    .replace(b"<h:/", b"</h:")
                    .replace(b"<h:?", b"<?")
                    .replace(b"xmlns=", b"xmlns:h="),
                    "application/xml",
                ),
            )
        ),
    )
    svg = (
        b'<svg xmlns="http://www.w3.org/2000/svg"><foreignObject width="9" height="9"><body xmlns="http://www.w3.org/1999/xhtml">'
        + page.partition(b"<body>")[2].replace(b"</html>", b"")
        + b"</foreignObject></svg>"
    )
    yield "page: svg", message(mixed(text_part(), file_part("a.svg", svg, "image/svg+xml")))
    for number, cte in enumerate(("base64", "quoted-printable", "8bit", "x-unknown", "7bit")):
        body = {"base64": base64.encodebytes(page), "quoted-printable": quopri.encodestring(page)}.get(cte, page)
        part = Part(
            (
                'Content-Type: text/html; name="a.htm"',
                "Content-Disposition: attachment",
                f"Content-Transfer-Encoding: {cte}",
            ),
            body,
        )
        yield f"page: encoding {number} {cte}", message(mixed(text_part(), part))


_UTF7 = "".join(f"+{base64.b64encode(letter.encode('utf-16-be')).decode().rstrip('=')}-" for letter in '<>"=')


def _utf7(text: str, every: bool) -> bytes:
    if every:
        return b"+" + base64.b64encode(text.encode("utf-16-be")).rstrip(b"=") + b"-"
    return text.encode("utf-7")


def charset_cases() -> Iterator[tuple[str, bytes]]:
    """Yield a page with the listed link in charsets that clients decode, with a right, a wrong or no label."""
    text = f'<html><body><p>Hello</p><a href="{URL}">minutes</a></body></html>'
    for label in ("utf-7", "UTF7", "unicode-1-1-utf-7", "x-unicode-2-0-utf-7"):
        yield f"charset: {label}", with_page(_utf7(text, every=False), f"text/html; charset={label}")
        yield f"charset: {label}, all of it", with_page(_utf7(text, every=True), f"text/html; charset={label}")
    for codec in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
        for label in (codec, "", "utf-8", "us-ascii", "iso-8859-1"):
            kind = f"text/html; charset={label}" if label else "text/html"
            yield f"charset: {codec} labelled {label or 'nothing'}", encoded_page(text.encode(codec), kind)
    for codec, labels in {
        "cp037": ("cp037", "ibm037", "ebcdic-cp-us"), "cp500": ("cp500", "ibm500", "ebcdic-cp-be"),
        "cp1140": ("cp1140", "ibm01140"), "cp273": ("ibm273", "cp273"), "cp1026": ("ibm1026",),
    }.items():  # fmt: skip
        for label in labels:
            yield f"charset: {label}", encoded_page(text.encode(codec), f"text/html; charset={label}")
    for label in ("iso-2022-jp", "iso-2022-kr", "iso-2022-cn", "hz-gb-2312", "x-user-defined", "replacement", "ibm037"):
        meta = text.replace("<html>", f'<html><head><meta charset="{label}"></head>')
        yield f"charset: meta {label} over utf-8", with_page(meta.encode(), "text/html; charset=utf-8")
        yield f"charset: meta {label} alone", with_page(meta.encode(), "text/html")
    iso = (
        b'<html><head><meta charset="iso-2022-jp"></head><a \x1b$B\x1b(Bhref="' + URL.encode() + b'">minutes</a></html>'
    )
    yield "charset: iso-2022-jp escapes, meta alone", with_page(iso, "text/html")
    yield "charset: iso-2022-jp escapes", with_page(iso, "text/html; charset=iso-2022-jp")
    split = b'<a hre\x1b(Jf="' + URL.encode() + b'">minutes</a>'
    yield "charset: iso-2022-jp escape in an attribute", with_page(split, "text/html; charset=iso-2022-jp")
    hz = b'<html><head><meta charset="hz-gb-2312"></head><a ~\nhref="' + URL.encode() + b'">minutes</a></html>'
    yield "charset: hz line break, meta alone", with_page(hz, "text/html")
    seven = _utf7(text, every=True)
    yield "charset: two labels", with_page(seven, "text/html; charset=us-ascii; charset=utf-7")
    yield "charset: two labels turned", with_page(seven, "text/html; charset=utf-7; charset=us-ascii")
    yield "charset: in pieces", with_page(seven, "text/html; charset*0=utf; charset*1=-7")
    yield "charset: in percent signs", with_page(seven, "text/html; charset*=us-ascii'en'utf-7")
    yield "charset: in quotes with a comment", with_page(seven, 'text/html; charset="utf-7" (really)')
    yield "charset: utf-7 by meta", with_page(b'<meta charset="utf-7">' + seven, "text/html")
    yield "charset: utf-7 by byte order mark", with_page(b"+/v8-" + seven, "text/html")
    yield "charset: unknown label", encoded_page(text.encode("cp037"), "text/html; charset=x-no-such-charset")
    yield "charset: scsu", encoded_page(b"\x0e\xfe\xff" + text.encode("utf-16-be"), "text/html; charset=scsu")
