"""An endpoint of the HTTP APIs, as the `api.py` of its feature declares it beside its function.

The route table, the check of the credential, the OpenAPI description and the tests of routes read the declaration.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Literal, Never, TypeVar

from aiohttp import web
from msgspec import Struct

from mailwarden import errors
from mailwarden.access.callers import Access, Caller, KeyAccess, KnownHandler
from mailwarden.access.permissions import ApiPermission
from mailwarden.errors import MailwardenError
from mailwarden.model.scope import Scope
from mailwarden.serving.http_app import Call, Handler, Route

Errors = tuple[type[MailwardenError], ...]
Api = TypeVar("Api")
Api_contra = TypeVar("Api_contra", contravariant=True)

ANYWHERE: Errors = (
    errors.BadRequest,
    errors.MethodNotAllowed,
    errors.RequestTimeout,
    errors.InternalError,
    errors.Overloaded,
    errors.ShuttingDown,
)
WITH_CREDENTIAL: Errors = (
    errors.Unauthenticated,
    errors.InvalidCredentials,
    errors.Forbidden,
    errors.StorageUnavailable,  # API keys are in the database
)
WITH_JSON: Errors = (
    errors.PayloadTooLarge,
    errors.UnsupportedMediaType,
    errors.InvalidJson,
    errors.SchemaViolation,
)
WITH_MESSAGE: Errors = (errors.PayloadTooLarge, errors.UnsupportedMediaType, errors.EmptyEmail)
OF_TENANT: Errors = (errors.TenantForbidden, errors.TenantNotFound)  # of `require_tenant` and `call_scope`
# The caller of endpoints without a credential.
NOBODY = Caller("nobody", frozenset(), Scope.of(), "nobody")


@dataclass(frozen=True, slots=True)
class Lines:
    """A response as NDJSON: the sentence about its lines, their records, and the pattern of each header of its own."""

    sentence: str
    records: tuple[type[Struct], ...]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Api_contra]):
    """A method and path of the HTTP APIs, and the function of a feature's API that answers it.

    The permission decides which credentials it takes; without one it takes none. `errors` are those of its function:
    `possible_errors` adds those that follow from the rest of the declaration.
    """

    method: str
    path: str
    permission: ApiPermission | None
    function: Callable[[Api_contra, Call, Caller], Awaitable[web.StreamResponse]] = field(repr=False)
    name: str  # the operationId of the description
    summary: str
    query: type[Struct] | None = None
    body: type[Struct] | None = None  # the JSON of the request
    form: type[Struct] | None = None  # the JSON part `parameters` of a form; its other part is the message
    message: Literal["required", "optional", "none"] = "none"  # whether the body is a raw message
    result: type[Struct] | None = None  # the JSON of the response
    lines: Lines | None = None  # beside a result: for callers that accept NDJSON
    media_type: str = "application/json"  # of a response without record
    status: int = 200
    errors: Errors = ()
    example: Mapping[str, object] = field(default_factory=dict)  # fields of the query or the body of a call
    quiet: bool = False  # polled every few seconds: no log line

    @property
    def takes_token(self) -> bool:
        return self.permission is not None and self.permission.token is not None

    @property
    def names_tenant(self) -> bool:
        """Return whether a call may name a tenant."""
        records = (self.query, self.body, self.form)
        return any("tenant_uid" in record.__struct_fields__ for record in records if record is not None)

    @property
    def possible_errors(self) -> frozenset[type[MailwardenError]]:
        """Return every error that a call may be answered with."""
        kinds: set[type[MailwardenError]] = {*ANYWHERE, *self.errors}
        if self.permission is not None:
            kinds.update(WITH_CREDENTIAL)
            kinds.update(() if self.takes_token else (errors.RateLimited,))
        if self.query is not None:
            kinds.add(errors.SchemaViolation)
        if self.body is not None or self.form is not None:
            kinds.update(WITH_JSON)
        if self.message != "none" or self.form is not None:
            kinds.update(WITH_MESSAGE)
        if self.names_tenant:
            kinds.add(errors.InvalidTenantUid)
        return frozenset(kinds)


AnyEndpoint = Endpoint[Never]  # of any API


def routes_of(endpoints: Sequence[Endpoint[Api]], api: Api, access: Access, key_access: KeyAccess) -> list[Route]:
    """Return the routes of an API, each with the check of its credential."""
    return [
        Route(
            endpoint.method,
            endpoint.path,
            _checked(endpoint, partial(endpoint.function, api), access, key_access),
            quiet=endpoint.quiet,
        )
        for endpoint in endpoints
    ]


def _checked(endpoint: Endpoint[Api], handler: KnownHandler, access: Access, key_access: KeyAccess) -> Handler:
    if endpoint.permission is None:
        return lambda call: handler(call, NOBODY)
    if endpoint.takes_token:
        return access.protect(endpoint.permission, handler)
    return key_access.protect(endpoint.permission, handler)
