"""Finds QR codes in the drawings of a page: the shapes of an SVG (SVG 1.1, sections 8 and 9).

Security: hostile text; shapes and points are bounded by the message's limits, and every pattern is linear.
"""

import re
from collections.abc import Iterable, Iterator

from PIL import Image, ImageDraw

from mailwarden.files.qr_codes import read_image
from mailwarden.message.coverage import Coverage
from mailwarden.model.place import THE_PAGE, Place

MIN_SHAPES = 10
MANY_CORNERS = 1_000  # of one shape that is no part of a code
SIDE = 900  # pixels of the picture that is made
_MARGIN = 40

Point = tuple[float, float]
Shape = tuple[Point, ...]

_SVG = re.compile(r"<svg\b", re.IGNORECASE)
_ELEMENT = re.compile(r"<(rect|path|circle|ellipse|polygon)\b([^<>]+)>", re.IGNORECASE)
_FIELD = re.compile(
    r"(?<![\w-])(x|y|width|height|d|cx|cy|r|rx|ry|points|transform|fill|style|stroke|stroke-width)\s{0,3}=\s{0,3}[\"']([^\"']+)[\"']",
    re.IGNORECASE,
)
_LIGHT = re.compile(r"(?:^|fill\s{0,3}:)\s{0,3}(?:#f{3}\b|#f{6}|white|none|transparent)", re.IGNORECASE)
_STEP = re.compile(
    r"([MmLlHhVvZzCcSsQqTtAa])|([-+]?(?:\d{1,9}\.?\d{0,9}|\.\d{1,9})(?:e[-+]?\d{1,2})?)|([A-DF-Za-df-z])"
)
_TAKES = {"m": 2, "l": 2, "h": 1, "v": 1, "z": 0, "c": 6, "s": 4, "q": 4, "t": 2, "a": 7}
_TRANSLATED = re.compile(r"translate\(\s{0,9}([-+.\de]{1,20})[\s,]{0,9}([-+.\de]{0,20})", re.IGNORECASE)


def read_vectors(source: str, coverage: Coverage, place: Place = THE_PAGE) -> Iterator[str]:
    """Yield the texts of the codes that the drawings of a page show; `source` is as it was written."""
    for drawing in _SVG.split(source)[1:]:
        shapes = _shapes(drawing, coverage, place)
        if shapes and sum(map(len, shapes)) >= 4 * MIN_SHAPES:
            yield from read_image(_draw(shapes, coverage, place))


def _shapes(drawing: str, coverage: Coverage, place: Place) -> list[Shape]:
    shapes: list[Shape] = []
    points = 0
    for element in coverage.first(_ELEMENT.finditer(drawing), "vector_shapes", place):
        fields = {key.lower(): value for key, value in _FIELD.findall(element[2])}
        if stroke := _stroke(fields):
            found: Iterable[Shape] = (_bar(line, stroke) for line in _outlines(fields.get("d", "")))
        elif _LIGHT.search(fields.get("fill", "")) or _LIGHT.search(fields.get("style", "")):
            continue
        else:
            found = _drawn(element[1].lower(), fields)
        dx, dy = _offset(fields)
        for shape in found:
            points += len(shape)
            if points > coverage.limits.vector_points:
                coverage.beyond("vector_points", place)
                return shapes
            if 2 < len(shape) <= MANY_CORNERS:
                shapes.append(tuple((x + dx, y + dy) for x, y in shape) if dx or dy else shape)
    return shapes


def _drawn(name: str, fields: dict[str, str]) -> Iterable[Shape]:
    if name == "rect":
        return (_rectangle(fields),)
    if name in {"circle", "ellipse"}:  # round modules are read as square ones
        x, y = _number(fields.get("cx", "0")), _number(fields.get("cy", "0"))
        across, down = (_number(fields.get(key, fields.get("r", ""))) for key in ("rx", "ry"))
        return (((x - across, y - down), (x + across, y - down), (x + across, y + down), (x - across, y + down)),)
    return _outlines("M" + fields.get("points", "") if name == "polygon" else fields.get("d", ""))


def _offset(fields: dict[str, str]) -> Point:
    """Return by how much a shape is moved."""
    moved = _TRANSLATED.search(fields.get("transform", ""))
    return (_number(moved[1]), _number(moved[2])) if moved else (0.0, 0.0)


def _rectangle(fields: dict[str, str]) -> Shape:
    left, top = _number(fields.get("x", "0")), _number(fields.get("y", "0"))
    right, bottom = left + _number(fields.get("width", "")), top + _number(fields.get("height", ""))
    return ((left, top), (right, top), (right, bottom), (left, bottom)) if right > left and bottom > top else ()


def _stroke(fields: dict[str, str]) -> float:
    """Return how wide the strokes of a path are that is drawn by them, or 0."""
    colour = fields.get("stroke", "")
    if not colour or _LIGHT.search(colour) or "d" not in fields:
        return 0.0
    return _number(fields.get("stroke-width", "1"))


def _bar(line: Shape, width: float) -> Shape:
    """Return the rectangle that a straight stroke along one axis fills, or nothing."""
    if len(line) != 2:
        return ()
    (left, top), (right, bottom) = line
    half = width / 2
    if top == bottom:
        return ((left, top - half), (right, top - half), (right, top + half), (left, top + half))
    if left == right:
        return ((left - half, top), (left + half, top), (left + half, bottom), (left - half, bottom))
    return ()


def _number(text: str) -> float:
    match = _STEP.match(text.strip()[:20])
    return float(match[2]) if match and match[2] else 0.0


def _outlines(steps: str) -> Iterator[Shape]:
    """Yield the outlines that a path goes along; of a curve, its end, as modules with round corners have them."""
    shape: list[Point] = []
    x = y = 0.0
    for command, numbers in _commands(steps):
        is_relative, kind = command.islower(), command.lower()
        if kind in "mz" and shape:
            yield tuple(shape)
            if kind == "z":
                x, y = shape[0]
            shape = []
        if kind == "h":
            x = numbers[0] + (x if is_relative else 0)
        elif kind == "v":
            y = numbers[0] + (y if is_relative else 0)
        elif kind != "z":
            x, y = numbers[-2] + (x if is_relative else 0), numbers[-1] + (y if is_relative else 0)
        if kind != "z":
            shape = shape or ([] if kind == "m" else [(x, y)])
            shape.append((x, y))
    if shape:
        yield tuple(shape)


def _commands(steps: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield each step with its numbers; numbers that go on repeat the step, and after a move draw lines."""
    command = ""
    numbers: list[float] = []
    for match in _STEP.finditer(steps):
        if match[3]:
            return
        if match[1]:
            command, numbers = match[1], []
            if command in "Zz":
                yield command, ()
            continue
        numbers.append(float(match[2]))
        if command and len(numbers) == _TAKES[command.lower()]:
            yield command, tuple(numbers)
            numbers = []
            command = {"M": "L", "m": "l"}.get(command, command)


def _draw(shapes: list[Shape], coverage: Coverage, place: Place) -> Image.Image:
    """Return the shapes in black on white, as large as the picture is."""
    across = [point[0] for shape in shapes for point in shape]
    down = [point[1] for shape in shapes for point in shape]
    left, top = min(across), min(down)
    scale = SIDE / max(max(across) - left, max(down) - top, 1e-6)
    picture = Image.new("L", (SIDE + 2 * _MARGIN, SIDE + 2 * _MARGIN), 255)
    pen = ImageDraw.Draw(picture)
    painted = 0
    for shape in shapes:
        corners = [(_MARGIN + round((x - left) * scale), _MARGIN + round((y - top) * scale)) for x, y in shape]
        xs, ys = [x for x, _ in corners], [y for _, y in corners]
        painted += (max(xs) - min(xs) + 1) * (max(ys) - min(ys) + 1)
        if painted > coverage.limits.vector_painted:
            coverage.beyond("vector_painted", place)
            break
        pen.polygon(corners, fill=0)
    return picture
