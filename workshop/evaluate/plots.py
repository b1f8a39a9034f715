"""Plots as inline SVG: ROC curves on a logarithmic scale of false positives, and bars."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import log10

WIDTH, HEIGHT, MARGIN = 460, 300, 44
LEAST = 0.0003  # the lowest false positive rate on the axis
COLOURS = ("#0b6e4f", "#b3541e", "#6a4c93")

Curve = Sequence[tuple[float, float]]


def roc_plot(title: str, curves: Mapping[str, Curve]) -> str:
    """Draw the detection rate over the false positive rate, as steps."""
    drawn = [_axes(title)]
    for position, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[position % len(COLOURS)]
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{_steps(curve)}"/>')
        top = MARGIN + 14 + 16 * position
        drawn.append(f'<text x="{MARGIN + 10}" y="{top}" fill="{colour}">{escape(name)}</text>')
    return _svg(WIDTH, HEIGHT, drawn)


def bar_plot(rows: Iterable[tuple[str, float, str]]) -> str:
    """Draw one bar per row: its name, its fraction, and the text beside it."""
    some = list(rows)
    drawn = []
    for position, (name, part, text) in enumerate(some):
        top = 18 * position
        drawn.append(f'<text x="0" y="{top + 13}">{escape(name)}</text>')
        drawn.append(f'<rect x="190" y="{top + 2}" width="300" height="13" fill="#e8e8e4"/>')
        drawn.append(f'<rect x="190" y="{top + 2}" width="{300 * part:.1f}" height="13" fill="{COLOURS[0]}"/>')
        drawn.append(f'<text x="498" y="{top + 13}">{escape(text)}</text>')
    return _svg(760, 18 * len(some) + 4, drawn)


def _svg(width: int, height: int, drawn: Iterable[str]) -> str:
    return f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">{"".join(drawn)}</svg>'


def _place(rate: float, caught: float) -> tuple[float, float]:
    across = (log10(max(rate, LEAST)) - log10(LEAST)) / -log10(LEAST)
    return MARGIN + across * (WIDTH - MARGIN - 24), HEIGHT - MARGIN - caught * (HEIGHT - 2 * MARGIN)


def _steps(curve: Curve) -> str:
    points: list[tuple[float, float]] = []
    before = 0.0
    for rate, caught in curve:
        points += [_place(rate, before), _place(rate, caught)]
        before = caught
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _axes(title: str) -> str:
    lines = [f'<text x="{MARGIN}" y="24" font-weight="bold">{escape(title)}</text>']
    for rate in (0.001, 0.005, 0.01, 0.1, 1.0):
        x, bottom = _place(rate, 0.0)
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN}" y2="{bottom}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{100 * rate:g}%</text>')
    for caught in (0.0, 0.25, 0.5, 0.75, 1.0):
        left, y = _place(LEAST, caught)
        lines.append(f'<line x1="{left}" x2="{WIDTH - 24}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * caught:g}%</text>')
    middle = MARGIN + (WIDTH - MARGIN) / 2
    lines.append(
        f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">false positives (ham without fixtures)</text>'
    )
    return "".join(lines)
