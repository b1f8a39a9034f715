"""The first steps of a deployment or tenant: each finds out by itself whether it is done."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from urllib.parse import urlencode
from uuid import UUID

from msgspec import Struct

from mailwarden.access.keys import ApiKeys
from mailwarden.access.permissions import KeyScope
from mailwarden.access.users import Role, UserStore
from mailwarden.console.language import N_
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest
from mailwarden.history.store import HistoryStore
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope
from mailwarden.model.record import FinishedRequest

START = "/console/start"
MAX_LIST_SCOPES = 50  # tenants whose lists are looked at, if no tenant is chosen
RECENT_MESSAGES = 20
RECENT = timedelta(days=30)
_SCANNED_BY_KEY = "restApi"  # the scan source of the Email Scanning API and of the console


class StepName(StrEnum):
    ADMINISTRATOR = "administrator"
    TENANT = "tenant"
    WAY_IN = "way-in"
    MESSAGE = "message"
    ENTRY = "entry"


class Step(Struct, frozen=True):
    """One step with the page of its action and its state."""

    name: StepName
    title: str
    sentence: str
    action: str
    path: str
    is_done: bool
    is_hidden: bool = False

    @property
    def is_open(self) -> bool:
        return not self.is_done and not self.is_hidden


class FirstSteps:
    """Looks at users, tenants, keys, history and lists within the scope of the user."""

    def __init__(self, users: UserStore, keys: ApiKeys, history: HistoryStore, lists: ListService) -> None:
        self._users = users
        self._keys = keys
        self._history = history
        self._lists = lists

    async def of(self, request: UserRequest, tenant: UUID | None = None) -> Sequence[Step]:
        """Return the steps that the user may do, about one tenant or the whole scope of the user."""
        hidden = await self._users.hidden_steps(request.scope, request.user.uid)
        given = {"start": "1", **({"scope": str(tenant)} if tenant else {})}
        recent = await self._recent(request, tenant)
        steps: list[Step] = []

        def add(name: StepName, texts: tuple[str, str, str], path: str, *, done: bool) -> None:
            steps.append(Step(name, *texts, path, done, name in hidden))

        # A step is looked at only if the user may do it.
        if request.may(Permission.USERS_WRITE):
            add(
                StepName.ADMINISTRATOR,
                (
                    N_("Invite a second administrator"),
                    N_("If one administrator loses access, another one helps."),
                    N_("Invite a user"),
                ),
                "/console/users/new",
                done=await self._has_two_administrators(request),
            )
        if request.may(Permission.TENANTS_WRITE):
            add(
                StepName.TENANT,
                (
                    N_("Tenant and domain"),
                    N_("A message belongs to the tenant of its recipient's domain."),
                    N_("Create a tenant"),
                ),
                f"/console/tenants/new?{urlencode({'start': '1'})}",
                done=any(each.domains for each in request.tenants if tenant in (None, each.uid)),
            )
        if request.may(Permission.KEYS_WRITE):
            add(
                StepName.WAY_IN,
                (
                    N_("API key or SMTP"),
                    N_("A program submits messages with a key for messages:submit, or Postfix sends them over SMTP."),
                    N_("Create a key"),
                ),
                "/console/keys/new",
                done=any(each.source != _SCANNED_BY_KEY for each in recent) or await self._has_key(request, tenant),
            )
        if request.may(Permission.ANALYZE):
            add(
                StepName.MESSAGE,
                (N_("First message"), N_("Submit a message of your own, or send a sample below."), N_("Samples")),
                "#samples",
                done=bool(recent),
            )
        if request.may(Permission.LISTS_WRITE):
            add(
                StepName.ENTRY,
                (N_("First list entry"), N_("Block or allow a sender, a URL or a file."), N_("Open the lists")),
                f"/console/lists?{urlencode(given)}",
                done=await self._has_entry(request, tenant),
            )
        return steps

    async def hide(self, request: UserRequest, name: StepName, *, hidden: bool) -> None:
        """Hide a step from this user's checklist, or show it again."""
        before = await self._users.hidden_steps(request.scope, request.user.uid)
        steps = before | {name} if hidden else before - {name}
        await self._users.hide_steps(request.scope, request.user.uid, frozenset(steps))

    async def _has_two_administrators(self, request: UserRequest) -> bool:
        whole = request.scope.tenants is None
        role = Role.DEPLOYMENT_ADMINISTRATOR if whole else Role.TENANT_ADMINISTRATOR
        users = await self._users.list(request.scope)
        return sum(user.role is role and not user.disabled for user in users) >= 2

    async def _has_key(self, request: UserRequest, tenant: UUID | None) -> bool:
        now = datetime.now(UTC)
        return any(
            key.may(KeyScope.SUBMIT) and key.is_valid(now) and (tenant is None or key.scope.allows(tenant))
            for key in await self._keys.list(request.scope)
        )

    async def _recent(self, request: UserRequest, tenant: UUID | None) -> Sequence[FinishedRequest]:
        scope = request.scope.narrowed(tenant)
        return await self._history.candidates(scope, (), datetime.now(UTC) - RECENT, RECENT_MESSAGES)

    async def _has_entry(self, request: UserRequest, tenant: UUID | None) -> bool:
        tenants = [tenant] if tenant else [each.uid for each in request.tenants][:MAX_LIST_SCOPES]
        scopes = [ListScope(each) for each in tenants]
        if tenant is None and request.scope.tenants is None:
            scopes.insert(0, ListScope())
        for scope in scopes:
            if any((await self._lists.counts(scope)).values()):
                return True
        return False
