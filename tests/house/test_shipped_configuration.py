"""What is shipped as configuration is good configuration."""

import pytest

from mailwarden.abby import config as abby
from mailwarden.guard import config as guard
from mailwarden.settings.reader import read
from tests.house.tree import ROOT

SHIPPED = ROOT / "deploy" / "config"


@pytest.mark.parametrize(("path", "kind"), [(abby.PATH, abby.AbbyConfig), (guard.PATH, guard.GuardConfig)])
def test_a_shipped_file_is_read(path: str, kind: type[object]) -> None:
    assert isinstance(read(SHIPPED / path, kind), kind)


def test_nothing_else_is_shipped_as_yaml() -> None:
    found = {str(file.relative_to(SHIPPED)) for file in SHIPPED.rglob("*.yml")}
    assert found == {abby.PATH, guard.PATH}
