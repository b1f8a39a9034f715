"""The figures of `make structure`, on a small tree."""

from workshop.measure.counts import count
from workshop.measure.structure import layers_of, upward_imports

LAYERS = """
[importlinter:contract:layers]
type = layers
layers =
    top
    left | right
    (low)
"""


def test_a_checkout_is_counted(tmp_path) -> None:
    for path, text in {
        "src/mailwarden/a.py": "x = cast(int, y)  # type: ignore[x]\n" + "def f():\n" + "    pass\n" * 60,
        "tests/unit/test_a.py": "pass\n",
        "workshop/bench/a.py": "pass\n" * 2,
        "workshop/bench/tests/samples.py": "pass\n" * 4,
        "docs/by_hand.md": "three words here",
        "docs/made.md": "<!-- Made from the code -->",
        "README.md": "two words",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    counts = count(tmp_path)
    assert (counts.src_lines, counts.test_lines, counts.workshop_lines) == (62, 5, 2)
    assert (counts.words_by_hand, counts.words_generated) == (5, 6)
    assert (counts.long_functions, counts.casts, counts.opt_outs) == (1, 1, 1)


def test_imports_upward_and_beside_are_found(tmp_path) -> None:
    (tmp_path / "layers").write_text(LAYERS)
    imports = {"m.top.a": {"m.low"}, "m.low": {"m.top.a"}, "m.left": {"m.right", "m.left.b", "m.low"}}
    assert list(upward_imports(imports, layers_of(tmp_path / "layers"))) == [
        "m.left imports m.right",
        "m.low imports m.top.a",
    ]
