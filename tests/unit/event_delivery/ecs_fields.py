"""The fields of ECS 8.17 that events use, with their types, from the published field reference.

No Python package carries the ECS schema, so the part that is needed is written here as data: the type of each field,
which fields hold a list, and the allowed values of the four categorisation fields with their combinations.
`make check-long ONLY=ecs` compares it with the definitions that Elastic publishes for Node.js.
"""

KEYWORD, WILDCARD, DATE, IP, TEXT = "keyword", "wildcard", "date", "ip", "match_only_text"

FIELDS = {
    "@timestamp": DATE,
    "message": TEXT,
    "tags": KEYWORD,
    "ecs.version": KEYWORD,
    "email.from.address": KEYWORD,
    "email.local_id": KEYWORD,
    "email.message_id": WILDCARD,
    "email.sender.address": KEYWORD,
    "email.subject": KEYWORD,
    "email.to.address": KEYWORD,
    "event.action": KEYWORD,
    "event.category": KEYWORD,
    "event.dataset": KEYWORD,
    "event.id": KEYWORD,
    "event.kind": KEYWORD,
    "event.module": KEYWORD,
    "event.outcome": KEYWORD,
    "event.provider": KEYWORD,
    "event.reason": KEYWORD,
    "event.type": KEYWORD,
    "observer.product": KEYWORD,
    "observer.type": KEYWORD,
    "observer.vendor": KEYWORD,
    "observer.version": KEYWORD,
    "organization.id": KEYWORD,
    "related.hash": KEYWORD,
    "related.ip": IP,
    "rule.category": KEYWORD,
    "rule.ruleset": KEYWORD,
    "source.ip": IP,
    "threat.framework": KEYWORD,
    "threat.tactic.id": KEYWORD,
    "threat.tactic.name": KEYWORD,
    "threat.technique.id": KEYWORD,
    "threat.technique.name": KEYWORD,
    "user.id": KEYWORD,
    "user.name": KEYWORD,
}
# The fields whose values are always a list.
LISTS = {
    "tags",
    "email.from.address",
    "email.to.address",
    "event.category",
    "event.type",
    "related.hash",
    "related.ip",
    "threat.tactic.id",
    "threat.tactic.name",
    "threat.technique.id",
    "threat.technique.name",
}
REQUIRED = {"@timestamp", "ecs.version"}
KINDS = {"alert", "asset", "enrichment", "event", "metric", "state", "pipeline_error", "signal"}
OUTCOMES = {"failure", "success", "unknown"}
# For each allowed category the expected types.
CATEGORIES = {
    "authentication": {"start", "end", "info"},
    "configuration": {"access", "change", "creation", "deletion", "info"},
    "email": {"info"},
    "iam": {"admin", "change", "creation", "deletion", "group", "info", "user"},
    "malware": {"info"},
    "process": {"access", "change", "end", "info", "start"},
}
