"""The page of the events for the documentation, made from the catalogue."""

import msgspec

from mailwarden.events.catalogue import CATALOGUE, encode
from workshop.pages.event_examples import examples

_HEAD = """# Events

For integrators. Mailwarden records an event for each change that other systems may want to know. Read them with
`GET /v1/events`; the same events are delivered by webhook, syslog or file where that is configured.

## Reading
```
curl -H "Authorization: apikey $KEY" "https://abby.example:9081/v1/events?after=latest"
{"events":[],"next":"AQAAAAAAAAAB","more":false}
curl -H "Authorization: apikey $KEY" "https://abby.example:9081/v1/events?after=AQAAAAAAAAAB&wait=30"
```
| parameter | meaning |
|---|---|
| `after` | the cursor: `next` of the page before, or `latest`; without it, from the oldest event that is kept |
| `types` | only these types, separated by commas |
| `tenantUid` | only this tenant |
| `wait` | 0 to 60 seconds to wait if there is no event after the cursor (long polling) |
| `limit` | 1 to 1,000 events, 100 by default |

An API key needs the scope `events:read`, a static token the permission `*`. A credential of some tenants gets their
events only; events of the deployment (`tenantUid` is null) need a credential of the whole deployment, and a query
without `tenantUid`.

With `Accept: application/x-ndjson` the answer has one event a line, and `next` and `more` are in the headers
`X-Next-Cursor` and `X-More-Events`.

Store `next` after you have processed a page, and continue with it. It is set for an empty page too, and may move on
there: one page looks at 5,000 events of all tenants at most. If `more` is true there may be further events now, also
after an empty page: read on at once. A credential can have 10 calls at once; further ones get
429 `rate_limited`. 500 clients of one abby can wait at once; further ones get 503 `overloaded`.

## Guarantees
- **No event is lost**: it is committed together with its change, or not at all. Messages that history could not store
  have none. `engine.up` and `engine.down` are not part of a change in the database: guard queues up to 1,000 of them
  while the database is down, and those still queued when it stops are lost.
- **At least once.** A page that you read twice has the same events with the same `id`. Drop duplicates by `id`.
- **Order**: events of one `subject` (a ggrid, a list, a key, a user, an engine) come in the order of the changes.
  `message.held` is committed before the reply to the MTA and may come before `message.scanned`.
- **Kept** for `events.retentionDays` of guard.yml, 14 days by default. A cursor that is older returns 410
  `cursor_expired`: events after it are gone. Start again without `after`, and compare with `GET /v1/quarantine` or
  the lists if you keep a copy.
- **Restore**: events of the backup keep their ids. A cursor from after the backup returns new events only, or 410.
- **Failover**: if the new primary lacks the last commits (asynchronous replication), numbers are given again, and a
  reader that has seen them can miss as many events. Use synchronous replication, or run `SELECT setval('event_numbers',
  last_value + 4294967296) FROM event_numbers` after such a failover.
- A transaction that is still open delays later events until it ends; the database ends one whose process is frozen or
  unreachable after 60 seconds.
- A tenant's retention of history does not shorten its events: set `events.retentionDays` to the shortest, 4 at least.
- A cursor contains the number of the last event of the deployment, so that a client sees how many there are of all
  tenants together, and nothing else about them.

guard.yml selects the scanned messages that get an event: `events.scanned` is `all`, `notClean` or `none`, and
`events.sample: 0.1` takes every tenth of them.

## Types
Every event has these fields: `id` (UUID version 7), `type`, `version` of the schema, `time` (clock of the database),
`tenantUid`, `subject`, `data`. `GET /v1/events/schemas` returns the JSON schema of each type (draft 2020-12). New
fields may be added; ignore fields that you do not know. Texts are cut after 1,000 characters and lists after 100
items; the counts are complete. The body of a message is in no event.
"""


def events_page() -> str:
    """Return docs/events.md."""
    parts = [_HEAD]
    for example in examples():
        sentence = " ".join((CATALOGUE[example.type].__doc__ or "").split())
        shown = msgspec.json.format(encode(example), indent=2).decode()
        parts.append(f"### {example.type}\n{sentence}\n```json\n{shown}\n```\n")
    return "\n".join(parts)
