"""A submission is one trace over abby, guard and worker, received by a collector, without private data."""

from tests.waiting import wait_until
from workshop.rig.samples import plain_message

SUBJECT = "Figures of the violet project"


def test_one_submission_is_one_trace_over_all_processes(monitored, collector):
    abby, guard, worker = "mailwarden-abby", "mailwarden-guard", "mailwarden-worker"
    # The span that begins in each process ends last there, and may be sent in a later batch.
    outermost = {(abby, "submit"), (guard, "receive"), (worker, "examine")}
    known = set(collector.traces)
    monitored.client().submit(plain_message("violet@pass.example", SUBJECT))

    def complete() -> list[list[tuple[str, str, bytes, bytes]]]:
        new = [list(spans) for trace, spans in tuple(collector.traces.items()) if trace not in known]
        return [spans for spans in new if outermost <= {(service, name) for service, name, *_ in spans}]

    assert wait_until(complete)
    spans = complete()[0]
    ids = {span_id: (service, name) for service, name, span_id, _ in spans}
    parents = {(service, name): ids.get(parent) for service, name, _, parent in spans}
    assert parents[abby, "submit"] is None
    assert parents[abby, "guard request"] == (abby, "submit")
    assert parents[guard, "receive"] == (abby, "guard request")
    assert parents[guard, "scan"] == (guard, "receive")
    assert parents[guard, "rspamd"] == parents[guard, "clamav"] == (guard, "scan")
    assert parents[worker, "examine"] == (guard, "scan")
    assert parents[worker, "structure"] == parents[worker, "html"] == (worker, "examine")


def test_no_span_has_a_subject_or_an_address(collector):
    assert collector.raw
    for private in (SUBJECT, "violet", "pass.example", "company.example"):
        assert private.encode() not in collector.raw
