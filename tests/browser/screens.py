"""Every screen of the console by name: where it is, for the pictures and for the search for barriers."""

import os
from collections.abc import Mapping

# `make screens` looks at every screen in all four ways; everywhere else each width and each scheme is seen once.
FULL = os.environ.get("MAILWARDEN_FULL") == "1"
LOOKS = [(1280, False), (390, True), *([(1280, True), (390, False)] if FULL else [])]
# Filled in by the tests: {acme} is a tenant, {malware} and {clean} are messages, {held} is one in quarantine.
SCREENS: Mapping[str, str] = {
    "dashboard": "/console/",
    "dashboard-week": "/console/?range=7d",
    "start": "/console/start",
    "start-tenant": "/console/start?tenant={acme}",
    "messages": "/console/messages",
    "messages-found": "/console/messages?q=verdict:malware+tenant:acme",
    "messages-open": "/console/messages?q=to:company.example&open={malware}",
    "messages-none": "/console/messages?q=subject:nothing&range=between&since=2026-01-01T00:00",
    "messages-mistake": "/console/messages?q=form:alice",
    "messages-tail": "/console/messages?tail=1&q=-verdict:clean",
    "health": "/console/health",
    "tenants": "/console/tenants",
    "tenant": "/console/tenants/{acme}",
    "tenant-new": "/console/tenants/new",
    "tenant-weight": "/console/tenants/{acme}/weights?rule=html.link-mismatch",
    "tenant-weight-impact": "/console/tenants/{acme}/weights?rule=html.link-mismatch&weight=20",
    "tenant-weight-found": "/console/tenants/{acme}/weights?rule=password",
    "tenant-weight-none": "/console/tenants/{acme}/weights?rule=no-such-rule",
    "learning": "/console/learning?tenant={acme}",
    "learning-none": "/console/learning?tenant={club}",
    "learning-reset": "/console/learning/reset?tenant={acme}",
    "quarantine": "/console/quarantine",
    "quarantine-any": "/console/quarantine?state=any&recipient=company.example&tenant={acme}",
    "quarantine-none": "/console/quarantine?sender=nobody.example",
    "held": "/console/quarantine/{held}",
    "held-refused": "/console/quarantine/{held-refused}",
    "held-released": "/console/quarantine/{held-released}",
    "held-malware": "/console/quarantine/{held-malware}",
    "held-deleted": "/console/quarantine/{held-deleted}",
    "held-export": "/console/quarantine/{held}/message",
    "audit": "/console/audit",
    "analyze": "/console/analyze",
    "message": "/console/messages/{malware}",
    "message-clean": "/console/messages/{clean}",
    "message-long": "/console/messages/{long}",
    "message-held": "/console/messages/{message-held}",
    "message-tune": "/console/messages/{long}/tune",
    "message-tune-malware": "/console/messages/{malware}/tune",
    "message-indicators": "/console/messages/{malware}/indicators",
    "message-block": "/console/messages/{message-held}/block?pick=sender-block:billing@letters.example",
    "message-block-none": "/console/messages/{malware}/block",
    "lists": "/console/lists",
    "lists-tenant": "/console/lists?scope={acme}",
    "list": "/console/lists/sender-block?scope={acme}",
    "list-add": "/console/lists/sender-block/add?scope={acme}&entry=evil.example&comment=Ticket+7",
    "list-import": "/console/lists/sender-block/import?scope={acme}",
    "list-history": "/console/lists/sender-block/history?scope={acme}",
    "list-check": "/console/lists/check?scope={acme}&value=evil.example",
    "account": "/console/account",
    "keys": "/console/keys",
    "key-new": "/console/keys/new",
    "key": "/console/keys/{key}",
    "people": "/console/people",
    "person-new": "/console/people/new",
}
OPEN_SCREENS: Mapping[str, str] = {
    "login": "/console/login",
    "not-found": "/console/tenants/new?next=1",
}
