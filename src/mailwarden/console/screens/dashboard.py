"""The Dashboard screen (rates, durations, decisions, reasons) and the Health screen (guards, engines, settings)."""

from collections.abc import Sequence
from datetime import UTC, timedelta
from functools import partial
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from mailwarden.console.auth import Page
from mailwarden.console.first_steps import FirstSteps
from mailwarden.console.language import N_, word_text
from mailwarden.console.permissions import Permission
from mailwarden.console.policy_texts import tags_in_language
from mailwarden.console.request import UserRequest
from mailwarden.console.services import Deployment
from mailwarden.console.templating import HEADERS
from mailwarden.errors import SchemaViolation
from mailwarden.history.store import ATTACKS, Bucket, HistoryStore, Range
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.policy.rules import Policy

TITLES = {Range.HOUR: N_("Last hour"), Range.DAY: N_("Last 24 hours"), Range.WEEK: N_("Last 7 days")}
TOP_REASONS = 10
# The stack order in the chart, from the bottom.
ORDER = (Decision.DELIVER, Decision.QUARANTINE, Decision.BOUNCE, Decision.DROP, Decision.UNDECIDED)
# The end of a search that leaves the attacks.
ATTACKS_ONLY = " ".join(f"-verdict:{each}" for each in Verdict if each not in ATTACKS)


class DashboardScreen:
    def __init__(self, history: HistoryStore, deployment: Deployment, policy: Policy, first_steps: FirstSteps) -> None:
        self._first_steps = first_steps
        self._history = history
        self._deployment = deployment
        self._policy = policy
        # Only tags of rules with a weight count as reasons; a passed SPF check does not.
        self._weighted_tags = frozenset(rule.tag for rule in policy.rules if rule.tag and rule.weight > 0)

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/", Permission.OVERVIEW, self.show),
            Page("GET", "/dashboard/state", Permission.OVERVIEW, self.show_state, quiet=True),
            Page("GET", "/dashboard/decisions", Permission.OVERVIEW, self.show_decisions, quiet=True),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        steps = await self._first_steps.of(request) if request.may(Permission.ANALYZE) else ()
        return request.render("dashboard/index.html", await self._values(request), titles=TITLES, steps=steps)

    async def show_state(self, request: UserRequest) -> web.StreamResponse:
        """Return the fragment that an open page polls."""
        return request.render("dashboard/state.html", await self._values(request))

    async def show_decisions(self, request: UserRequest) -> web.StreamResponse:
        """Return the data of the chart as JSON."""
        statistics = await self._history.statistics(request.view, range_of(request))
        answer = {
            "width": int(statistics.width.total_seconds()),
            "times": [int(bucket.start.timestamp()) for bucket in statistics.buckets],
            "decisions": [
                {
                    "name": each,
                    "label": word_text(each),
                    "counts": [bucket.decisions.get(each, 0) for bucket in statistics.buckets],
                }
                for each in ORDER
            ],
        }
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json", headers=dict(HEADERS))

    async def _values(self, request: UserRequest) -> dict[str, object]:
        range_ = range_of(request)
        # The load of the guards comes from all tenants, so only deployment-wide users see it.
        guards = self._deployment.guards() if request.view.tenants is None else None
        statistics = await self._history.statistics(request.view, range_)
        return {
            "range": range_,
            "statistics": statistics,
            "bucket_search": partial(search_in_bucket, statistics.width),
            "shares": [
                ("decision", [(each, statistics.decisions[each]) for each in ORDER]),
                ("verdict", list(statistics.verdicts.items())),
            ],
            "order": ORDER,
            "colour": await self._deployment.colour(),
            "guards": guards,
            "meanings": tags_in_language(self._policy.tags),
            "attacked": await self._history.attacked(request.view, range_),
            "attacks_only": ATTACKS_ONLY,
            "reasons": [(tag, count) for tag, count in statistics.tags if tag in self._weighted_tags][:TOP_REASONS],
        }


def search_in_bucket(width: timedelta, bucket: Bucket, decision: Decision) -> str:
    """Return the address of the search that lists the messages of one interval with this decision."""
    end = bucket.start + width
    asked = {
        "q": f"decision:{decision}",
        "range": "between",
        "since": f"{bucket.start.astimezone(UTC):%Y-%m-%dT%H:%M}",
        "until": f"{end.astimezone(UTC):%Y-%m-%dT%H:%M}",
    }
    return f"/console/messages?{urlencode(asked)}"


def range_of(request: UserRequest) -> Range:
    try:
        return Range(request.query.get("range", Range.DAY))
    except ValueError:
        raise SchemaViolation(f"A range is one of {', '.join(Range)}.") from None


class HealthScreen:
    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/health", Permission.HEALTH, self.show),
            Page("GET", "/health/state", Permission.HEALTH, self.show_state, quiet=True),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return request.render(
            "health/index.html",
            await self._state(),
            configurations=await self._deployment.configurations(),
        )

    async def show_state(self, request: UserRequest) -> web.StreamResponse:
        """Return the fragment that an open page polls."""
        return request.render("health/state.html", await self._state())

    async def _state(self) -> dict[str, object]:
        return {
            "colour": await self._deployment.colour(),
            "guards": self._deployment.guards(),
            "database_up": self._deployment.database_up(),
        }
