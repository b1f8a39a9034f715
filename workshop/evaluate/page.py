"""The page with the plots and the errors; it shows subjects of the corpus, and stays outside of the repository.

Security: everything of a message is escaped, and the page loads and runs nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from mailwarden.model.place import place_text
from workshop.evaluate.corpus import BEC_QR, CLASSES, HAM, MALWARE, PHISHING, SPAM
from workshop.evaluate.figures import (
    GOAL_RATE,
    Score,
    figures_at,
    is_measured,
    our_score,
    rspamd_score,
    scores_by,
    spamassassin_score,
)
from workshop.evaluate.plots import bar_plot, roc_plot
from workshop.evaluate.scores import curve
from workshop.evaluate.separation import reasons_of
from workshop.evaluate.tables import false_positives, missed, percent
from workshop.evaluate.trial import Judged

SHOWN = 400
FACT_LENGTH = 120
_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}"
    "svg{font:12px system-ui,sans-serif;margin:0 1rem 1rem 0}pre{overflow-x:auto;background:#f4f4f0;padding:1rem}"
    "details{border-top:1px solid #ddd;padding:.3rem 0}summary{cursor:pointer}li{overflow-wrap:anywhere}"
    ".small{color:#666;font-size:12px}"
)


def write_page(path: Path, judged: Sequence[Judged], lines: Sequence[str]) -> None:
    """Write the page; `lines` is the printed output."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(_page(judged, lines)), encoding="utf-8")


def _page(judged: Sequence[Judged], lines: Sequence[str]) -> Iterator[str]:
    yield "<!doctype html><html lang=en><meta charset=utf-8><title>Detection, measured</title>"
    yield "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<style>{_STYLE}</style><h1>Detection, measured</h1>"
    yield f"<p>{escape(lines[-1])}</p>" if lines else ""
    yield "<h2>Catch rate over false positives</h2>"
    for kind in (PHISHING, SPAM):
        yield roc_plot(kind, _curves(judged, kind))
    threshold = figures_at(GOAL_RATE, judged).threshold
    yield f"<h2>Each source, at a false positive rate of {100 * GOAL_RATE:g} % (score over {threshold:g})</h2>"
    for kind in CLASSES:
        subsets = scores_by(
            (one for one in judged if one.sample.kind == kind), lambda one: one.sample.subset, our_score
        )
        if subsets:
            yield f"<h3>{kind}</h3>" + bar_plot(_bars(subsets, threshold))
    yield "<h2>Tables</h2><pre>" + escape("\n".join(lines)) + "</pre>"
    yield from _messages("Good mail that is quarantined", false_positives(judged))
    for kind in (PHISHING, SPAM, BEC_QR, MALWARE):
        yield from _messages(f"Delivered: {kind}", missed(judged, [kind]))


def _curves(judged: Sequence[Judged], kind: str) -> dict[str, list[tuple[float, float]]]:
    named: dict[str, Score] = {
        "mailwarden": our_score,
        "bare Rspamd": rspamd_score,
        "SpamAssassin": spamassassin_score,
    }
    curves = {}
    for name, score in named.items():
        if is_measured(judged, score):
            scores = scores_by(judged, lambda one: one.sample.kind, score)
            curves[name] = curve(scores.get(HAM, []), scores.get(kind, []))
    return curves


def _bars(subsets: Mapping[str, Sequence[float]], threshold: float) -> Iterator[tuple[str, float, str]]:
    for name, scores in sorted(subsets.items()):
        above = sum(score > threshold for score in scores)
        yield name, above / len(scores), f"{percent(above / len(scores))} of {len(scores):,}"


def _messages(title: str, some: Sequence[Judged]) -> Iterator[str]:
    """Yield the messages with a wrong decision, those nearest to the right decision first."""
    ordered = sorted(some, key=lambda one: -one.score)
    more = f", the first {SHOWN} of them" if len(ordered) > SHOWN else ""
    yield f"<h2>{escape(title)}: {len(ordered):,}{more}</h2>"
    for one in ordered[:SHOWN]:
        yield (
            f"<details><summary>{one.score:g} · {escape(one.scanned.subject or '(no subject)')}"
            f" · <span class=small>{escape(reasons_of(one))}</span></summary>"
            f"<p class=small>{escape(one.sample.path)} · {escape(one.sample.subset)} · {one.judgement.verdict}</p><ul>"
        )
        for reason in one.judgement.reasons:
            yield f"<li>{reason.weight} {reason.verdict}: {escape(reason.summary)} <code>{escape(reason.rule)}</code>"
        spoken = {reason.rule for reason in one.judgement.reasons}
        for _, finding in one.scanned.evidence.findings:
            if finding.name not in spoken:
                facts = ", ".join(f"{key}: {str(value)[:FACT_LENGTH]}" for key, value in finding.facts.items())
                yield f"<li class=small>{escape(finding.name)} {escape(place_text(finding.place))} {escape(facts)}"
        yield "</ul></details>"
