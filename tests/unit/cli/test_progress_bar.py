"""Progress is a bar on a terminal and an occasional line elsewhere."""

import io

from mailwarden.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_on_a_terminal_one_line_is_drawn_again_and_again():
    out, clock = Terminal(), Clock()
    with Progress("sender-block", 1000, out, clock) as progress:
        for _ in range(2):
            clock.now += 1
            progress.advance(500)
    assert "[###############...............] sender-block   50%  500 of 1,000  500/s  1 s left" in out.getvalue()
    assert out.getvalue().count("\n") == 1


def test_elsewhere_there_is_a_plain_line_now_and_then():
    out, clock = io.StringIO(), Clock()
    with Progress("sender-block", 100, out, clock) as progress:
        for _ in range(25):
            clock.now += 1
            progress.advance(4)
    assert len(out.getvalue().splitlines()) == 2
    assert "\r" not in out.getvalue()
    assert "#" not in out.getvalue()


def test_nothing_to_do_is_done():
    assert "100%" in Progress("x", 0, io.StringIO()).line(1.0)
