"""The comparison of `bench.peers`: factors of adjacent rounds, the printed figures, and a missing spamd."""

import pytest

from workshop.bench.cpu import Round
from workshop.bench.load import Load
from workshop.bench.peers import OURS, RSPAMD, SPAMD, Series, asker, last_line


def rounds(*rates: float) -> list[Round]:
    return [Round(Load(1 / rate, (0.01,)), {"client": 1.0, "abby and guard": 2.0, "workers": 3.0}) for rate in rates]


def series() -> Series:
    return Series({OURS: rounds(50.0, 40.0, 90.0), RSPAMD: rounds(100.0, 100.0, 100.0), SPAMD: rounds(10.0, 4.0, 10.0)})


def test_the_factor_is_the_median_of_adjacent_rounds():
    assert series().factors(RSPAMD) == pytest.approx([0.5, 0.4, 0.9])
    assert last_line({"5k": series()}) == "peers factor 5k rspamd 0.50 spamd 9.00"


async def test_a_message_without_a_score_fails():
    async def score(posted: object) -> float | None:
        return None

    with pytest.raises(RuntimeError, match="no score"):
        await asker(score)(b"Subject: x\r\n\r\n")
