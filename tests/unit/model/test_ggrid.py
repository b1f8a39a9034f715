"""The id of a guard request tells the day it was made on."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from mailwarden.model.ggrid import day_of, moment_of, new_ggrid


def test_an_id_is_a_uuid_version_7_with_the_time_inside():
    ggrid = new_ggrid()
    moment = moment_of(ggrid)
    assert ggrid.version == 7
    assert ggrid.variant == UUID(int=ggrid.int).variant == "specified in RFC 4122"
    assert moment is not None
    assert abs(moment - datetime.now(UTC)) < timedelta(seconds=5)
    assert day_of(ggrid) == moment.date()


def test_ids_do_not_repeat():
    assert len({new_ggrid() for _ in range(10_000)}) == 10_000


def test_another_kind_of_uuid_has_no_day():
    assert day_of(uuid4()) is None
    assert day_of(UUID(int=(0xFFFFFFFFFFFF << 80) | (0x7 << 76) | (0b10 << 62))) is None
