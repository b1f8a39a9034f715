"""Import layers: a package imports only lower packages."""

import os
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from importlinter import cli

from tests.conventions.project_files import ROOT


def test_a_package_imports_only_lower_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    code = cli.lint_imports(config_filename=str(ROOT / ".importlinter"), no_cache=True)
    assert code == cli.EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Imports for types alone count too: two modules that name each other's types are read together."""
    graph = grimp.build_graph("mailwarden", "mailwarden_client", cache_dir=None)
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()


def test_every_package_has_a_layer() -> None:
    text = (ROOT / ".importlinter").read_text("utf-8")
    packages = {
        entry.name for entry in os.scandir(ROOT / "src" / "mailwarden") if entry.is_dir() and entry.name[0] != "_"
    }
    assert {package for package in packages if package not in text} == set()
    assert Path(ROOT / "src" / "mailwarden" / "py.typed").exists()
