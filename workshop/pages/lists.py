"""The page about the lists, made from the catalogue and the kinds."""

from collections.abc import Iterable, Sequence

from mailwarden.lists.catalogue import CATALOGUE, ListDefinition
from mailwarden.lists.kinds import KINDS, Kind
from mailwarden.lists.kinds.kind import MAX_ENTRY
from mailwarden.lists.kinds.networks import MIN_IPV4_PREFIX, MIN_IPV6_PREFIX
from workshop.pages.tables import code, table

_OPENING = """# Lists

For integrators and analysts. A *list* is a named set of *entries* in one scope: one tenant, or the deployment
(*global*). The same lists exist in every scope. A tenant's lists act on its messages, global lists on the messages of
all tenants. Read and change entries over the [List API](list-api.md), with `mailwarden lists`, or in the
[console](console.md#lists); [feeds](feeds.md) fill block lists. A change acts on the scans of every guard within two
seconds.
"""

_FORMS = f"""## How entries are written

An entry is stored in one normalised form. Every accepted spelling finds it, when you delete it and when a message is
scanned:

- All entries are trimmed and converted to Unicode NFC. Defanged spellings (`hxxp`, `[.]`, `[@]`) are restored.
- Domains become lower-case A-labels without a trailing dot; addresses become lower case.
- IP addresses get their shortest form. URLs lose scheme, user, default port and fragment. Hashes become lower-case hex.
- An entry has at most {MAX_ENTRY:,} characters, a comment at most 1,024.

Rejected as too broad (`entry_too_broad`):

- a public suffix such as `co.uk`;
- in an allowlist, a domain of a free mail provider;
- an IPv4 network shorter than /{MIN_IPV4_PREFIX} or an IPv6 network shorter than /{MIN_IPV6_PREFIX};
- the hash of the empty file;
- a subject text of one character, or a pattern that matches nearly every subject.
"""

_PRECEDENCE = """## Which entry wins

The first row that applies decides:

| order | condition | result |
|---|---|---|
| 1 | the verdict is `malware` | the message is not delivered, except for exact files in `file-hash-allow` |
| 2 | `simulation-senders`, then `recipient-exempt` for every recipient | deliver |
| 3 | an entry of the tenant | it wins over every global entry, also a more specific one |
| 4 | an entry of the global scope | it wins over the tenant's profile |
| 5 | no entry | the tenant's profile maps the verdict to the decision |

For a message with [recipients of several tenants](scanning-api.md#recipients-of-several-tenants) guard matches the
lists of each tenant separately. A tenant's entries act on its own recipients, `recipient-exempt` needs every recipient
of that tenant, and hits count for the tenant of the entry. The caller gets the most severe decision.

Between a block and an allow entry of one scope for the same value, the more specific one wins:

| value | from the most to the least specific |
|---|---|
| sender | address, domain, `*.` of the closest parent domain, `*.` of domains further up |
| IP address | the longer prefix |
| URL | page with query, page, longer path `/*`, shorter path `/*`, host, closest `*.`; with a port before without |
| file | SHA-256, SHA-1, MD5 |

On a tie, and between entries for different values of one message, block wins over allow. The envelope sender and the
From address count as one value: the most specific entry for any of them wins. Lists without an opposite
(`attachment-block`, `subject-block`, and the categories Exempt, Impersonation and Trust) act on every match.

`mailwarden lists check VALUE` shows the entries that match a value, their scope, and the entry that wins.

## Limits of allow entries

- An allow entry changes the decision, never the verdict.
- `sender-allow` and the domains of `simulation-senders` act only for an authenticated sender (aligned SPF or DKIM).
  Otherwise the message gets the tag `policy.allow-unauthenticated` and nothing changes.
- No entry delivers a message beyond a structure limit, or with an incomplete analysis.
- No entry of the categories Allow and Exempt applies to a message with an
  [ambiguous sender](how-a-verdict-is-made.md#one-sender).
- Behind a host of `trusted-relays` guard takes the client IP from the Received field that this host wrote: the peer
  address, never the name from EHLO. guard reads the formats of Postfix, Exim, Sendmail, Exchange, Haraka and OpenSMTPD.
  At a field in another format it stops: the client IP is then unknown, and no entry for IP addresses applies.
"""


def lists_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_OPENING, *_catalogue(), _FORMS, *_kinds(), _PRECEDENCE])


def _catalogue() -> Iterable[str]:
    yield "## The catalogue\n"
    yield from table(
        ("list", "category", "effect of an entry", "kind", "maximum: tenant", "global"),
        (
            (
                f"`{each.name}`",
                each.category,
                each.description,
                f"[{each.kind_name}](#{each.kind_name})",
                f"{each.max_size_tenant:,}",
                f"{each.max_size_global:,}",
            )
            for each in CATALOGUE
        ),
    )


def _kinds() -> Iterable[str]:
    for kind in KINDS.values():
        used = [each for each in CATALOGUE if each.kind_name == kind.name]
        yield f"### {kind.name}\n"
        yield f"{kind.form} In {_names(used)}.\n"
        yield from _examples(kind)


def _examples(kind: Kind) -> Iterable[str]:
    yield from table(("input", "stored"), ((code(given), code(kept)) for given, kept in kind.examples))


def _names(definitions: Sequence[ListDefinition]) -> str:
    return ", ".join(f"`{each.name}`" for each in definitions)
