"""The headline: shares with their intervals, groups, sources that are left out, and what a blind run shows."""

import pytest
from msgspec.structs import replace

from tests.samples.judged import judged, policy_of
from workshop.evaluate.shipped import Share, leave_sources_out, left_out_tables, rival_table, shipped_tables


def of(label, score, group, *, source="", language="", count=1, findings=(), rspamd=None):
    """Return so many messages of a group."""
    one = judged(label, score, subset=group, findings=findings, rspamd=rspamd)
    sample = replace(one.sample, language=language, corpus="modern", origin=source or group)
    return [replace(one, scanned=replace(one.scanned, sample=sample))] * count


MAIL = [
    *of("ham", 0, "ham-a", language="en", count=195, rspamd=1.0),
    *of("ham", 100, "ham-a", language="de", count=5, source="shop", rspamd=20.0),
    *of("ham", 0, "ham-rare", language="pl"),
    *of("phishing", 120, "attack-b", count=30, language="en", rspamd=20.0),
    *of("bec", 0, "attack-b", count=10, language="tr", source="other"),
    *of("malformed", 0, "torture"),
]


def test_the_interval_is_that_of_wilson():
    low, high = Share(5, 200).interval
    assert low == pytest.approx(0.0107, abs=1e-4)
    assert high == pytest.approx(0.0572, abs=1e-4)
    assert Share(0, 100).interval == pytest.approx((0.0, 0.0370), abs=1e-4)
    assert Share(0, 0).percent == "-"


def test_a_blind_run_shows_no_single_message_and_no_source():
    text = "\n".join([*shipped_tables(MAIL, blind=True), *left_out_tables(MAIL, named=False)])
    assert "ham-rare" not in text
    assert "pl" not in text.split()
    assert "shop" not in text
    assert "modern" not in text
    assert "(small groups)" in text


def test_a_source_is_judged_by_weights_fitted_without_it():
    seen = []

    def fit(others):
        seen.append({one.sample.origin for one in others})
        return policy_of(link=("phishing", 100))

    mail = [*of("phishing", 0, "a", findings=["html.link"]), *of("phishing", 0, "b", findings=["html.other"])]
    _, attacks = leave_sources_out(mail, fit)
    assert seen == [{"b"}, {"a"}]
    assert [(each.shipped.count, each.left_out.count) for each in attacks] == [(0, 1), (0, 0)]


def test_bare_rspamd_is_compared_by_its_actions_and_at_our_rate():
    rows = {line[:30].strip(): line[30:].split() for line in rival_table(MAIL)}
    assert rows["Rspamd, reject (15)"] == ["2.49%", "75.00%"]
    assert rows["Rspamd at our share of ham"] == ["2.49%", "75.00%"]
    assert not list(rival_table(of("ham", 0, "ham-a")))
