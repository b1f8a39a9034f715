"""Grafana dashboards: every query parses, every metric exists and every metric is shown."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conventions.project_files import ROOT
from tests.conventions.test_alerts import metrics_in, promtool, series_names
from tests.conventions.test_metrics import made

FILES = sorted((ROOT / "deploy" / "monitoring" / "dashboards").glob("*.json"))
UNITS = {"short", "percentunit", "s", "bytes", "reqps"}
NAMES = [file.stem for file in FILES]


def load(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text("utf-8")))


def queries(file: Path) -> list[str]:
    """Return the queries of a dashboard, with a value for each of Grafana's variables."""
    found = [target["expr"] for panel in load(file)["panels"] for target in panel["targets"]]
    return [each.replace("$__rate_interval", "5m").replace("$instance", ".*") for each in found]


def test_there_are_four_dashboards() -> None:
    assert NAMES == ["engines", "lists-and-database", "mail-flow", "overview"]


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_dashboard_has_what_grafana_needs(file: Path) -> None:
    board = load(file)
    assert board["uid"] == f"mailwarden-{file.stem}"
    assert board["title"].startswith("Mailwarden: ")
    assert [each["name"] for each in board["templating"]["list"]] == ["datasource", "instance"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in ("timeseries", "stat")
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_no_panel_covers_another(file: Path) -> None:
    places = [panel["gridPos"] for panel in load(file)["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for a, b in itertools.combinations(places, 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_y = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart_x or apart_y, (a, b)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_every_metric_of_a_dashboard_exists(file: Path) -> None:
    used = set().union(*(metrics_in(query) for query in queries(file)))
    assert used
    assert used - series_names() == set()


def test_every_metric_is_in_a_dashboard() -> None:
    text = " ".join(query for file in FILES for query in queries(file))
    hidden = {name for name in made() if not re.search(rf"\b{name}(?:_bucket|_count)?\b", text)}
    assert hidden == {"mailwarden_rspamd_api_connections_refused_total"}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_every_query_parses(file: Path, tmp_path: Path) -> None:
    """promtool parses the expressions of rules, so that each query becomes a recording rule."""
    assert _check(queries(file), tmp_path) == ""


@pytest.mark.slow
@pytest.mark.long
def test_a_wrong_query_does_not_parse(tmp_path: Path) -> None:
    assert "parse error" in _check(["sum by (x (mailwarden_uploads)"], tmp_path)


def _check(expressions: list[str], folder: Path) -> str:
    rules = [{"record": f"query:{number}", "expr": each} for number, each in enumerate(expressions)]
    path = folder / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))  # JSON is YAML
    done = promtool("check", "rules", str(path))
    return "" if done.returncode == 0 else done.stdout + done.stderr
