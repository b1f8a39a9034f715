"""The declarations of the endpoints: each is complete, and says nothing twice."""

import re

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from mailwarden.abby.endpoints import ENDPOINTS
from mailwarden.access.callers import Access, Caller, KeyAccess
from mailwarden.access.endpoints import NOBODY, Endpoint, routes_of
from mailwarden.access.keys import ApiKeys, KeyStore
from mailwarden.access.permissions import ApiPermission
from mailwarden.access.rate_limits import LeaseStore, SharedRateLimiter
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import InvalidTenantUid, PayloadTooLarge, RateLimited, SchemaViolation, Unauthenticated
from mailwarden.serving.errors import STATUS_OF
from mailwarden.serving.http_app import Call
from mailwarden.wire.scanning import SystemStatus

TENANT = "00000000-0000-4000-8000-000000000000"


class Records(msgspec.Struct, rename="camel"):
    tenant_uid: str


# The tests of routes take scopes from the declarations: here they stand once more, so that no slip opens one to keys.
OPEN = "getEventSchemas getHealth getReadiness getDescription getCatalogue"
NEEDED = {
    "messages:submit": "submitEmail",
    "messages:read": "searchMessages countMessages explainMessage getStatistics",
    "reports:write": "reportMessage reportContents listReports withdrawReport getTraining resetTraining",
    "quarantine:read": "listHeldMessages showHeldMessage",
    "quarantine:manage": "downloadHeldMessage releaseHeldMessage deleteHeldMessage",
    "events:read": "listEvents",
    "lists:write": "addEntries deleteEntries",
    "lists:read": "getLists listEntries",
    "status:read": "getStatus",
    "admin.metrics": "getMetrics",
}

# Nothing here asks the database: calls without a credential are rejected before.
DATABASE = Database("postgresql://nowhere.invalid/none")
KEYS = ApiKeys(KeyStore(DATABASE), KeyRing.of(b"p" * 32))


class OneApi:
    def __init__(self) -> None:
        self.callers: list[Caller] = []

    async def answer(self, call: Call, caller: Caller) -> web.StreamResponse:
        self.callers.append(caller)
        return web.Response()


def endpoint(permission=None, **declared) -> Endpoint[OneApi]:
    return Endpoint("GET", "/v1/x", permission, OneApi.answer, "showX", "Show X.", **declared)


def test_names_and_routes_are_unique():
    assert len({each.name for each in ENDPOINTS}) == len(ENDPOINTS)
    assert len({(each.method, each.path) for each in ENDPOINTS}) == len(ENDPOINTS)


def test_each_endpoint_needs_its_scope_and_few_are_open():
    assert {each.name for each in ENDPOINTS if each.permission is None} == {*OPEN.split()}
    needed = {each.name: each.permission.scope or each.permission.token for each in ENDPOINTS if each.permission}
    assert needed == {name: scope for scope, names in NEEDED.items() for name in names.split()}


@pytest.mark.parametrize("each", ENDPOINTS, ids=lambda each: each.name)
def test_an_example_is_a_valid_call(each):
    record = each.query or each.body
    if record is None:
        assert not each.example
    else:
        named = {"tenantUid": TENANT} if each.names_tenant else {}
        msgspec.convert({**named, **each.example}, record, strict=each.body is not None)


@pytest.mark.parametrize("each", ENDPOINTS, ids=lambda each: each.name)
def test_a_declaration_lists_only_errors_of_its_own(each):
    assert not {*each.errors} & endpoint(each.permission).possible_errors
    assert each.possible_errors <= STATUS_OF.keys()
    assert each.summary.endswith(".")
    assert re.fullmatch("[a-z][A-Za-z]+", each.name)


def test_every_permission_is_needed_by_an_endpoint():
    assert {each.permission for each in ENDPOINTS if each.permission is not None} == {*ApiPermission}


def test_errors_follow_from_the_declaration():
    assert Unauthenticated not in endpoint().possible_errors
    assert Unauthenticated in endpoint(ApiPermission.READ).possible_errors
    assert RateLimited not in endpoint(ApiPermission.READ).possible_errors
    assert RateLimited in endpoint(ApiPermission.LISTS_READ).possible_errors
    assert PayloadTooLarge in endpoint(body=SystemStatus).possible_errors
    assert PayloadTooLarge in endpoint(message="optional").possible_errors
    assert SchemaViolation in endpoint(query=SystemStatus).possible_errors
    assert InvalidTenantUid not in endpoint(query=SystemStatus).possible_errors
    assert InvalidTenantUid in endpoint(query=Records).possible_errors


async def test_the_permission_decides_which_credential_is_checked():
    api, access = OneApi(), Access([], KEYS)
    key_access = KeyAccess(KEYS, SharedRateLimiter(1, LeaseStore(DATABASE)))
    call = Call(make_mocked_request("GET", "/v1/x"), "", {})
    permissions = (None, ApiPermission.READ, ApiPermission.METRICS, ApiPermission.LISTS_READ)
    public, *others = routes_of([endpoint(each) for each in permissions], api, access, key_access)
    for route, scheme in zip(others, ("Bearer", "Bearer", "apikey"), strict=True):
        with pytest.raises(Unauthenticated) as refused:
            await route.handler(call)
        assert refused.value.scheme == scheme
    assert not api.callers
    await public.handler(call)
    assert api.callers == [NOBODY]
    assert (NOBODY.permissions, NOBODY.scope.tenants) == (frozenset(), frozenset())
