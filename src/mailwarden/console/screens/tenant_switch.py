"""The tenant switcher: a user of several tenants chooses the one that lists and figures show, for all screens.

Security: the choice is a cookie of the browser. Every request checks it against the tenants of the user. It narrows
the lists and figures of a screen and gives no right.
"""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.auth import Page
from mailwarden.console.permissions import Permission
from mailwarden.console.request import MENU, TENANT_COOKIE, UserRequest, see_other
from mailwarden.errors import NotFound

ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Lax"
MAX_AGE = 365 * 24 * 3600  # seconds; a session that ended does not end the choice


class TenantSwitchScreen:
    def pages(self) -> Sequence[Page]:
        return [Page("POST", "/switch", Permission.ACCOUNT, self.switch)]

    async def switch(self, request: UserRequest) -> web.StreamResponse:
        """Remember the tenant, or forget it for an empty one; lead back to the screen."""
        value = _tenant_in(request)
        wanted = request.form.text("next")
        response = see_other(wanted if wanted in {entry.path for entry in MENU} else MENU[0].path)
        age = MAX_AGE if value else 0
        response.headers.add("Set-Cookie", f"{TENANT_COOKIE}={value}; {ATTRIBUTES}; Max-Age={age}")
        return response


def _tenant_in(request: UserRequest) -> str:
    """Return the uid of the tenant that the form names, or an empty text for all; raise NotFound for any other."""
    named = request.form.text("tenant").casefold()
    if not named:
        return ""
    for tenant in request.tenants:
        if named in (str(tenant.uid), tenant.name.casefold()):
            return str(tenant.uid)
    raise NotFound("There is no such tenant.")
