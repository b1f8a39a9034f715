"""The list of messages: what becomes one entry, where it stands, and what its checkbox sends."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from mailwarden.console.message_rows import entries_of, read_rows
from mailwarden.history.store import Cursor, Row
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Verdict

ACME, CLUB = uuid4(), uuid4()


def row(campaign: UUID | None = None, *recipients: str, tenant: UUID = ACME) -> Row:
    return Row(
        ggrid=new_ggrid(),
        tenant=tenant,
        created=datetime(2026, 11, 17, tzinfo=UTC),
        from_address="eve@evil.example",
        from_name="Eve",
        recipients=recipients or ("ann@company.example",),
        subject="Prices",
        verdict=Verdict.SPAM,
        decision=Decision.QUARANTINE,
        tags=(),
        summary="Spam.",
        campaign=campaign,
    )


def test_messages_of_a_campaign_are_one_entry_at_the_place_of_the_first() -> None:
    one, other = uuid4(), uuid4()
    rows = [row(), row(one), row(other), row(), row(one), row(one)]
    entries = entries_of(rows)
    assert [entry.rows for entry in entries] == [
        (rows[0],),
        (rows[1], rows[4], rows[5]),
        (rows[2],),
        (rows[3],),
    ]
    assert [entry.is_group for entry in entries] == [False, True, False, False]
    assert entries[1].face == rows[1]


def test_every_row_of_the_page_is_shown_once() -> None:
    campaign = uuid4()
    rows = [row(campaign if number % 3 else None) for number in range(50)]
    shown = [each for entry in entries_of(rows) for each in entry.rows]
    assert sorted(shown, key=rows.index) == rows
    assert [entry.rows for entry in entries_of(rows, grouped=False)] == [(each,) for each in rows]


def test_messages_without_a_campaign_are_never_grouped() -> None:
    assert len(entries_of([row(), row(), row()])) == 3


def test_recipients_and_tenants_of_a_group_are_counted_once() -> None:
    campaign = uuid4()
    (entry,) = entries_of(
        [
            row(campaign, "ann@company.example", "bob@company.example"),
            row(campaign, "Ann@Company.example"),
            row(campaign, "eve@club.example", tenant=CLUB),
        ]
    )
    assert (entry.recipients, entry.tenants) == (3, 2)


def test_a_checkbox_sends_every_message_of_its_entry() -> None:
    campaign = uuid4()
    rows = [row(campaign), row(campaign, tenant=CLUB), row()]
    group, single = entries_of(rows)
    assert read_rows([group.value, single.value, rows[0].place]) == tuple(map(Cursor.of, rows))
    assert read_rows([]) == ()
    for wrong in ("", "x", f"{rows[0].place}.", "all"):
        with pytest.raises(ValueError, match="UUID"):
            read_rows([wrong])
