"""Puts the quarantine of a guard together: what keeps messages, releases them, tells of them and forgets them."""

from contextlib import AsyncExitStack

from mailwarden.crypto.keyring import KeyRing
from mailwarden.guard.digest_mail import DigestWriter
from mailwarden.guard.digests import Digests
from mailwarden.guard.house import House
from mailwarden.guard.releases import ReleaseInjector, ReleaseLessons
from mailwarden.guard.smtp.next_hop import NextHop
from mailwarden.history.opening import open_history
from mailwarden.learning.contents import ContentsSeal
from mailwarden.learning.service import ReportService
from mailwarden.learning.store import ReportStore
from mailwarden.quarantine.bypass import BypassSeal
from mailwarden.quarantine.digest_link import LinkSeal
from mailwarden.quarantine.digest_store import DigestStore
from mailwarden.quarantine.figures import FigureStore, QuarantineFigures
from mailwarden.quarantine.keeping import Keeping
from mailwarden.quarantine.opening import open_vault
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.releasing import Releasing
from mailwarden.quarantine.retention import QuarantineRetention
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.store import QuarantineStore


def start_quarantine(house: House, *, key: KeyRing, hop: NextHop, stack: AsyncExitStack) -> Keeping:
    """Return what keeps messages; releases, digests and retention go on until the stack is closed."""
    settings, database = house.config.quarantine, house.database
    vault, releases = open_vault(settings, house.folder, key), ReleaseStore(database)
    if settings.digest is not None:
        writer = DigestWriter(settings.digest, LinkSeal(key))
        digests = Digests(DigestStore(database), writer, hop, house.tenants, settings.digest, metrics=house.metrics)
        stack.push_async_callback(digests.stop)
        digests.start()
    seal = None
    if settings.release_address is not None:
        hop = NextHop(settings.release_address, hop.timeout, "guard.localhost")
        stack.callback(hop.close)
        seal = BypassSeal(key)
    history = open_history(database)
    teaching = ReportService(ReportStore(database), history, ContentsSeal(key))
    releasing = Releasing(
        vault,
        releases,
        ReleaseInjector(hop, seal),
        spool=house.spool,
        listener=ReleaseLessons(teaching),
    )
    retention = QuarantineRetention(vault, RetentionStore(database), releases, settings.days)
    figures = QuarantineFigures(FigureStore(database), house.metrics)
    for chore in (releasing, retention, figures):
        stack.push_async_callback(chore.stop)
        chore.start()
    return Keeping(vault, QuarantineStore(database), settings.days)
