"""The page about the lists, made from the catalogue and the kinds."""

from collections.abc import Iterable, Sequence

from mailwarden.lists.catalogue import CATALOGUE, ListDefinition
from mailwarden.lists.kinds import KINDS, Kind
from mailwarden.lists.kinds.networks import MIN_IPV4_PREFIX, MIN_IPV6_PREFIX
from mailwarden.lists.kinds.text import MAX_ENTRY

_OPENING = """# Lists

A *list* is a named set of *entries* in one scope: one tenant, or the deployment (*global*). The same lists exist in
every scope; a tenant's lists act on its messages, the global lists on those of every tenant. Entries are read and
changed over the [List API](list-api.md) or by `mailwarden lists`; a change acts on the scans of every guard within
two seconds.
"""

_FORMS = f"""## How entries are written

An entry is kept in one form, whatever spelling it was given in, and every accepted spelling finds it again, when it
is deleted as well as when a message is looked up. Every entry is trimmed and brought into Unicode NFC; domains become
lower-case A-labels without a trailing dot, addresses lower case, IP addresses their shortest form, URLs lose scheme,
user, default port and fragment, hashes become lower-case hex. Defanged spellings (`hxxp`, `[.]`, `[@]`) are made
whole. An entry has at most {MAX_ENTRY:,} characters, a comment at most 1,024.

Refused as too broad (`entry_too_broad`): a public suffix such as `co.uk`; in a list that lets mail through, a domain
at which anybody can have a mailbox; an IPv4 network shorter than /{MIN_IPV4_PREFIX} or an IPv6 network shorter than
/{MIN_IPV6_PREFIX}; the hash of the empty file; a subject text of one character, or a pattern that meets nearly every
subject.
"""

_PRECEDENCE = """## Which entry wins

The first row that applies decides:

| order | what applies | what follows |
|---|---|---|
| 1 | the malware floor | a message that is `malware` is not delivered, but for exact files in `file-hash-allow` |
| 2 | `simulation-senders`, then `recipient-exempt` of every recipient | deliver |
| 3 | an entry of the tenant | it wins over every global entry, however specific that is |
| 4 | an entry of the global scope | it wins over the tenant's profile |
| 5 | no entry | the tenant's profile turns the verdict into the decision |

A message with [recipients of several tenants](scanning-api.md#recipients-of-several-tenants) is compared with the lists
of each tenant separately: a tenant's entries act on its own recipients, `recipient-exempt` needs every recipient of
that tenant, and hits are counted for the tenant whose entry acted. The caller is answered the most severe decision.

Between two entries of one scope that meet the same value and say opposite things:

| value | from the most to the least specific |
|---|---|
| sender | address, domain, `*.` of the closest domain above, `*.` further above |
| IP address | the longer prefix |
| URL | page with its query, page, longer path `/*`, shorter path `/*`, host, `*.` closest above; a port before none |
| file | SHA-256, SHA-1, MD5 |

On a tie, and between entries that meet different values of one message, block beats allow. The senders of a message,
in the envelope and in From, are one value in this: the most specific entry that meets any of them wins. Lists without
an opposite (`attachment-block`, `subject-block`, and those of the headings Exempt, Impersonation and Trust) act
whenever they are met.

What an allow entry cannot do: it changes the decision, never the verdict, so a message that was let through still
says what it is; and `sender-allow` counts only for a sender that authentication proved (aligned SPF or DKIM),
otherwise the message carries `policy.allow-unauthenticated` and nothing changes. No entry delivers a message that
tripped a structure limit or whose analysis is incomplete.

`mailwarden lists check VALUE` shows which entries a value meets, in which scope, and which of them acts.

## Allow lists and the sender

- `sender-allow` and the domains of `simulation-senders` count only for an authenticated sender.
- No entry of an Allow or Exempt list applies to a message with an
  [ambiguous sender](how-a-verdict-is-made.md#one-sender).
- Behind a host of `trusted-relays` the client IP is taken from the Received line that the host wrote: the peer address
  that it recorded, never the name that the peer gave in EHLO. The formats of Postfix, Exim, Sendmail, Exchange, Haraka
  and OpenSMTPD are read. A line in any other format ends the walk; then the client IP is unknown and no entry for IP
  addresses applies.
"""


def lists_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_OPENING, *_catalogue(), _FORMS, *_kinds(), _PRECEDENCE])


def _catalogue() -> Iterable[str]:
    yield "## The catalogue\n"
    yield from _table(
        ("list", "heading", "what an entry does", "entries are", "most entries: tenant", "global"),
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
    yield from _table(("given", "kept"), ((_code(given), _code(kept)) for given, kept in kind.examples))


def _names(definitions: Sequence[ListDefinition]) -> str:
    return ", ".join(f"`{each.name}`" for each in definitions)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield _row(heads)
    yield _row(["---"] * len(heads))
    yield from map(_row, rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _code(text: str) -> str:
    return f"`{text}`"
