"""What a user may set of the own account."""

import pytest

from mailwarden.access import users
from mailwarden.access.users import checked_time_zone
from mailwarden.errors import SchemaViolation

BAD = ("Mars/Olympus", "Europe", "../../etc/passwd", "Europe/Berlin\n.", "<b>", "/UTC", "A" * 65, "Etc/GMT+1/x/y")


@pytest.mark.parametrize("zone", ["", "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+1"])
def test_a_zone_of_the_database_is_accepted(zone: str) -> None:
    assert checked_time_zone(f" {zone} ") == zone


@pytest.mark.parametrize("zone", BAD)
def test_another_text_is_no_zone(zone: str) -> None:
    with pytest.raises(SchemaViolation, match="is no time zone"):
        checked_time_zone(zone)


def test_a_host_without_zones_accepts_names_of_the_right_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "available_timezones", set)
    assert checked_time_zone("Mars/Olympus") == "Mars/Olympus"
    for zone in BAD[2:]:
        with pytest.raises(SchemaViolation):
            checked_time_zone(zone)
