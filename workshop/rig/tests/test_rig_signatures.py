"""The generated signatures of the benchmarks: clamd loads all of them, and they match nothing else."""

import pytest

from workshop.rig import signatures
from workshop.rig.clamd import SIGNATURE, Clamd
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.process import RigError
from workshop.rig.samples import EICAR, plain_message
from workshop.rig.signatures import PROBES, SignatureSet, probe_name

pytestmark = pytest.mark.slow

SMALL = SignatureSet(hashes=2_000, patterns=1_000)
LAST_LINE = signatures._last_line


@pytest.fixture
def place():
    folder = temporary_folder()
    yield folder
    remove_folder(folder)


def test_clamd_loads_the_signatures_and_they_match_no_message(place):
    clamd = Clamd(place / "clamd", signature_set=SMALL)
    clamd.start()
    try:
        answers = [clamd.scan(data) for data in (EICAR, plain_message(), *PROBES.values())]
    finally:
        clamd.stop()
    found = [f"stream: {name}.UNOFFICIAL FOUND" for name in (SIGNATURE, *map(probe_name, PROBES))]
    assert answers == [found[0], "stream: OK", *found[1:]]


@pytest.mark.parametrize("file", PROBES)
def test_a_signature_that_is_not_loaded_stops_the_start(place, monkeypatch, file):
    monkeypatch.setattr(signatures, "_last_line", lambda name: "" if name == file else LAST_LINE(name))
    clamd = Clamd(place / "clamd", signature_set=SMALL)
    try:
        with pytest.raises(RigError, match=f"did not load all signatures of {file}"):
            clamd.start()
        assert not clamd.running
    finally:
        clamd.stop()


def test_the_files_have_the_wanted_number_of_lines_and_are_equal_in_every_run(tmp_path):
    written = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        SMALL.write(tmp_path / name)
        written.append({path.name: path.read_text("ascii") for path in sorted((tmp_path / name).iterdir())})
    assert written[0] == written[1]
    lines = {name: text.splitlines() for name, text in written[0].items()}
    assert {name: len(set(each)) for name, each in lines.items()} == {
        "set.hdb": 1_000,
        "set.hsb": 1_000,
        "set.ndb": 1_000,
    }
