"""The engines while the demo is seeded: real ones, but for two things that made-up mail cannot have.

Its domains publish no records, so the results of SPF, DKIM and DMARC come from the story instead of Rspamd's. And an
outage of the story makes an engine unreachable, for the scans and for guard's watch alike.
"""

from collections.abc import Sequence
from contextvars import ContextVar

from msgspec.structs import replace

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed, SenderChecks
from mailwarden.demo.stories import Authentication
from mailwarden.engines.clamav import ClamavEngine, ClamavSettings
from mailwarden.engines.engine import AnyEngine, EngineInfo
from mailwarden.engines.rspamd import RspamdEngine, RspamdSettings
from mailwarden.engines.table import open_engines
from mailwarden.guard.config import GuardConfig
from mailwarden.message.addresses import organisation_of
from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import FailureKind
from mailwarden.model.scan import RawMessage

# How the message that this task scans was authenticated in life, and the domain in its From.
told: ContextVar[tuple[Authentication, str]] = ContextVar("told", default=("none", ""))
away: set[str] = set()  # the types of engines that are down


class StoryRspamd(RspamdEngine):
    """Rspamd with the sender checks of the story; it is asked without the client, so that it looks nothing up."""

    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        _require_here(self)
        answer = await super().ask(raw, replace(envelope, remote_address=None, helo=None), classifier)
        if answer.authentication is None:  # a test message, which Rspamd does not check
            return answer
        return replace(answer, authentication=checks_of(*told.get(), domain_of(envelope.sender)))

    async def check(self) -> EngineInfo:
        _require_here(self)
        return await super().check()


class StoryClamav(ClamavEngine):
    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        _require_here(self)
        return await super().ask(raw, envelope, classifier)

    async def check(self) -> EngineInfo:
        _require_here(self)
        return await super().check()


def _require_here(engine: AnyEngine) -> None:
    if engine.type_name in away:
        raise EngineFailed(FailureKind.UNREACHABLE, f"{engine.title} cannot be reached.", "Connection refused")


def story_engines(config: GuardConfig) -> Sequence[AnyEngine]:
    """Return the configured engines, those of the story in place of Rspamd and ClamAV."""
    return [_story_of(engine, config.engines[engine.name]) for engine in open_engines(config.engines)]


def _story_of(engine: AnyEngine, settings: object) -> AnyEngine:
    if isinstance(settings, RspamdSettings):
        return StoryRspamd(engine.name, settings)
    return StoryClamav(engine.name, settings) if isinstance(settings, ClamavSettings) else engine


def checks_of(authentication: Authentication, author: str, envelope: str) -> SenderChecks:
    """Return what Rspamd would say about a message of that domain in From."""
    spf = {"pass": "pass", "spf-pass": "pass", "fail": "fail"}.get(authentication, "none")
    signed = authentication in ("pass", "dkim-pass")
    dmarc = {"none": "none", "fail": "reject"}.get(authentication, "pass")
    return SenderChecks(
        spf=spf,
        spf_checked=True,
        dkim=(("pass", (author,)),) if signed else (("none", ()),),
        signed_by=(author,) if signed else (),
        dmarc=dmarc,
        dmarc_domain=organisation_of(author) or author,
        policy_found=authentication != "none",
        policy_missing=authentication == "none",
        read_as_equal=author == envelope,
    )
