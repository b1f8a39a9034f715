"""Which changes of a configuration a running process uses, and which need a restart."""

from msgspec.structs import replace

from mailwarden.abby.config import RELOADABLE as ABBY
from mailwarden.abby.config import AbbyConfig, Core, ServiceProviders
from mailwarden.access.api_tokens import StaticApiToken
from mailwarden.guard.config import RELOADABLE as GUARD
from mailwarden.guard.config import GuardConfig, GuardListen, Workers
from mailwarden.settings.reload import Changes, merge
from mailwarden.settings.shared import Log

BEFORE = GuardConfig()


def test_an_equal_configuration_changes_nothing():
    assert merge(BEFORE, GuardConfig(), GUARD) == (BEFORE, Changes())


def test_reloadable_keys_are_used_and_others_are_named():
    new = GuardConfig(
        on_engine_failure="tempfail",
        listen=GuardListen(port=1),
        workers=Workers(count=7, memory=512),
        log=Log(level="debug"),
    )
    merged, changes = merge(BEFORE, new, GUARD)
    assert changes == Changes(("onEngineFailure", "workers.memory"), ("listen.port", "workers.count", "log.level"))
    assert merged == GuardConfig(on_engine_failure="tempfail", workers=Workers(memory=512))


def test_a_key_that_needs_a_restart_is_named_again_at_the_next_reload():
    new = GuardConfig(listen=GuardListen(port=1))
    merged, _ = merge(BEFORE, new, GUARD)
    assert merge(merged, new, GUARD)[1] == Changes((), ("listen.port",))


def test_engines_are_added_changed_and_removed_but_for_their_training():
    clamav, rspamd = BEFORE.engines["clamav"], BEFORE.engines["rspamd"]
    both = replace(BEFORE, engines={**BEFORE.engines, "second": clamav})
    merged, changes = merge(BEFORE, both, GUARD)
    assert changes == Changes(("engines.second",))
    assert merged.engines["second"] == clamav
    assert merge(merged, BEFORE, GUARD)[1] == Changes(("engines.second",))
    slow = replace(BEFORE, engines={**BEFORE.engines, "rspamd": replace(rspamd, timeout=7)})
    assert merge(BEFORE, slow, GUARD)[1] == Changes(("engines.rspamd.timeout",))
    assert not GUARD.covers("engines.rspamd.training.password")


def test_changed_tokens_are_named_without_their_values():
    providers = ServiceProviders(core=Core(hosts=("https://127.0.0.1:9785",)))
    before = AbbyConfig(service_providers=providers)
    new = AbbyConfig(service_providers=providers, static_api_tokens=(StaticApiToken(name="a", token="x" * 40),))
    merged, changes = merge(before, new, ABBY)
    assert merged == new
    assert changes == Changes(("staticApiTokens",))


def test_every_reloadable_key_exists():
    from workshop.pages.__main__ import keys_of

    for kind, reloadable in ((GuardConfig, GUARD), (AbbyConfig, ABBY)):
        known = {key.path for key in keys_of(kind)}
        assert {*reloadable.keys} <= known
