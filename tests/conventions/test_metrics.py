"""Every metric has its line in docs/operating.md: who is woken at night reads there what it means."""

import re

from tests.conventions.project_files import ROOT, SOURCE

_MADE = re.compile(r"""(?:metrics|self)\.(counter|gauge|histogram)\(\s*f?"([a-z_{}]+)"(.*?)\)""", re.DOTALL)
# Prefixes of the HTTP metrics: abby and guard, and the drop-in scan sources.
HTTP_PREFIXES = ("http", "rspamd_api", "stalwart_hook")
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
}


def made() -> dict[str, tuple[str, list[str]]]:
    """Return each metric's name as it is shown, with the kind and the labels that it is made with."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for kind, name, rest in _MADE.findall(path.read_text("utf-8")):
            labels = re.findall(r'"([^"]*)"', rest)[1:]
            for prefix in HTTP_PREFIXES if "{meters}" in name else ("",):
                full = name.replace("{meters}", prefix)
                found[f"mailwarden_{full}{'_total' if kind == 'counter' else ''}"] = (kind, labels)
    return found


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "operating.md").read_text("utf-8")
    names = made()
    assert len(names) > 15, "the source is read"
    assert [name for name in names if f"`{name}" not in page] == []
    reported = set(re.findall(r"`(mailwarden_[a-z_]+)", page))
    assert reported - set(names) == set(), "no metric is told that is not made"


def test_no_label_grows_with_tenants_or_messages() -> None:
    assert {label for _, labels in made().values() for label in labels} - BOUNDED == set()
