"""Every type of engine, and the engines that a configuration names."""

from collections.abc import Iterator, Mapping

from mailwarden.engines.clamav import ClamavEngine
from mailwarden.engines.dns import DnsEngine
from mailwarden.engines.engine import AnyEngine, EngineSettings
from mailwarden.engines.reputation import ReputationEngine
from mailwarden.engines.rspamd import RspamdEngine

# In the order of the reports. A new engine adds its class here.
ENGINES: tuple[type[AnyEngine], ...] = (RspamdEngine, ClamavEngine, DnsEngine, ReputationEngine)


def complete(given: Mapping[str, EngineSettings]) -> dict[str, EngineSettings]:
    """Return the settings by engine name, in the order of the table; a required type that is missing gets defaults."""
    found: dict[str, EngineSettings] = {}
    for engine in ENGINES:
        named = {name: settings for name, settings in given.items() if isinstance(settings, engine.settings_type)}
        found |= named or ({engine.type_name: engine.settings_type()} if engine.required else {})
    return found


def open_engines(settings: Mapping[str, EngineSettings]) -> tuple[AnyEngine, ...]:
    """Return an engine for each name; nothing is connected yet."""
    return tuple(engine_type(each)(name, each) for name, each in settings.items())


def engine_type(settings: EngineSettings) -> type[AnyEngine]:
    """Return the engine that takes these settings."""
    return next(engine for engine in ENGINES if isinstance(settings, engine.settings_type))


def mistakes(settings: Mapping[str, EngineSettings]) -> Iterator[str]:
    """Yield what is wrong with the engines together: one of them checks the sender, and one learns."""
    for engines, what in (
        ([name for name, each in settings.items() if engine_type(each).authenticates], "checks the sender"),
        ([name for name, each in settings.items() if engine_type(each).learns], "learns"),
    ):
        if len(engines) > 1:
            yield f"only one engine that {what} is possible, not {' and '.join(engines)}"
