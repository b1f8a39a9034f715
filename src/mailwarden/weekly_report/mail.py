"""The weekly report as an email: plain text and HTML.

Security: subjects, senders and recipients are hostile text. They are made inert, escaped in HTML, and stand in no
header field. The tenant's name stands in none either.
"""

import textwrap
from collections.abc import Sequence
from datetime import datetime
from html import escape

from mailwarden.quarantine.digest import inert_text
from mailwarden.smtp.own_mail import checked_address, compose
from mailwarden.weekly_report.model import Figure, WeeklyReport, sentences_of

MAX_TEXT = 110
_CELL = "padding:4px 16px 4px 0;border-top:1px solid #ccc;text-align:left"
_NUMBER = "padding:4px 0 4px 16px;border-top:1px solid #ccc;text-align:right"


def write_mail(report: WeeklyReport, *, sender: str, recipient: str, link: str, now: datetime) -> bytes:
    """Return the message; it is ASCII unless the recipient's address is not."""
    page = f"{link.rstrip('/')}/console/reports?tenant={report.tenant}&week={report.week}"
    subject, plain, html = f"Weekly report, {report.week}", text_of(report, page), html_of(report, page)
    return compose(sender, checked_address(recipient), subject, now, plain=plain, html=html)


def text_of(report: WeeklyReport, page: str) -> str:
    """Return the report as plain text, with the address of its page."""
    blocks = [f"Weekly report of {_shown(report.tenant_name)}: {report.week.title} (UTC)"]
    blocks.append("\n".join(textwrap.fill(each, 76) for each in sentences_of(report)))
    for title, figures in _tables(report):
        rows = [
            f"  {figure.name:<32} {_number(figure.now):>12}   (week before: {_number(figure.before)})"
            for figure in figures
        ]
        blocks.append("\n".join([f"{title}:", *rows]))
    for title, counted in _lists(report):
        blocks.append("\n".join([f"{title}:", *(f"  {messages:>8,}  {value}" for value, messages in counted)]))
    return "\n\n".join([*blocks, f"Open the report: {page}", textwrap.fill(_end(), 76)]) + "\n"


def html_of(report: WeeklyReport, page: str) -> str:
    """Return the report as HTML; every value is escaped."""
    parts = "".join(f"<p>{escape(each)}</p>\n" for each in sentences_of(report))
    for title, figures in _tables(report):
        rows = "".join(
            f'<tr><td style="{_CELL}">{escape(figure.name)}</td><td style="{_NUMBER}">{_number(figure.now)}</td>'
            f'<td style="{_NUMBER}">{_number(figure.before)}</td><td style="{_NUMBER}">{figure.change}</td></tr>\n'
            for figure in figures
        )
        head = "".join(f'<th style="{_NUMBER}">{name}</th>' for name in ("This week", "Week before", "Change"))
        parts += (
            f'<h2>{escape(title)}</h2>\n<table style="border-collapse:collapse">\n'
            f'<tr><th style="{_CELL}"></th>{head}</tr>\n{rows}</table>\n'
        )
    for title, counted in _lists(report):
        rows = "".join(
            f'<tr><td style="{_CELL}">{escape(value)}</td><td style="{_NUMBER}">{messages:,}</td></tr>\n'
            for value, messages in counted
        )
        parts += f'<h2>{escape(title)}</h2>\n<table style="border-collapse:collapse">\n{rows}</table>\n'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Weekly report</title></head>\n'
        '<body style="font-family:sans-serif;line-height:1.4">\n'
        f"<h1>Weekly report of {escape(_shown(report.tenant_name))}</h1>\n<p>{escape(report.week.title)} (UTC)</p>\n"
        f'{parts}<p><a href="{escape(page)}">Open the report</a></p>\n<p>{escape(_end())}</p>\n</body></html>\n'
    )


def _tables(report: WeeklyReport) -> Sequence[tuple[str, Sequence[Figure]]]:
    shares = [(f"By {title.lower()}", figures) for title, figures in report.shares]
    tables = [("Key figures", report.headline_figures), *shares, ("Actions of users", report.user_figures)]
    return [(title, figures) for title, figures in tables if figures]


def _lists(report: WeeklyReport) -> Sequence[tuple[str, Sequence[tuple[str, int]]]]:
    attacked = report.attacked
    found: Sequence[tuple[str, Sequence[tuple[str, int]]]] = (
        ("Most attacked recipients", attacked.recipients),
        ("Top attacking domains", attacked.senders),
        ("Largest campaigns", [(campaign.subject, campaign.messages) for campaign in attacked.campaigns]),
    )
    return [(title, [(_shown(value), messages) for value, messages in values]) for title, values in found if values]


def _shown(text: str) -> str:
    return inert_text(text, MAX_TEXT) or "(empty)"


def _number(number: int | None) -> str:
    return "not known" if number is None else f"{number:,}"


def _end() -> str:
    return (
        "You receive this report because an administrator chose you. The page Reports of the console switches it off."
    )
