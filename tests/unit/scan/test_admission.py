"""Admission: who is let in, who waits, who is refused."""

import asyncio

import pytest

from mailwarden.errors import Overloaded
from mailwarden.scan.admission import Admission


def make_admission(maximum=4, threshold=4, max_delay=0.0, max_bytes=1_000) -> Admission:
    return Admission(maximum=maximum, threshold=threshold, max_delay=max_delay, max_bytes=max_bytes)


async def fill(admission: Admission, count: int):
    places = [admission.admitted(1) for _ in range(count)]
    for place in places:
        await place.__aenter__()
    return places


async def test_a_guard_request_is_let_in_below_the_maximum_and_refused_at_it():
    admission = make_admission(maximum=2, threshold=2)
    places = await fill(admission, 2)
    with pytest.raises(Overloaded) as refusal:
        await fill(admission, 1)
    assert refusal.value.retry_after in range(1, 6)
    assert admission.rejected == 1
    await places[0].__aexit__(None, None, None)
    await fill(admission, 1)


async def test_a_place_is_given_back_when_the_work_fails():
    admission = make_admission(maximum=1, threshold=1)
    with pytest.raises(ZeroDivisionError):
        async with admission.admitted(10):
            raise ZeroDivisionError
    assert (admission.in_processing, admission.bytes_in_flight) == (0, 0)


@pytest.mark.parametrize(("n", "seconds"), [(0, 0.0), (1, 0.0), (2, 0.5), (3, 1.0), (4, 1.5), (5, 2.0), (6, None)])
def test_the_delay_grows_linearly_from_the_threshold_to_the_maximum(n, seconds):
    admission = make_admission(maximum=6, threshold=2, max_delay=2.0)
    admission.in_processing = n
    assert admission.delay() == seconds


def test_with_the_threshold_at_the_maximum_there_is_no_delay_band():
    admission = make_admission(maximum=4, threshold=4, max_delay=2.0)
    admission.in_processing = 3
    assert admission.delay() == 0.0
    admission.in_processing = 4
    assert admission.delay() is None


async def test_a_waiting_request_is_not_counted_and_is_checked_again():
    admission = make_admission(maximum=3, threshold=1, max_delay=0.1)
    held = await fill(admission, 1)
    waiting = asyncio.ensure_future(fill(admission, 1))
    await asyncio.sleep(0)  # the request begins to wait
    assert admission.in_processing == 1
    admission.in_processing = 3
    with pytest.raises(Overloaded):
        await waiting
    admission.in_processing = 2
    held += await fill(admission, 1)
    assert admission.in_processing == 3


async def test_at_most_as_many_wait_as_may_be_in_processing():
    admission = make_admission(maximum=2, threshold=1, max_delay=0.2)
    held = await fill(admission, 1)
    waiting = [asyncio.ensure_future(fill(admission, 1)) for _ in range(2)]
    await asyncio.sleep(0)
    assert admission.delay() is None  # so that a source can refuse before it reads the message
    with pytest.raises(Overloaded):
        await fill(admission, 1)
    assert held
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_messages_beyond_the_bytes_in_flight_are_refused():
    admission = make_admission(max_bytes=100)
    async with admission.admitted(60):
        with pytest.raises(Overloaded):
            async with admission.admitted(41):
                pass
        async with admission.admitted(40):
            pass


@pytest.mark.parametrize(("threshold", "maximum"), [(0, 5), (6, 5)])
def test_a_threshold_outside_of_one_to_the_maximum_stops_the_start(threshold, maximum):
    with pytest.raises(ValueError, match="throttle threshold"):
        make_admission(maximum=maximum, threshold=threshold)


@pytest.mark.parametrize(("threshold", "waiting"), [(4, 0), (3, 4)])
def test_only_a_delay_band_lets_guard_requests_wait(threshold, waiting):
    assert make_admission(maximum=4, threshold=threshold).max_waiting == waiting


async def test_a_reservation_grows_up_to_the_bytes_that_fit_and_is_given_back_whole():
    admission = make_admission(max_bytes=1_000)
    async with admission.admitted(100) as reservation:
        reservation.extend(900)
        reservation.extend(50)
        assert admission.bytes_in_flight == 900
        with pytest.raises(Overloaded):
            reservation.extend(1_001)
        assert (admission.bytes_in_flight, reservation.size) == (900, 900)
        admission.use(maximum=4, threshold=4, max_delay=0.0, max_bytes=10)
        reservation.extend(900)  # a request in processing stays, also beyond a lower limit
    assert admission.bytes_in_flight == 0
