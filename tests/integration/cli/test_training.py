"""`mailwarden training`: messages of files, folders and mailboxes, reported, shown, taken back and forgotten."""

from uuid import uuid4

import pytest

from mailwarden.user_reports import store as store_module

COMMAND = "training"


def letter(number: int) -> bytes:
    return f"From: ada@north.example\nSubject: letter {number}\n\nThe harvest of {number} apples.\n".encode()


def test_a_message_is_reported_shown_and_taken_back(run, tmp_path):
    (tmp_path / "one.eml").write_bytes(letter(1))
    seen = run("add", tmp_path / "one.eml", "--tenant", "DEFAULT", "--kind", "spam")
    uid, state, name = seen.out.split()
    assert (state, name) == ("waiting", str(tmp_path / "one.eml"))
    assert seen.err.endswith("1 of 1 messages are reported as spam.\n")

    listed = run("list", "--tenant", "default", "-o", "json")
    assert [(each["uid"], each["kind"], each["size"]) for each in listed] == [(uid, "spam", len(letter(1)))]
    assert listed[0]["reportedBy"].startswith("cli:")
    assert uid in run("list", "--tenant", listed[0]["tenantUid"]).out

    assert "Withdrawn: 1." in run("undo", uid).out
    assert run("list", "--tenant", "default", "-o", "json") == []
    assert f"There is no report {uid}" in run("undo", uid, code=2).err


def test_folders_and_mailboxes_are_reported_whole(run, tmp_path):
    inner = tmp_path / "mail" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "mail" / "a.eml").write_bytes(letter(1))
    (inner / "b.EML").write_bytes(letter(2))
    (inner / "notes.txt").write_bytes(b"no message")
    separator = b"From ada@north.example Sun Nov 15 09:00:00 2026\n"
    letters = (letter(3) + b"From here on it is text.\n", letter(4))
    (inner / "c.mbox").write_bytes(b"\n".join(separator + each for each in letters))

    added = run("add", tmp_path / "mail", "--tenant", "default", "--kind", "good", "-o", "json")

    names = [each["file"].removeprefix(str(tmp_path)) for each in added]
    assert names == ["/mail/a.eml", "/mail/inner/b.EML", "/mail/inner/c.mbox:1", "/mail/inner/c.mbox:2"]
    assert {(each["kind"], each["state"]) for each in added} == {("good", "waiting")}
    assert [each["size"] for each in added[2:]] == list(map(len, letters)), "without the lines that separate them"


def test_status_and_reset_show_the_number_of_reports(run, tmp_path):
    assert run("status").out == "No tenant has training reports yet.\n"
    (tmp_path / "one.eml").write_bytes(letter(1))
    run("add", tmp_path / "one.eml", "--tenant", "default", "--kind", "phishing")

    (standing,) = run("status", "-o", "json")
    assert (standing["name"], standing["waiting"], standing["required"]) == ("default", 1, 200)
    assert (standing["active"], standing["rebuilding"]) == (False, False)
    assert "not yet" in run("status", "--tenant", "default").out

    assert run("reset", "--tenant", "default").out.startswith("Deleted 1 reports of default")
    (standing,) = run("status", "-o", "json")
    assert (standing["waiting"], standing["rebuilding"]) == (0, True)
    assert "being rebuilt" in run("status").out
    assert run("rebuild", "--tenant", "default").out.startswith("All reports of default are trained again")


def test_an_empty_file_holds_up_no_other(run, tmp_path):
    (tmp_path / "a.eml").write_bytes(b"")
    (tmp_path / "b.eml").write_bytes(letter(1))

    seen = run("add", tmp_path / "a.eml", tmp_path / "b.eml", "--tenant", "default", "--kind", "spam", code=1)

    assert "b.eml" in seen.out
    assert "1 are empty" in seen.err


def test_a_mistake_is_one_sentence(run, tmp_path, folder, monkeypatch):
    (tmp_path / "a.eml").write_bytes(letter(1))
    (tmp_path / "b.eml").write_bytes(letter(2))
    (tmp_path / "none").mkdir()
    end = ("--tenant", "default", "--kind", "spam")
    assert "holds no file" in run("add", tmp_path / "none", *end, code=2).err
    assert "cannot be read" in run("add", tmp_path / "gone.eml", *end, code=2).err
    assert "There is no tenant `acme`" in run("list", "--tenant", "acme", code=2).err
    assert "There is no report" in run("undo", uuid4(), code=2).err
    monkeypatch.setattr(store_module, "MAX_REPORTS", 1)
    assert "1 of 2 messages were taken." in run("add", tmp_path / "a.eml", tmp_path / "b.eml", *end, code=2).err
    (folder / "secrets" / "contents").unlink()
    assert "contents.key" in run("status", code=2).err
    with pytest.raises(SystemExit):
        run("add", tmp_path / "a.eml", "--tenant", "default", "--kind", "released")
