"""The comparison of `make bench-peers`: factors of adjacent rounds, the printed figures, and a missing spamd."""

import pytest

from bench import peers
from bench.cpu import Round
from bench.load import Load
from bench.peers import OURS, RSPAMD, SPAMD, Series, asker, last_line, report


def rounds(*rates: float) -> list[Round]:
    return [Round(Load(1 / rate, (0.01,)), {"client": 1.0, "abby and guard": 2.0, "workers": 3.0}) for rate in rates]


def series() -> Series:
    return Series({OURS: rounds(50.0, 40.0, 90.0), RSPAMD: rounds(100.0, 100.0, 100.0), SPAMD: rounds(10.0, 4.0, 10.0)})


def test_the_factor_is_the_median_of_adjacent_rounds():
    assert series().factors(RSPAMD) == pytest.approx([0.5, 0.4, 0.9])
    assert last_line({"5k": series()}) == "peers factor 5k rspamd 0.50 spamd 9.00"


def test_the_report_has_rates_and_cpu_without_the_client(capsys):
    report({"5k": series(), "50k": series()})
    printed = capsys.readouterr().out
    assert "  5k spamd      10.0 (4.0-10.0) messages/s, 5.0 (5.0-5.0) ms of CPU a message without the client" in printed
    assert "  5k factor against spamd: rate 9.00 (5.00-10.00), CPU 1.00 (1.00-1.00)" in printed
    assert printed.endswith("peers factor 5k rspamd 0.50 spamd 9.00 50k rspamd 0.50 spamd 9.00\n")


def test_a_missing_spamd_is_named_with_its_package(monkeypatch, capsys):
    monkeypatch.setattr(peers, "has_spamassassin", lambda: False)
    monkeypatch.setattr("sys.argv", ["bench.peers"])
    with pytest.raises(SystemExit):
        peers.main()
    assert "apt-get install spamassassin spamd" in capsys.readouterr().err


async def test_a_message_without_a_score_fails():
    async def score(posted: object) -> float | None:
        return None

    with pytest.raises(RuntimeError, match="no score"):
        await asker(score)(b"Subject: x\r\n\r\n")
