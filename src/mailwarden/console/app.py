"""Builds the console: its screens, static files and the routes that abby serves.

A screen gets only the services that it uses. They are the services behind the APIs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from mailwarden.access.accounts import UserAdministration
from mailwarden.access.audit import AuditStore
from mailwarden.access.keys import ApiKeys
from mailwarden.access.saved_searches import SavedSearches
from mailwarden.access.sessions import Sessions
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.console.auth import PREFIX, ConsoleAuth, Page, PublicPage, VisitorSessions
from mailwarden.console.first_steps import FirstSteps
from mailwarden.console.held_actions import HeldActions
from mailwarden.console.language import Languages
from mailwarden.console.list_form import ListContext
from mailwarden.console.request import see_other
from mailwarden.console.screens.account import AccountScreen
from mailwarden.console.screens.analyze import AnalyzeScreen, PreviewScreen
from mailwarden.console.screens.audit import AuditScreen
from mailwarden.console.screens.cases import CasesScreen
from mailwarden.console.screens.dashboard import DashboardScreen, HealthScreen
from mailwarden.console.screens.demo_login import DemoLoginScreen
from mailwarden.console.screens.feeds import FeedsScreen
from mailwarden.console.screens.indicators import IndicatorScreen
from mailwarden.console.screens.keys import KeysScreen
from mailwarden.console.screens.list_changes import ListChangesScreen
from mailwarden.console.screens.list_edits import ListEditsScreen
from mailwarden.console.screens.list_export import ListExportScreen
from mailwarden.console.screens.lists import ListsScreen
from mailwarden.console.screens.login import LoginScreen
from mailwarden.console.screens.message import HeldScreen, MessagePages, MessageScreen
from mailwarden.console.screens.messages import MessagesScreen
from mailwarden.console.screens.palette import PaletteScreen
from mailwarden.console.screens.quarantine import QuarantineScreen
from mailwarden.console.screens.receivers import ReceiversScreen
from mailwarden.console.screens.rescan import RescanScreen
from mailwarden.console.screens.selection import SelectionScreen
from mailwarden.console.screens.setup import SetupScreen
from mailwarden.console.screens.start import StartScreen
from mailwarden.console.screens.tenant_switch import TenantSwitchScreen
from mailwarden.console.screens.tenants import TenantsScreen
from mailwarden.console.screens.training import TrainingScreen
from mailwarden.console.screens.users import UsersScreen
from mailwarden.console.screens.weekly_report import WeeklyReportScreen
from mailwarden.console.screens.weights import WeightsScreen
from mailwarden.console.self_service import SelfServicePage
from mailwarden.console.services import Analyses, Deployment
from mailwarden.console.templating import Assets, CspReports, Templates
from mailwarden.event_delivery.senders import Channels
from mailwarden.event_delivery.service import ReceiverService
from mailwarden.feeds.service import FeedService
from mailwarden.history.store import HistoryStore
from mailwarden.pipeline.previews import Previews
from mailwarden.policy.rules import Policy
from mailwarden.quarantine.digest_links import DigestLinkService
from mailwarden.quarantine.service import QuarantineService
from mailwarden.serving.http_app import Call, Route
from mailwarden.telemetry.metrics import Metrics
from mailwarden.user_reports.cases.service import CaseService
from mailwarden.user_reports.service import ReportService
from mailwarden.weekly_report.service import WeeklyReports
from mailwarden.weekly_report.store import SubscriptionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that abby passes to the console."""

    sessions: Sessions
    visitors: VisitorSessions
    directory: TenantDirectory
    keys: ApiKeys
    tenants: TenantStore
    audit: AuditStore
    deployment: Deployment
    analyses: Analyses
    history: HistoryStore
    searches: SavedSearches
    policy: Policy
    lists: ListContext
    feeds: FeedService
    receivers: ReceiverService
    event_channels: Channels
    cases: CaseService
    reports: ReportService
    quarantine: QuarantineService
    self_service: DigestLinkService
    previews: Previews
    spool: Path
    metrics: Metrics
    weekly_reports: WeeklyReports
    subscriptions: SubscriptionStore
    demo: bool = False  # users log in by a click, and every page says that the mail is made up


def build_pages(services: Services) -> Sequence[Page | PublicPage]:
    """Return every page of every screen, in the order of the menu."""
    previews = services.previews
    message_pages = MessagePages(services.history, services.policy, services.reports, services.quarantine)
    actions = HeldActions(services.quarantine, services.history, services.policy)
    registry = services.visitors.registry
    steps = FirstSteps(registry.users, services.keys, services.history, services.lists.list_service)
    visitors = services.visitors
    login = DemoLoginScreen(visitors, services.directory) if services.demo else LoginScreen(visitors)
    return [
        *login.pages(),
        *SetupScreen(services.visitors).pages(),
        *AccountScreen(services.visitors).pages(),
        *TenantSwitchScreen().pages(),
        *KeysScreen(services.keys, services.visitors, services.deployment).pages(),
        *UsersScreen(UserAdministration(services.visitors.registry), services.visitors).pages(),
        *DashboardScreen(services.history, services.deployment, services.policy, steps).pages(),
        *StartScreen(steps, services.analyses, services.visitors).pages(),
        *MessagesScreen(
            services.history, services.quarantine, services.audit, services.searches, services.policy
        ).pages(),
        *SelectionScreen(services.history, actions, services.reports).pages(),
        *MessageScreen(message_pages, services.reports).pages(),
        *IndicatorScreen(services.history, services.lists, actions).pages(),
        *QuarantineScreen(services.quarantine, services.history, actions).pages(),
        *HeldScreen(message_pages, services.quarantine, previews).pages(),
        *RescanScreen(services.quarantine, services.history, services.analyses).pages(),
        *AnalyzeScreen(services.analyses, services.policy).pages(),
        *PreviewScreen(previews).pages(),
        *FeedsScreen(services.feeds).pages(),  # before the pages of a list of any name
        *ListsScreen(services.lists).pages(),
        *ListEditsScreen(services.lists).pages(),
        *ListChangesScreen(services.lists).pages(),
        *ListExportScreen(services.lists).pages(),
        *CasesScreen(services.cases, services.history, services.quarantine).pages(),
        *TrainingScreen(services.reports).pages(),
        *TenantsScreen(services.tenants, services.directory, services.policy, services.audit).pages(),
        *WeightsScreen(services.tenants, services.directory, services.policy, services.history, services.audit).pages(),
        *WeeklyReportScreen(services.weekly_reports, services.subscriptions).pages(),
        *ReceiversScreen(services.receivers, services.event_channels, services.visitors).pages(),
        *AuditScreen(services.audit).pages(),
        *HealthScreen(services.deployment).pages(),
        *PaletteScreen(services.searches).pages(),
    ]


def build_console(services: Services) -> list[Route]:
    """Return the console's routes."""
    assets = Assets()
    templates = Templates(assets, services.deployment.status, Languages(), demo=services.demo)
    auth = ConsoleAuth(services.sessions, templates, services.directory, services.spool)
    return [
        Route("GET", "/", _to_console),
        Route("GET", PREFIX, _to_console),
        assets.route(),
        CspReports(services.metrics).route(),
        *SelfServicePage(services.self_service, templates).routes(),
        *auth.routes(build_pages(services)),
    ]


async def _to_console(_: Call) -> web.StreamResponse:
    return see_other(PREFIX + "/")
