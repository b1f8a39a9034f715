"""All endpoints of abby, from the declarations of the features, and their routes."""

import msgspec
from aiohttp import web

from mailwarden.abby import status as abby_status
from mailwarden.abby import submit
from mailwarden.abby.openapi import describe
from mailwarden.abby.status import Health, Status
from mailwarden.abby.submit import Scanning
from mailwarden.access.callers import Access, Caller, KeyAccess
from mailwarden.access.endpoints import AnyEndpoint, Api, Endpoint, routes_of
from mailwarden.event_delivery import api as event_api
from mailwarden.event_delivery.api import EventsApi
from mailwarden.history import api as history_api
from mailwarden.history.api import MessagesApi
from mailwarden.lists import api as list_api
from mailwarden.lists.api import ListApi
from mailwarden.policy.catalogue import Catalogue, catalogue
from mailwarden.policy.rules import load_policy
from mailwarden.quarantine import api as quarantine_api
from mailwarden.quarantine.api import QuarantineApi
from mailwarden.serving.http_app import Call, Route
from mailwarden.user_reports import api as report_api
from mailwarden.user_reports.api import ReportApi


class Documents:
    """Serves what callers read once: the OpenAPI description, and the catalogue of verdicts, tags and rules."""

    def __init__(self) -> None:
        self._description = describe(ENDPOINTS)
        self._catalogue = msgspec.json.encode(catalogue(load_policy()))

    async def show_description(self, call: Call, caller: Caller) -> web.StreamResponse:
        return web.Response(body=self._description, content_type="application/json")

    async def show_catalogue(self, call: Call, caller: Caller) -> web.StreamResponse:
        return web.Response(body=self._catalogue, content_type="application/json")


DOCUMENTS = (
    Endpoint(
        "GET", "/openapi.json", None, Documents.show_description, "getDescription",
        "Show this description.",
    ),
    Endpoint(
        "GET", "/v1/catalogue", None, Documents.show_catalogue, "getCatalogue",
        "Show every verdict, tag and rule.",
        result=Catalogue,
    ),
)  # fmt: skip
ENDPOINTS: tuple[AnyEndpoint, ...] = (
    *submit.ENDPOINTS,
    *history_api.ENDPOINTS,
    *report_api.ENDPOINTS,
    *quarantine_api.ENDPOINTS,
    *event_api.ENDPOINTS,
    *list_api.ENDPOINTS,
    *abby_status.ENDPOINTS,
    *abby_status.HEALTH_ENDPOINTS,
    *DOCUMENTS,
)


def build_routes(
    access: Access,
    key_access: KeyAccess,
    *,
    scanning: Scanning,
    messages: MessagesApi,
    reports: ReportApi,
    quarantine: QuarantineApi,
    events: EventsApi,
    lists: ListApi,
    status: Status,
    health: Health,
) -> list[Route]:
    """Return the route table: the routes of ENDPOINTS, in their order."""

    def serve(endpoints: tuple[Endpoint[Api], ...], api: Api) -> list[Route]:
        return routes_of(endpoints, api, access, key_access)

    routes = [
        *serve(submit.ENDPOINTS, scanning),
        *serve(history_api.ENDPOINTS, messages),
        *serve(report_api.ENDPOINTS, reports),
        *serve(quarantine_api.ENDPOINTS, quarantine),
        *serve(event_api.ENDPOINTS, events),
        *serve(list_api.ENDPOINTS, lists),
        *serve(abby_status.ENDPOINTS, status),
        *serve(abby_status.HEALTH_ENDPOINTS, health),
        *serve(DOCUMENTS, Documents()),
    ]
    assert [(route.method, route.path) for route in routes] == [
        (endpoint.method, endpoint.path) for endpoint in ENDPOINTS
    ]
    return routes
