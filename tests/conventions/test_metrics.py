"""Every metric has its line in docs/monitoring.md."""

import functools
import re

from tests.conventions.project_files import ROOT, SOURCE

_MADE = re.compile(
    r"""(?:metrics|self)\.(?:read_)?(counter|gauge|histogram)\(\s*f?"([a-z_{}]+)",\s*f?"[^"]*"(.*?)(?:\)[.\n]|\)$)""",
    re.DOTALL | re.MULTILINE,
)
# Prefixes of the HTTP metrics: abby and guard, and the drop-in scan sources.
HTTP_PREFIXES = ("http", "rspamd_api")
# Labels whose values are ours: a handful each, whatever callers and tenants do.
BOUNDED = {
    "route",
    "status",
    "verdict",
    "decision",
    "analyzer",
    "kind",
    "guard",
    "outcome",
    "directive",
    "engine",
    "version",
    "pool",
    "certificate",
    "folder",
    "lane",
    "endpoint",  # of the event delivery: 100 at most, and removed ones have no series
    "uid",
}


@functools.cache
def made() -> dict[str, tuple[str, list[str]]]:
    """Return each metric's name as it is shown, with the kind and the labels that it is made with."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for kind, name, rest in _MADE.findall(path.read_text("utf-8")):
            labels = re.findall(r'"([^"]*)"', rest)
            for prefix in HTTP_PREFIXES if "{meters}" in name else ("",):
                full = name.replace("{meters}", prefix)
                found[f"mailwarden_{full}{'_total' if kind == 'counter' else ''}"] = (kind, labels)
    return found


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    names = made()
    assert len(names) > 15, "the source is read"
    assert [name for name in names if f"`{name}" not in page] == []
    reported = set(re.findall(r"`(mailwarden_[a-z_]+)", page))
    assert reported - set(names) == set(), "every documented metric exists"


def test_no_label_grows_with_tenants_or_messages() -> None:
    assert {label for _, labels in made().values() for label in labels} - BOUNDED == set()


def test_names_follow_prometheus() -> None:
    """A unit is a base unit at the end of the name, and only a counter ends with _total."""
    others = re.compile(r"_(?:ms|milliseconds|minutes|hours|days|kib|mib|gib|kilobytes|megabytes|percent)(?:_|$)")
    unit_inside = re.compile(r"_(?:seconds|bytes)_(?!total$|limit$|in_processing$)")
    for name, (kind, _) in made().items():
        assert not others.search(name), name
        assert not unit_inside.search(name), name
        assert name.endswith("_total") == (kind == "counter"), name
        assert kind != "histogram" or name.endswith("_seconds"), name
