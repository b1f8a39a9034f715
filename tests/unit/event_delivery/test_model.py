"""The pauses between attempts, and the end of them after three days."""

from datetime import UTC, datetime, timedelta

from mailwarden.event_delivery.model import gives_up, pause_after


def test_pauses_double_up_to_an_hour_with_jitter() -> None:
    assert [pause_after(attempt, 0.5) for attempt in (1, 2, 3, 4, 11, 5_000)] == [5, 10, 20, 40, 3_600, 3_600]
    assert (pause_after(1, 0.0), round(pause_after(1, 1.0), 6)) == (4, 6)


def test_the_pause_that_a_receiver_asks_for_is_kept() -> None:
    assert pause_after(1, 0.5, requested=300) == 300
    assert pause_after(9, 0.5, requested=3) == 1_280


def test_an_receiver_is_given_up_after_three_days() -> None:
    since = datetime(2026, 3, 2, tzinfo=UTC)
    assert not gives_up(since, since + timedelta(days=3, seconds=-1))
    assert gives_up(since, since + timedelta(days=3))
