"""Codes drawn with the shapes of SVG, and drawings made to exhaust their reader."""

import time

import pytest
import segno

from mailwarden.files.vector_drawings import read_vectors as read_all_vectors
from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import LIMITS

ADDRESS = "https://portal.evil.test/mfa"


def read_vectors(source, coverage=None):
    return list(read_all_vectors(source, coverage or Coverage()))


@pytest.fixture(scope="module")
def fields():
    matrix = segno.make(ADDRESS, micro=False).matrix
    return [(x, y) for y, row in enumerate(matrix) for x, dark in enumerate(row) if dark]


def drawn(shapes):
    return f'<p>text</p><svg viewBox="0 0 40 40"><rect width="99" height="99" fill="#fff"/>{shapes}</svg>'


def test_rectangles_are_read(fields):
    shapes = "".join(f'<rect x="{x}" y="{y}" width="1" height="1"/>' for x, y in fields)
    assert (read_vectors(drawn(shapes))) == [ADDRESS]


@pytest.mark.parametrize(
    "shape",
    [
        '<circle cx="{c}" cy="{m}" r="0.5"/>',
        '<polygon points="{x},{y} {r},{y} {r},{b} {x},{b}"/>',
        '<rect transform="translate({x} {y})" width="1" height="1"/>',
        '<path d="M{x} {m}A.5 .5 0 0 1 {r} {m}A.5 .5 0 0 1 {x} {m}L{x} {y}L{r} {y}L{r} {b}L{x} {b}Z"/>',
    ],
    ids=["circles", "polygons", "moved", "arcs"],
)
def test_round_and_moved_modules_are_read(fields, shape):
    shapes = "".join(shape.format(x=x, y=y, m=y + 0.5, c=x + 0.5, r=x + 1, b=y + 1) for x, y in fields)
    assert read_vectors(drawn(shapes)) == [ADDRESS]


@pytest.mark.parametrize(
    "outline", ["M{x} {y}h1v1h-1z", "M{x},{y} L{r},{y} {r},{b} {x},{b} Z", "M{x} {y}H{r}V{b}H{x}Z"]
)
def test_paths_are_read_in_every_notation(fields, outline):
    path = "".join(outline.format(x=x, y=y, r=x + 1, b=y + 1) for x, y in fields)
    assert (read_vectors(drawn(f'<path d="{path}"/>'))) == [ADDRESS]


@pytest.mark.parametrize(
    ("step", "width"), [("M{x} {m}h1", ""), ("M{c} {y}v1", ' stroke-width="1"'), ("M{x} {m}H{r}", ' fill="none"')]
)
def test_strokes_as_wide_as_a_field_are_read(fields, step, width):
    path = "".join(step.format(x=x, y=y, m=y + 0.5, c=x + 0.5, r=x + 1) for x, y in fields)
    assert (read_vectors(drawn(f'<path stroke="#000"{width} d="{path}"/>'))) == [ADDRESS]
    assert (read_vectors(drawn(f'<path stroke="#fff"{width} d="{path}"/>'))) == []


@pytest.mark.parametrize(
    "source",
    [
        "",
        "<svg>",
        drawn("<path d='M0 0C1 1 2 2 3 3'/>"),
        drawn("<path d='M'/><rect x='nan' width='-1' height='inf'/>"),
        drawn("<path d='M1e99 1e99h1e99v1e99z'/>" * 20),
        drawn("<path d='" + "M0 0" + "h1v1" * 20_000 + "'/>"),
        drawn("<path d='zzzz1 2 3 m'/>" * 50),
    ],
)
def test_drawings_without_a_code_are_none(source):
    assert (read_vectors(source)) == []


@pytest.mark.slow
@pytest.mark.parametrize("shape", ['<rect width="9" height="9"/>', "<path d='M0 0h9v9h-9z'/>", "<rect <path d='M0"])
def test_a_drawing_that_goes_on_and_on_costs_little(shape):
    started = time.process_time()
    coverage = Coverage()
    read_vectors(drawn(shape * (LIMITS.vector_shapes + 1)), coverage)
    assert time.process_time() - started < 4
    assert coverage.complete == shape.startswith("<rect <path")
