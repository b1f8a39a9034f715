"""The pages and files that are made from the code are current."""

import pytest

from tests.conventions.project_files import ROOT
from workshop.pages.__main__ import pages

PAGES = pages()


@pytest.mark.parametrize("path", PAGES)
def test_a_generated_page_is_current(path: str) -> None:
    assert (ROOT / path).read_text("utf-8") == PAGES[path], "run `make docs`"
