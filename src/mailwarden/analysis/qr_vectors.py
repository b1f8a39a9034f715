"""QR codes that are drawn with the shapes of SVG: rectangles, paths of straight lines, and strokes as wide as a field.

Security: works on hostile source; shapes, points and sides are bounded, every pattern is linear, and it never raises.
"""

import re
from collections.abc import Iterator

from PIL import Image, ImageDraw

from mailwarden.analysis.qr_codes import read_image

MIN_SHAPES = 10
MAX_SHAPES = 20_000
MAX_POINTS = 60_000
MAX_CORNERS = 1_000  # of one shape
MAX_PAINTED = 20_000_000  # pixels: shapes that lie on each other draw no code
MAX_DRAWINGS = 3
MAX_SOURCE = 2_000_000
SIDE = 900  # pixels of the picture that is made
_MARGIN = 40

Point = tuple[float, float]
Shape = tuple[Point, ...]

_SVG = re.compile(r"<svg\b", re.IGNORECASE)
_ELEMENT = re.compile(r"<(rect|path)\b([^<>]{1,1500000})>", re.IGNORECASE)
_FIELD = re.compile(
    r"(?<![\w-])(x|y|width|height|d|fill|style|stroke|stroke-width)\s{0,3}=\s{0,3}[\"']([^\"']{1,1400000})[\"']",
    re.IGNORECASE,
)
_LIGHT = re.compile(r"(?:^|fill\s{0,3}:)\s{0,3}(?:#f{3}\b|#f{6}|white|none|transparent)", re.IGNORECASE)
_STEP = re.compile(r"([MmLlHhVvZz])|([-+]?(?:\d{1,9}\.?\d{0,9}|\.\d{1,9})(?:e[-+]?\d{1,2})?)|([A-DF-Za-df-z])")
_TAKES = {"m": 2, "l": 2, "h": 1, "v": 1, "z": 0}


def read_vectors(source: str) -> Iterator[str]:
    """Yield the texts of the codes that the drawings of a page show; `source` is as it was written."""
    if "<svg" not in source.lower():
        return
    for drawing in _SVG.split(source[:MAX_SOURCE])[1 : 1 + MAX_DRAWINGS]:
        shapes = _shapes(drawing)
        if shapes and sum(map(len, shapes)) >= 4 * MIN_SHAPES:
            yield from read_image(_draw(shapes))


def _shapes(drawing: str) -> list[Shape]:
    shapes: list[Shape] = []
    points = 0
    for name, attributes in _ELEMENT.findall(drawing)[:MAX_SHAPES]:
        fields = {key.lower(): value for key, value in _FIELD.findall(attributes)}
        if stroke := _stroke(fields):
            found = [_bar(line, stroke) for line in _outlines(fields.get("d", ""))]
        elif _LIGHT.search(fields.get("fill", "")) or _LIGHT.search(fields.get("style", "")):
            continue
        else:
            found = [_rectangle(fields)] if name.lower() == "rect" else list(_outlines(fields.get("d", "")))
        for shape in found:
            points += len(shape)
            if points > MAX_POINTS:
                return shapes
            if 2 < len(shape) <= MAX_CORNERS:
                shapes.append(shape)
    return shapes


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
    """Yield the outlines that a path of straight lines goes along; one with curves draws no code of squares."""
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
        elif kind in "ml":
            x, y = numbers[0] + (x if is_relative else 0), numbers[1] + (y if is_relative else 0)
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


def _draw(shapes: list[Shape]) -> Image.Image:
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
        if painted > MAX_PAINTED:
            break
        pen.polygon(corners, fill=0)
    return picture
