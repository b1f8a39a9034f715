"""The resolver as an engine: what a probe makes of each kind of answer, and when Rspamd's word is not believed."""

import time

import pytest

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed, Known
from mailwarden.engines.dns import Answer, DnsEngine, DnsSettings, Lookups, Outcome, is_server, split_server
from mailwarden.engines.rspamd import sender_checks
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import UNVERIFIED_SENDER
from mailwarden.model.record import MessageSummary

FOUND, NONE = Answer(Outcome.FOUND, ("x",)), Answer(Outcome.NONE)
FAILED = Answer(Outcome.FAILED, sentence="it answers SERVFAIL")
POLICY = Answer(Outcome.FOUND, ("v=DMARC1; p=reject",))


class Scripted(DnsEngine):
    """A resolver whose answers are given here; everything around them is the product's."""

    def __init__(self, answers, probe=FOUND):
        super().__init__("dns", DnsSettings(("192.0.2.1",), 1_000, "pass.example"))
        self.answers = {"pass.example": probe, **answers}
        self.asked = []
        self.reply = self.usual_reply

    def usual_reply(self, name):
        return self.answers.get(name, NONE)

    async def _ask(self, name, kind):
        self.asked.append(name)
        return self.reply(name)


def known(symbols, sender="boss@company.example", remote="192.0.2.10", *, ambiguous=False):
    envelope = Envelope("x@pass.example", ("bob@south.example",), remote, "mail.pass.example")
    checks = sender_checks({"R_DKIM_NA": (), **symbols}, envelope)
    answers = {"rspamd": EngineAnswer((), authentication=checks)}
    return Known(envelope, MessageSummary(1, "", from_address=sender), answers, ambiguous)


async def confirm(resolver, symbols, **changes):
    return await resolver.confirm(known(symbols, **changes), time.monotonic() + 5)


@pytest.mark.contract("8 dns")
@pytest.mark.parametrize("probe", [NONE, FAILED])
async def test_a_probe_without_its_record_means_that_the_resolver_is_down(probe):
    resolver = Scripted({}, probe)
    with pytest.raises(EngineFailed):
        await resolver.check()
    report = await confirm(resolver, {"R_SPF_ALLOW": (), "DMARC_NA": ("company.example",)})
    assert report.required
    assert report.failure is not None


async def test_a_resolver_without_upstream_is_down_despite_its_cache():
    resolver = Scripted({})
    resolver.reply = lambda name: FAILED if name.startswith("mailwarden-") else resolver.usual_reply(name)
    with pytest.raises(EngineFailed):
        await resolver.check()


async def test_nothing_is_asked_where_rspamd_applied_a_policy():
    resolver = Scripted({})
    report = await confirm(resolver, {"R_SPF_ALLOW": (), "DMARC_POLICY_ALLOW": ("company.example", "none")})
    assert (report.failure, resolver.asked) == (None, [])


@pytest.mark.contract("8 dns")
@pytest.mark.parametrize(
    "symbols",
    [
        {"R_SPF_ALLOW": (), "DMARC_NA": ("company.example",)},
        {"R_SPF_ALLOW": (), "DMARC_DNSFAIL": ("company.example : server fail",)},
        {"R_SPF_DNSFAIL": ()},
        {"R_SPF_ALLOW": ()},
    ],
)
async def test_a_policy_that_rspamd_did_not_see_leaves_the_message_undecided(symbols):
    report = await confirm(Scripted({"_dmarc.company.example": POLICY}), symbols)
    assert report.failure is not None
    assert "v=dmarc1 of _dmarc.company.example" in report.failure.sentence


async def test_the_policy_of_the_organisation_is_looked_for_too():
    resolver = Scripted({"_dmarc.company.example": POLICY})
    symbols = {"R_SPF_ALLOW": (), "DMARC_NA": ("company.example",)}
    assert (await confirm(resolver, symbols, sender="x@mail.company.example")).failure is not None


async def test_an_spf_record_that_rspamd_did_not_see_leaves_the_message_undecided():
    resolver = Scripted({}, Answer(Outcome.FOUND, ("v=spf1 -all",)))
    report = await confirm(resolver, {"R_SPF_NA": (), "DMARC_POLICY_SOFTFAIL": ("company.example : x", "none")})
    assert report.failure is not None


async def test_a_domain_without_records_is_no_failure():
    report = await confirm(Scripted({}), {"R_SPF_ALLOW": (), "DMARC_NA": ("company.example",)})
    assert (report.failure, report.findings) == (None, ())


async def test_a_record_that_is_none_is_not_looked_for_again():
    resolver = Scripted({"_dmarc.company.example": POLICY})
    symbols = {"R_SPF_ALLOW": (), "DMARC_NA": ("company.example: no valid DMARC record",)}
    assert (await confirm(resolver, symbols)).failure is None


@pytest.mark.contract("8 dns")
async def test_a_domain_with_failing_servers_is_unverified():
    resolver = Scripted({"_dmarc.company.example": FAILED, "_dmarc.paypal.com": FAILED})
    symbols = {"R_SPF_DNSFAIL": (), "DMARC_DNSFAIL": ("company.example : timeout",)}
    assert [each.name for each in (await confirm(resolver, symbols)).findings] == [UNVERIFIED_SENDER]
    brand = await confirm(resolver, {"R_SPF_DNSFAIL": ()}, sender="service@paypal.com")
    assert [each.name for each in brand.findings] == [UNVERIFIED_SENDER, "dns.brand-sender"]


async def test_a_temporary_error_right_after_an_outage_is_a_part_of_it():
    resolver = Scripted({}, FAILED)
    with pytest.raises(EngineFailed):
        await resolver.check()
    resolver.answers["pass.example"] = FOUND
    await resolver.check()
    symbols = {"R_SPF_DNSFAIL": (), "DMARC_DNSFAIL": ("company.example : SPF/DKIM temp error", "reject")}
    assert (await confirm(resolver, symbols)).failure is not None


@pytest.mark.contract("8 dns")
async def test_a_lookup_counts_only_between_two_probes_that_succeed():
    resolver = Scripted({"_dmarc.company.example": POLICY})
    symbols = {"R_SPF_ALLOW": (), "DMARC_NA": ("company.example",)}

    def goes_bad(name):  # from the lookup on the resolver says that there is no name at all
        if name == "_dmarc.company.example":
            resolver.reply = lambda _: NONE
            return NONE
        return resolver.usual_reply(name)

    resolver.reply = goes_bad
    assert (await confirm(resolver, symbols)).failure is not None
    resolver.reply = resolver.usual_reply
    assert "v=dmarc1" in str((await confirm(resolver, symbols)).failure), "what was said then is not kept"


async def test_cached_results_are_bounded(monkeypatch):
    monkeypatch.setattr("mailwarden.engines.dns.KEPT", 10)
    resolver = Scripted({})
    for number in range(50):
        unsure: Lookups = {}
        await resolver.look_up_text(f"n{number}.example", "v=spf1", unsure)
        resolver.keep(unsure)
    assert len(resolver._kept) == 10


@pytest.mark.parametrize(
    ("server", "host", "port"),
    [
        ("192.0.2.1", "192.0.2.1", 53),
        ("192.0.2.1:5353", "192.0.2.1", 5353),
        ("2001:db8::1", "2001:db8::1", 53),
        ("[2001:db8::1]:5353", "2001:db8::1", 5353),
        ("[2001:db8::1]", "2001:db8::1", 53),
    ],
)
def test_a_server_is_an_address_with_or_without_a_port(server, host, port):
    assert split_server(server) == (host, port)
    assert is_server(server)


@pytest.mark.parametrize("server", ["", "dns.example", "192.0.2.1:x", "192.0.2.1:0", "192.0.2.1:99999", "[::1"])
def test_a_name_is_no_server(server):
    assert not is_server(server)


@pytest.mark.parametrize("name", ["a" * 300, "..", "\0.example", "x" * 64 + ".example", "ü" * 80 + ".example"])
async def test_a_name_that_cannot_exist_has_no_record(name):
    assert (
        await DnsEngine("dns", DnsSettings(("127.0.0.1:1",), 100)).look_up_text(name, "v=spf1", {})
    ).outcome is not Outcome.FOUND


async def test_a_server_that_is_not_there_is_a_failure_in_time():
    began = time.monotonic()
    assert (
        await DnsEngine("dns", DnsSettings(("127.0.0.1:1",), 300))._ask("pass.example", "A")
    ).outcome is Outcome.FAILED
    assert time.monotonic() - began < 10.0
