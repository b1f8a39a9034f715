"""Every screen of the console by name: where it is, for the pictures and for the search for barriers."""

from collections.abc import Mapping

# Filled in by the tests: {acme} and {club} are tenants, {ggrid} a message, {key} an API key, {person} a person.
SCREENS: Mapping[str, str] = {
    "health": "/console/health",
    "tenants": "/console/tenants",
    "tenant": "/console/tenants/{acme}",
    "tenant-new": "/console/tenants/new",
    "audit": "/console/audit",
    "account": "/console/account",
}
OPEN_SCREENS: Mapping[str, str] = {
    "login": "/console/login",
    "not-found": "/console/tenants/new?next=1",
}
